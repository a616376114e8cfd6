"""References to documents in Korean: "이전 1번 문서", "방금 2번", "두 번째 거", "아까 그 문서".

A number alone is a reference only where nothing else can be counted: it must begin the message, and
what follows must ask something of a document. "3번 위반하면" and "2번 출구" count other things.
"""

import re

from rag.query import references_ko_that
from rag.query.references_found import Mention, Span, first, joined
from rag.query.references_ko_words import (
    AFTER_NOUN,
    ANSWERED,
    ASKS,
    FORM,
    HANDED_IN,
    KIND,
    NOT_THESE,
    NOUN,
    OF_THE_USER,
    PARTICLE,
    SHOWN_BY,
    TIME,
    WISH,
    WORD_ENDS,
    cut,
)
from rag.query.references_numbers import CIRCLED, COUNTING, SINO, places, spelled
from rag.words import words

_ORDINAL = (
    r"(?<![0-9A-Za-z_.])(?:제\s?)?(?:"
    r"\d{1,4}\s?번에서\s\d{1,4}\s?번(?=(?:\s?문서)?까지)|"
    r"\d{1,4}\s?번?\s?(?:[~∼〜-]|부터)\s?\d{1,4}\s?번(?:까지)?(?:의)?"
    r"|\d{1,4}(?:\s?[,·&]\s?\d{1,4}){1,5}\s?번(?:\s?[째쨰])?"
    r"|\d{1,4}\s?번(?:\s?[째쨰])?)"
    rf"|[{CIRCLED}](?:\s?번(?:\s?째)?)?|\[\d{{1,3}}\](?:\s?번)?"
    rf"|(?<![가-힣])(?:{COUNTING})\s?번\s?[째쨰재]|(?<![가-힣])(?:첫|둘|셋|넷|다섯|여섯)\s?째"
)
_SPELLED = (
    rf"(?<![가-힣])(?:이\s번|(?!이번)(?:{SINO})\s?번)(?!\s?째)|(?:[Nn]o\.?\s?|"
    rf"\#\s?)\d{{1,3}}(?:\s?번)?"
)
_END = r"(?<![가-힣])(?:(?:맨|제일|가장)\s?)?(?:마지막|끝)(?:\s?번째)?(?:에\s?(?:나온|있는))?"
_HEAD = r"(?<![가-힣])(?:(?:맨|제일|가장)\s?(?:처음|위|앞|첫\s?번째)|첫)(?:의|에\s?(?:나온|있는))?"

_ITEM = re.compile(
    rf"(?:(?P<ordinal>{_ORDINAL})|(?P<spelled>{_SPELLED})|(?P<end>{_END})|(?P<head>{_HEAD}))"
    rf"(?:(?:\s?의)?(?:(?:로|에)\s(?:{SHOWN_BY}|있는))?\s?(?:(?P<noun>{NOUN}){AFTER_NOUN}|"
    rf"(?P<kind>{KIND}){AFTER_NOUN}|"
    rf"(?P<form>{FORM})(?={PARTICLE}?{WORD_ENDS})))?",
)
_NUMBERED = re.compile(
    rf"(?<![가-힣])(?P<noun>문서|출처|소스|자료|파일|document|doc|source|file|pdf)\s?"
    rf"(?:\#|No\.?\s?)?(?P<ordinal>\d{{1,3}}\s?번|\d{{1,3}}|[{CIRCLED}]|\[\d{{1,3}}\])"
    rf"(?={PARTICLE}?(?:[^\w가-힣]|$))",
    re.IGNORECASE,
)
_SEVERAL = re.compile(
    rf"(?<![가-힣])(?P<side>(?:맨\s?)?(?:앞|처음|첫|상위|마지막|끝|뒤))(?:의|에|쪽|에\s?있는)?\s?"
    rf"(?P<count>두|세|네|[2-5])\s?(?:개(?:의)?|건(?:의)?|번)?\s?"
    rf"(?P<noun>{NOUN}){AFTER_NOUN}"
)
_JOIN = re.compile(
    r"\s?(?:들)?(?:과|와|이랑|랑|하고|및|그리고|,|/|·|&|더하기)?\s?(?:그리고|및|또)?\s?(?:저\s)?"
)
_BACK = re.compile(
    rf"(?<![가-힣])(?:(?:{TIME})(?:의|에서|에)?|(?:네가|니가|너가|당신이|누라가)|"
    rf"마지막\s?(?=답변|대답))"
    rf"(?:\s?(?:네가|니가|너가|당신이|누라가))?(?:\s?{SHOWN_BY})?(?:\s?{ANSWERED})?"
    r"(?:\s?(?:것|거|문서|출처|자료)?(?:들)?\s?(?:중에서|중에|중))?(?:\s?(?:그|저))?\s?$|"
    r"(?<![가-힣])(?:그|저|해당|이|참고|근거|출처)\s$"
    rf"|(?<![가-힣])(?:답변|대답|(?:출처|문서|검색)?\s?(?:목록|결과))(?:의|에서|"
    rf"에)(?:\s?{SHOWN_BY})?\s?$"
    r"|(?<![가-힣])(?:(?:두|세|네|다섯)\s|\d{1,2}\s?)(?:개(?:의)?\s?)?(?:문서|출처|"
    r"자료)(?:들)?\s?(?:중에서|중에|중)\s?$"
)
_ANSWER = re.compile(
    rf"(?<![가-힣])(?:(?P<number>(?:{COUNTING})\s?번\s?째|\d{{1,3}}\s?번\s?째|첫|처음|맨\s?처음)\s?"
    rf"(?:답변|대답|답|질문)|(?P<before>지지난|전전|그\s?전(?:\s?전)?|그\s?이전|"
    rf"두\s?번\s?전)\s?(?:답변|대답|질문))"
    rf"(?:의|에서|에)?(?:\s?{SHOWN_BY})?(?:\s?중(?:에서|에)?)?\s?$"
)
_SESSION = re.compile(
    r"(?:(?:이번|이|우리)\s?)?(?:(?:세션|대화|채팅)\s?(?:전체|통틀어|내내|전부)|(?:전체|"
    r"모든)\s?(?:세션|대화|채팅)|"
    r"(?:전체|세션|대화)\s?기준|전체(?=에서\s|\s중|\s문서\s중)|(?:이|우리|이번)\s?(?:대화|세션|"
    r"채팅)(?=에서)|(?:지금|여태|이제)까지(?:의)?(?:\s?(?:대화|"
    r"세션|답변))?|"
    rf"처음부터\s?(?:지금까지|세어|세서|따져))(?:를|"
    rf"을)?(?:\s?통틀어)?(?:\s?기준)?(?:\s?{SHOWN_BY})?"
    rf"(?:\s?(?:모든\s?)?(?:문서|자료|출처)(?:들)?)?(?:에서|으로|의|에)?(?:\s?{SHOWN_BY})?"
    r"(?:\s?(?:것|거|문서|자료)?\s?(?:중에서|중에|중))?(?:으로)?,?"
)
_OTHER = re.compile(
    rf"\W*(?:{_ORDINAL})(?:\s?(?:문서|출처|거|것))?(?:이|가)?\s?(?:말고|대신|아니라|"
    rf"아니고)\s?,?\s?$"
)
"""What "1번 말고 2번" does not mean."""
_OTHERS = re.compile(r"나머지")
_LEAD = re.compile(
    r"\W*(?:(?:그럼|그러면|그렇다면|그리고|근데|그런데|그래서|아니|아|네|예|응|음|또|이제|혹시|"
    r"다시|저기|저|그|좋아|좋아요|오케이|"
    r"ok|그래|참|잠깐만?|이번엔|이번에는)\W+){0,4}\W*",
    re.IGNORECASE,
)
_COMPARED = re.compile(r"\s(?P<word>[가-힣]+).{1,40}?(?:비교|차이|다른\s?점|공통점|달라|다르)")
_TAIL = re.compile(
    r"(?:"
    r"(?:이요|요|입니다|이에요|예요|번이요|이야|인가요?)?\W*$"
    r"|(?:에서는|에서도|에서만|에서|에선|에는|에도|에|엔)(?=\W)(?!\s?(?:걸쳐|걸친|나누|나눠|한하|"
    r"한해|그치|불과|이르|달하))"
    r"|(?:은|는|도)(?:요)?(?=\W)"
    rf"|(?:을|를|만|이|가|의)?\s?(?:{ASKS})"
    r")"
)
_TIMES = re.compile(
    r"(?:은|는|도)\s(?:위반|신청|연장|가능|해야|하여야|받아야|내야|반복|실시|제출|기회|출석|갱신|"
    r"허용|쉬|넘|초과|"
    rf"할\s수|봐)|\s?(?:더|다시|모두|함께|같이|각각)\s(?!.{{0,4}}(?:{WISH}))"
    r"|.{0,14}(?:해야|하여야|(?<!참고)(?<!참조)하면|되면|할\s?경우|할\s?수\s|했는|했을|받으면|씩)"
)
"""What is done several times: "3번은 신청해야", "2번 더 신청하면"."""


def find(text: str) -> Mention | None:
    """The reference in Korean words; None where there is none."""
    session = _SESSION.search(text)
    found = [_mention(text, group, session) for group in _groups(text)]
    numbered = [one for one in found if one is not None]
    sure = [one for one in numbered if one.noun or one.kind]
    return joined(sure) or joined(numbered[:1]) or references_ko_that.find(text)


def _groups(text: str) -> list[list[re.Match[str]]]:
    """The places named, those together that are joined: "1번과 3번 문서"."""
    groups: list[list[re.Match[str]]] = []
    end = -1
    for item in first((_SEVERAL, _NUMBERED, _ITEM), text):
        if item.start() < end:
            continue
        if groups and _joins(text[end : item.start()], groups[-1][-1], item):
            groups[-1].append(item)
        else:
            groups.append([item])
        end = item.end()
    return groups


def _joins(between: str, left: re.Match[str], right: re.Match[str]) -> bool:
    """Whether two places are named together; a mere blank joins "1번 3번 문서" and no more."""
    if between.strip():
        return bool(_JOIN.fullmatch(between))
    return not _said(left)["noun"] and bool(_said(right)["noun"])


def _mention(
    text: str, group: list[re.Match[str]], counted: re.Match[str] | None
) -> Mention | None:
    said = [_said(item) for item in group]
    start, end = group[0].start(), group[-1].end()
    noun = bool(said[-1]["noun"])
    if (
        not noun
        and (said[-1]["end"] or said[-1]["head"])
        and not (said[-1]["form"] or said[-1]["kind"])
    ):
        return None
    before = text[max(0, start - 60) : start]
    if NOT_THESE.match(text, end):
        return _all_but(text, group, noun=noun)
    if OF_THE_USER.search(before) or ((noun or said[-1]["form"]) and HANDED_IN.match(text, end)):
        return None
    answer, back = _ANSWER.search(before), _BACK.search(before)
    session = counted.span() if counted and not counted.start() <= start < counted.end() else None
    pointed = bool(session or answer or back)
    if not noun and not _stands_alone(
        text, (start, end), said[-1], pointed=pointed, many=len(group) > 1
    ):
        return None
    offset = start - len(before)
    spans: list[Span] = [(start, cut(text, end))]
    spans += [session] if session else []
    if other := _OTHER.search(before):
        spans.append((offset + other.start(), start))
    spans += [(offset + found.start(), start) for found in (answer, back) if found]
    return Mention(
        spans=tuple(spans),
        places=tuple(place for item in group for place in _places(item)),
        noun=noun,
        back=back is not None,
        session=session is not None,
        answer=_answer(answer),
        kind=said[-1]["kind"] or "",
    )


def _said(item: re.Match[str]) -> dict[str, str | None]:
    """The parts of an item, those missing that its pattern does not know."""
    return {"noun": None, "kind": None, "form": None, "end": None, "head": None, **item.groupdict()}


def _places(item: re.Match[str]) -> tuple[int, ...]:
    said = {"end": None, "head": None, "spelled": None, "side": None, **item.groupdict()}
    if said["side"]:
        count = _count(str(said["count"]))
        last = any(word in str(said["side"]) for word in ("마지막", "끝", "뒤"))
        return tuple(range(-count, 0)) if last else tuple(range(1, count + 1))
    if said["end"]:
        return (-1,)
    if said["head"]:
        return (1,)
    number = str(said["spelled"] or said["ordinal"])
    return places(re.sub(r"\s?번.*|\s?[째쨰]$", "", number) if not number[0].isdigit() else number)


def _count(word: str) -> int:
    return int(word) if word.isdigit() else spelled(word)


def _answer(found: re.Match[str] | None) -> int | None:
    if found is None:
        return None
    if found["before"]:
        return -2
    number = found["number"].replace("맨", "").strip()
    return 1 if number in {"첫", "처음"} else places(re.sub(r"\s?번.*", "", number))[0]


def _all_but(text: str, group: list[re.Match[str]], *, noun: bool) -> Mention | None:
    """Every document but these, for "1번 말고 나머지"; other wishes nobody can tell."""
    rest = _OTHERS.search(text, group[-1].end())
    if rest is None:
        return None
    numbers = tuple(place for item in group for place in _places(item))
    span = (group[0].start(), cut(text, rest.end()))
    return Mention((span,), numbers, noun=noun, back=True, others=True)


def _stands_alone(
    text: str, span: Span, last: dict[str, str | None], *, pointed: bool, many: bool
) -> bool:
    """Whether a number without a noun can be meant for a document."""
    start, end = span
    before = text[max(0, start - 60) : start]
    if not pointed and not _LEAD.fullmatch(text, 0, start) and not _OTHER.search(before):
        return False
    if last.get("spelled") and not many:
        return False
    if last["kind"] or last["form"]:
        return True
    if not (pointed or many) and _TIMES.match(text, end):
        return False
    return bool(_TAIL.match(text, end)) or (many and _compares(text, end))


def _compares(text: str, end: int) -> bool:
    """Whether two numbers are compared in something that is not numbered itself."""
    found = _COMPARED.match(text, end)
    return bool(found and not found["word"].startswith(tuple(words("numbered.ko"))))
