"""What is wanted of a document that a question refers to: itself, a part of it, or an answer."""

import re

from rag.query.references_numbers import CARDINALS, COUNTING, ORDINALS, spelled

_SHOW = (
    r"(?:보여|열어|펼쳐|띄워|읽어|출력해|공개해|표시해)(?:\s?(?:줘요?|주세요|주십시오|주실래요|"
    r"주시겠어요|줄래요?|줄\s?수\s?(?:있어요?|있나요|있니)|"
    r"달라|봐요?|라|다오))?|보고\s?싶(?:어요?|습니다|은데요?)|볼래요?|볼\s?수\s?(?:있어요?|"
    r"있나요|있을까요)|보자|부탁(?:해요?|드려요|드립니다|합니다)|"
    r"줘요?|주세요|보기|열기|열람|출력"
)
_ALL = r"전체|전문|원문|원본|본문|통째로|전부|모두|다|처음부터(?:\s?끝까지)?|그대로|풀텍스트"
_FILLER = (
    r"혹시|그럼|그러면|이제|일단|우선|아|네|좀|한번|한\s?번|다시|바로|먼저|그냥|내용|문서|텍스트|"
    r"글|현재|최신|지금|새|버전|"
    r"의|을|를|은|으로|로|이|도|만|요"
)
_KO_SHOWN = re.compile(rf"(?:(?:{_SHOW}|{_ALL}|{_FILLER})[\s,.!?~]*){{1,10}}")
_KO_SHOW = re.compile(rf"(?:{_SHOW})[\s.!?~]*$")
_KO_ALL = re.compile(r"전체|전문|원문|원본|통째|처음부터\s?끝까지|풀텍스트")
_DOCUMENT = re.compile(r"문서|파일|\b(?:document|doc|file)\b", re.IGNORECASE)
_NOT_AN_ANSWER = re.compile(r"^(?:요약|설명|정리)(?:은|이)?\s?(?:말고|아니라|아니고)\s*")
_KO_TELL = re.compile(
    r"(?:전체|전문|원문)(?:\s?(?:내용|텍스트))?(?:을|를)?\s?(?:좀\s?)?알려\s?(?:줘요?|주세요)\W*"
)
_PRESENT = re.compile(
    r"(?:현재|최신|지금|새|새로운)\s?(?:의\s?)?(?:버전|판|문서|내용|원문)|\b(?:present|current|latest|newest|new)\s+(?:version|text|one)\b",
    re.IGNORECASE,
)
_KO_PART = re.compile(
    rf"(?:(?P<number>\d{{1,4}})\s?(?:번\s?째\s?)?|(?P<word>{COUNTING})\s?번\s?째\s?|"
    rf"(?P<edge>마지막|끝|첫|처음|맨\s?앞)\s?(?:번\s?째\s?)?)"
    r"(?:쪽|페이지|부분|파트|장)(?:을|를|만|부터|으로)?"
    rf"|(?P<of>\d{{1,4}})\s?/\s?\d{{1,4}}"
)
_EN_PART = re.compile(
    rf"(?:the\s+)?(?:(?:part|page)\s+(?:\#\s?)?(?P<number>\d{{1,4}})|(?:part|"
    rf"page)\s+(?P<word>{CARDINALS})\b"
    rf"|(?P<edge>{ORDINALS}|last|final)\s+(?:part|page))(?:\s+of)?",
    re.IGNORECASE,
)
_EN_SHOWN = re.compile(
    r"(?:(?:please|can|could|would|you|i|want|would like|i'd like|to|just|now|show|open|display|"
    r"print|"
    r"give|read|see|view|me|us|"
    r"the|a|an|in|of|whole|entire|full|complete|original|all|everything|text|document|file|"
    r"content|contents|out|again|version|"
    r"present|current|latest|let)\b[\s,.!?']*){1,14}",
    re.IGNORECASE,
)
_EN_SHOW = re.compile(r"\b(?:show|open|display|print|read|view|see|give)\b", re.IGNORECASE)
_EN_ALL = re.compile(
    r"\b(?:whole|entire|full|complete|original|in full|all of)\b"
    r"(?!\s+(?:conversation|session|chat))",
    re.IGNORECASE,
)
_NEXT = re.compile(
    r"(?:(?:그|이)?\s?(?:다음|뒷|뒤)(?:\s?(?:부분|쪽|페이지|파트|내용|거|것|장))?(?:은|을|를|으로|"
    r"도)?(?:요)?|계속(?:해서)?|이어서|더|"
    r"next(?:\s+(?:part|page|one))?|continue(?:\s+reading)?|go\s+on|more|keep\s+going)"
    rf"(?:\s?(?:계속|이어서|더|좀))?(?:\s?(?:{_SHOW}|요|해\s?줘요?|해\s?주세요|please))?\W*",
    re.IGNORECASE,
)
_BACK = re.compile(
    r"(?:(?:그|이)?\s?(?:이전|앞|앞의|전)(?:\s?(?:부분|쪽|페이지|파트|내용))?(?:은|을|를|으로|"
    r"도)?(?:요)?|뒤로|"
    r"(?:the\s+)?(?:previous|prev)(?:\s+(?:part|page|one))?|(?:go\s+)?back)"
    rf"(?:\s?(?:다시|좀))?(?:\s?(?:{_SHOW}|요|가\s?줘요?|please))?\W*",
    re.IGNORECASE,
)
_AGAIN = re.compile(
    rf"(?:처음|맨\s?처음|맨\s?앞)(?:부터|으로)?(?:\s?다시)?(?:\s?(?:{_SHOW}|가\s?줘요?))?\W*"
)
_WISHES = re.compile(
    rf"(?:(?:{_SHOW}|{_ALL}|{_FILLER}|요약|정리|설명|자세히|상세히|더|알려|말해|번역|비교|"
    rf"해\s?줘요?|해\s?주세요|줄래요?|이요|입니다|뭐야|뭔가요|"
    r"무엇인가요|무슨\s?내용(?:이야|인가요|이에요)?|show|open|me|the|it|summari[sz]e|explain|"
    r"please|tell|about|more|in|detail|again|display|"
    r"translate|what|is|whole|full|text|can|you|could)[\s,.!?~]*){0,12}",
    re.IGNORECASE,
)
_POLITE = re.compile(r"^(?:(?:please|show|open|go\s+to|me|the|그럼|네|응|아니)\s+)+", re.IGNORECASE)
LAST = 1_000_000
"""A part beyond every end: the last one."""


def shows(rest: str) -> bool:
    """Whether the document itself is asked for; `rest` is the question without the reference."""
    rest = _NOT_AN_ANSWER.sub("", rest.strip())
    if _KO_TELL.fullmatch(rest):
        return True
    if _KO_SHOWN.fullmatch(rest):
        return bool(_KO_SHOW.search(rest) or _KO_ALL.search(rest))
    if _EN_SHOWN.fullmatch(rest):
        return bool(_EN_SHOW.search(rest) or _EN_ALL.search(rest))
    return False


def part(rest: str) -> tuple[int, str] | None:
    """The part asked for, from 1 (`LAST` for the last), and the rest without it."""
    for pattern in (_KO_PART, _EN_PART):
        if found := pattern.search(rest):
            return _number(found), f"{rest[: found.start()]} {rest[found.end() :]}".strip()
    return None


def turned(text: str, at: int) -> int | None:
    """The part that "다음", "back" or "3쪽" turns to from part `at`; else None."""
    text = text.strip()
    if len(text) > 60:
        return None
    bare = _POLITE.sub("", text)
    if _NEXT.fullmatch(bare):
        return at + 1
    if _BACK.fullmatch(bare):
        return max(1, at - 1)
    if _AGAIN.fullmatch(bare):
        return 1
    found = part(bare)
    if found and (not found[1].strip(" .?!요") or shows(found[1])):
        return found[0]
    return None


def speaks_of_whole(text: str) -> bool:
    """Whether a document or its whole text is spoken of at all."""
    return bool(_KO_ALL.search(text) or _EN_ALL.search(text) or _DOCUMENT.search(text))


def only_wishes(rest: str) -> bool:
    """Whether the words say what to do, but nothing to look for."""
    return bool(_WISHES.fullmatch(rest.strip()))


def present(text: str) -> bool:
    """Whether the present version is asked for where another was shown."""
    return bool(_PRESENT.search(text))


def _number(found: re.Match[str]) -> int:
    said = {"of": None, **found.groupdict()}
    if digits := said["number"] or said["of"]:
        return int(digits)
    if word := said["word"]:
        return spelled(word)
    edge = str(said["edge"]).casefold()
    if edge in {"마지막", "끝", "last", "final"}:
        return LAST
    if edge[0].isdigit():
        return int(re.sub(r"\D", "", edge))
    return spelled(edge) if edge.isascii() else 1
