"""What of the product itself a question is about, by small rules."""

import re

LONGEST = 80
"""Characters of a question about the product; longer ones tell of something else."""
_ABOUT = {
    "files": re.compile(
        r"(?:어떤|무슨|지원하는|올릴\s?수\s?있는|읽을\s?수\s?있는)\s?(?:파일|문서|확장자|포맷)\s?"
        r"(?:종류|형식|포맷)?(?:을|를|이|가|은|는|도)?\s?(?:지원|올리|올릴|업로드|읽|뭐|무엇|어떤|$|\?)|"
        r"(?<![a-z가-힣])(?:pdf|docx?|hwpx?|한글|워드|엑셀|xlsx?|pptx?|파워포인트|이미지|사진|스캔|"
        r"txt|마크다운|md)\s?(?:파일|문서)?(?:도|은|는|을|를)?\s?"
        r"(?:지원(?:하|되|돼|해)|올릴\s?수|올려도|업로드\s?(?:되|돼|할|가능)|읽을\s?수)|"
        r"\b(?:which|what) (?:kinds? of |types? of )?"
        r"(?:files?|file types?|formats?|file formats?|documents?)\b.{0,20}"
        r"\b(?:support(?:ed)?|upload|read|accept(?:ed)?)\b|"
        r"\b(?:do|can) you (?:support|read|open|handle|accept) (?:a |my )?"
        r"(?:pdf|docx?|word|hwpx?|excel|xlsx?|pptx?|powerpoint|image|scan|markdown|text)\w*"
        r"(?: files?)?\W*$",
        re.IGNORECASE,
    ),
    "upload": re.compile(
        r"(?:파일|문서|자료)(?:은|는|을|를)?\s?(?:어떻게|어디(?:에|서|에서|로)?)\s?(?:올리|올려|업로드|첨부|추가)|"
        r"(?:어떻게|어디서|어디에)\s?(?:파일|문서|자료)(?:을|를)?\s?(?:올리|올려|업로드|첨부|추가)|"
        r"(?:파일|문서|자료)(?:을|를)?\s?(?:업로드|올리는|첨부)\s?(?:하는\s?)?(?:방법|법)|^\W*업로드\s?방법|"
        r"\b(?:how|where) (?:do|can|should) (?:i|we) (?:upload|attach|add) "
        r"(?:(?:a|my|our|the|new|some) )*(?:files?|documents?|pdfs?)\b",
        re.IGNORECASE,
    ),
    "delete": re.compile(
        r"(?:올린\s?|업로드한\s?|내\s?)?(?:문서|파일|대화|채팅)\s?(?:기록|내역)?(?:은|는|을|를)?\s?(?:어떻게|어디서)\s?"
        r"(?:삭제|지우|지워|제거)|"
        r"어떻게\s?(?:문서|파일|대화|채팅)(?:을|를)?\s?(?:삭제|지우|지워|제거)|"
        r"(?:올린|업로드한)\s?(?:문서|파일|자료)(?:을|를)?\s?(?:삭제|지우|지울|제거)|"
        r"\bhow (?:do|can) (?:i|we) (?:delete|remove|erase) (?:(?:a|my|our|the|an|old|uploaded) )*"
        r"(?:files?|documents?|chats?|conversations?|uploads?)\b",
        re.IGNORECASE,
    ),
    "model": re.compile(
        r"(?:언어\s?모델|\bllm|ai\s?모델)(?:은|는|을|를|이|가)?\s?(?:어떻게|어디서|어디에|어디에서)?\s?"
        r"(?:설정|연결|등록|바꾸|바꿔|지정|추가)|nura_llm|"
        r"(?:너|넌|너는|여기|nura)(?:은|는)?\s?(?:무슨|어떤)\s?(?:언어\s?)?모델|"
        r"\b(?:how|where) (?:do|can|should) (?:i|we) (?:set(?: up)?|configure|connect|change|add) "
        r"(?:(?:a|an|the|my|our|another) )*(?:language )?(?:model|llm)\b|"
        r"\b(?:which|what) (?:language )?(?:model|llm) (?:do you|are you|is (?:configured|used))",
        re.IGNORECASE,
    ),
    "privacy": re.compile(
        r"(?:내|제|우리|저희|올린|업로드한)\s?(?:데이터|자료|문서|파일|대화|질문|정보)(?:들)?(?:은|는|이|가|을|를)?\s?"
        r"(?:어디(?:에|로|서)?\s?(?:저장|보관|있|가|전송|보내)|외부로|밖으로|안전하|유출|저장되|학습에|누가\s?(?:보|볼)|"
        r"다른\s?사람(?:이|도)?\s?(?:보|볼))|"
        r"\bwhere (?:is|are|does|do) (?:my|our) (?:data|documents?|files?|chats?|questions?) "
        r"(?:stored|kept|saved|go|sent)\b|"
        r"\b(?:is|are) (?:my|our) (?:data|documents?|files?|chats?|questions?) "
        r"(?:safe|private|secure|shared|sent|stored)\b|"
        r"\bwho can (?:see|read|access) (?:my|our) (?:data|documents?|files?|chats?)\b",
        re.IGNORECASE,
    ),
}
"""What is asked of the product itself, by topic: whole phrases, so that no other question fits."""


def of(question: str) -> str:
    """The topic, the end of a prompt's name; empty where the question is about something else."""
    if len(question) > LONGEST:
        return ""
    return next((name for name, asks in _ABOUT.items() if asks.search(question)), "")
