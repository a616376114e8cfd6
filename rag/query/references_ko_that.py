"""That document, in Korean: "아까 그 문서", "위 문서", "그 상표법 문서"."""

import re

from rag.query.references_found import Mention
from rag.query.references_ko_words import (
    AFTER_NOUN,
    ASKS,
    HANDED_IN,
    NOT_THESE,
    NOUN,
    OF_THE_USER,
    SHOWN_BY,
    TIME,
    cut,
)

_READ_THERE = re.compile(rf"에서|\s?(?:을|를|만)?\s?(?:{ASKS})")
_THAT = re.compile(
    rf"(?<![가-힣])(?P<time>(?:{TIME}|네가|니가)(?:의|에서|에)?(?:\s?(?:네가|"
    rf"니가))?(?:\s?{SHOWN_BY})?)?\s?"
    rf"(?P<that>(?<![가-힣])(?:그|이|저|해당|동)(?:\s(?!대신)|(?={NOUN}))|이번\s?)?"
    rf"(?P<named>(?:[^\s.,?!;:]{{1,30}}\s){{0,5}}?)\s?(?P<noun>{NOUN}){AFTER_NOUN}"
)
_JUST_NOW = re.compile(r"아까|방금|바로|조금|좀|네가|니가")
_SAID = {"그", "저"}
"""Words for what was spoken of, and not for what lies before one's eyes."""
_MODIFIER = re.compile(
    rf"(?:(?:네가|니가|내가|우리가)\s?)?(?:{SHOWN_BY}|그|저|바로|같은|참고|첫)?\s?"
)
_ANTECEDENT = re.compile(
    r"[가-힣]*(?:서|증|장|류|료|책|안|록|문|표|파일|첨부)(?:을|를|이|가|은|는|에|의|과|와|도)?\s"
)


def find(text: str) -> Mention | None:
    """The reference by "that" or by when it was; None where there is none."""
    for found in _THAT.finditer(text):
        if not (found["time"] or found["that"]) or NOT_THESE.match(text, found.end()):
            continue
        before = text[: found.start()]
        if HANDED_IN.match(text, found.end()) or _ANTECEDENT.search(before):
            continue
        named = found["named"].strip()
        that, time = (found["that"] or "").strip(), found["time"] or ""
        if OF_THE_USER.search(f"{time} {named} ") or OF_THE_USER.search(before):
            continue
        material = found["noun"].startswith("자료") and not time
        if material and not _READ_THERE.match(text, found.end()):
            continue
        modifier = _MODIFIER.fullmatch(named)
        start = found.start() + len(found[0]) - len(found[0].lstrip())
        return Mention(
            spans=((start, cut(text, found.end())),),
            named="" if modifier else named,
            noun=True,
            back=bool(time) or that in _SAID,
            soft=not (_JUST_NOW.match(time) if modifier is None else time or that in _SAID),
        )
    return None
