"""Words and endings of Korean references, as pieces of patterns."""

import re

WORD_ENDS = r"(?![가-힣])"
PARTICLE = (
    r"(?:이요|요|입니다|이에요|예요|이야|인데|말인데|에서는요|에서는|에서도|에서만|에서의|에서|"
    r"에선|에는|에도|에|엔|에게|"
    r"은요|은|는요|는|이랑|이나|이|가|을|를|의|과|와|랑|하고|도|만|으로는|으로|로는|로|까지|부터|"
    r"보다|처럼|상에서|내에서|안에서|"
    r"이라도|라도|들)"
)
"""What may follow a noun or a number; not after a blank."""
NOUN = (
    r"(?:(?:참고|출처|근거|관련|인용|검색된|찾은|첨부)\s?)?(?:(?:문서|출처|소스|자료|파일|"
    r"문헌)(?:들)?|"
    r"(?:[Dd]ocument|[Dd]oc|pdf|PDF|[Ff]ile|[Ss]ource)s?(?![A-Za-z]))"
)
"""What people call a document or source that an answer showed."""
FORM = r"거|것|건|게|걸|꺼|껀|껄|결과|근거|링크"
"""What stands for one, and for other things, too."""
KIND = (
    r"법률|법|규칙|규정|시행령|시행규칙|보고서|보도자료|공고문|공고|통계|매뉴얼|지침|안내서|"
    r"계약서|계획서|논문"
)
"""Kinds of documents, which may stand for one whose title says so."""
AFTER_NOUN = rf"(?!\s?(?:코드|구조|형식|양식))(?={PARTICLE}?(?:{WORD_ENDS}|(?:전체|전문|원문)))"
SHOWN_BY = (
    r"(?:말한|말해\s?준|말씀하신|말씀해\s?주신|보여\s?준|보여\s?주신|알려\s?준|알려\s?주신|찾은|"
    r"찾아\s?준|찾아\s?주신|나온|"
    r"나왔던|인용한|인용된|인용하신|언급한|언급된|언급하신|제시한|제시된|제시하신|본|봤던|답한|"
    r"답변한|답변하신|준|주신|표시된|"
    r"참고한|참고하신|사용한|쓴|소개한|말했던|보여\s?줬던|언급했던|보던|다룬|나와\s?있던)"
)
"""How something was brought up."""
TIME = r"(?:방금|아까|바로|조금|좀)\s?전|방금|아까|이전|직전|위|앞|앞서|상기|지난번|최근|전번"
"""When it was."""
ANSWERED = rf"(?:답변|대답|답|질문|결과|목록|출처)(?:의|에서|에)?(?:\s?{SHOWN_BY})?"
LINK = (
    r"(?:\s?(?:참고|참조|활용|이용|인용|확인|검토|열람)(?:해서|하여|해|하고|로)|\s?(?:기준|바탕|"
    r"근거|기반|토대|"
    r"중심)(?:으로|로)(?:\s?(?:해서|하여|삼아))?|"
    r"\s?(?:따르면|따라|따라서|의하면|근거해서?|근거하여|나온|있는|나와\s?있는|적힌|보면|보고|"
    r"봐서|읽고|찾아서|열어서|읽어서|살펴보고|있잖아,?(?:\s?(?:거기서|거기에서|그거))?)|"
    r"\s?(?:안|속|내|중)(?:에서|에)?(?:는)?)"
)
"""What ties a document to the question, behind its particle."""
WISH = (
    r"보여|봐|볼\s|볼래|보자|열어|펼쳐|띄워|읽|출력|요약|정리|자세|상세|구체|설명|알려|말해|비교|"
    r"번역|인용|분석|검토|확인|찾아|검색|해석|부탁|해\s?줘|해\s?주"
)
"""Beginnings of words that say what to do with a document."""
ASKS = (
    rf"{WISH}|전체|전문|원문|원본|본문|내용|다시|좀|더|참고|참조|보고|열람|주세요|줘|"
    r"기준|기반|바탕|근거|토대|중심|제목|출처|어디|무슨|무엇|뭐|뭔|어떤|어떻|왜|언제|누구|"
    r"맞[아나는습]|"
    r"말이|말하|이요|요$|차이|다른|달라|다르|공통|같|똑같|마찬가지|둘|모두|각각|함께|그대로|"
    r"중에|중(?![가-힣])(?!\s(?:한|두|세|\d))|다\s|\d+\s?(?:쪽|페이지|부분)"
)
"""Beginnings of words that ask something of a document."""

CUT = re.compile(rf"{PARTICLE}?(?:(?<=[를을로에에서])?{LINK}{WORD_ENDS})?(?![가-힣]),?")
NOT_THESE = re.compile(
    r"\s?(?:이|가|은|는|을|를|만|에서|도)?\s?(?:말고|빼고|제외|외에|이외|아니|아닌|대신|없이)"
)
OF_THE_USER = re.compile(
    r"(?<![가-힣])(?:내가\s|제가\s|우리가\s)?(?:올린|올렸던|추가한|보낸|보낼|받은|받을|"
    r"내야\s?(?:할|하는)|낼|"
    r"준비할|필요한|갖출|갖춰야\s?(?:할|하는)|(?:업로드|첨부|등록|제출|작성|신청|준비|발급|송부)"
    r"(?:한|했던|할|하는|해야\s?(?:할|하는)|된|되는|받은|받을))\s?(?:그\s)?$"
)
"""Documents that people hand in or get, and no answer showed."""
HANDED_IN = re.compile(
    r"\s?(?:을|를)?\s?(?:제출|업로드|올리|올려|올렸|번호|"
    r"(?:등록|삭제|첨부|작성|발급|교부|송달|보관|폐기|접수|공증|인증)\s?"
    r"(?:하|할|한|해|했|시\s|되|된|방법|이\s?안|가\s?안))"
)


def cut(text: str, end: int) -> int:
    """Where a reference ends that ends here, with its particle and what ties it to the rest."""
    found = CUT.match(text, end)
    return found.end() if found else end
