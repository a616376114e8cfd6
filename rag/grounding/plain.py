"""Sentences that claim nothing to bear out: greetings, questions, lead-ins, words of lack."""

import functools
import re

from rag import prompts
from rag.grounding.spans import MARKER, Form, Span
from rag.words import phrases

_QUESTION = re.compile(r"[?？][\"'”’)\]*_\s]*$")
_LEAD_IN = re.compile(
    r"[:：][*_\s]*$|다음과 같(?:습니다|다|아요|음)\W*$|아래와 같(?:습니다|다)\W*$|as follows\W*$"
)
_ASIDE = re.compile(r"_\(.{1,300}\)_$", re.DOTALL)
_LACKS_KO = (
    r"(?:없(?:습니다|다|음|어요|었습니다|었다)|않(?:습니다|는다|다|음|아요|았습니다|았다)|"
    r"못했습니다|못하였습니다|못합니다|어렵습니다|불가능합니다)"
)
_TELLS_KO = (
    r"(?:언급|나와|나오|적혀|기재|명시|포함|찾|확인|설명|정보|내용|알 수|답|다루|담겨|제시|규정)"
)
_LACK_KO = re.compile(
    rf"(?:문서|자료|발췌문?|본문|출처|제공된|주어진)[^.\n]{{0,80}}?{_TELLS_KO}[^.\n]{{0,30}}?{_LACKS_KO}"
)
_LACK_UNCITED_KO = re.compile(
    rf"(?:(?:정보|내용|언급|설명|규정|기재|근거|답변?)[이가은는도을를]?|찾을 수|확인할 수|알 수|"
    rf"확인되지|나와 있지|명시되어 있지|언급되지)[^.\n]{{0,10}}{_LACKS_KO}[.\s]*$"
)
_THE_TEXTS = (
    r"(?:documents?|excerpts?|sources?|passages?|(?:provided|given) (?:text|context|information|"
    r"materials?)|context)"
)
_TELLS_EN = (
    r"(?:mention|contain|say|specify|include|provide|state|give|cover|address|describe|tell|"
    r"discuss|indicate|explain|answer|list)(?:s|ed|ing|es)?"
)
_LACK_EN = re.compile(
    rf"\b{_THE_TEXTS}\b[^.\n]{{0,40}}\b(?:not|don't|doesn't|didn't|nothing|never)\b[^.\n]{{0,20}}"
    rf"\b{_TELLS_EN}\b"
    rf"|\b(?:no (?:information|mention|details|answer)|"
    rf"not (?:{_TELLS_EN}|found|known))\b[^.\n]{{0,60}}"
    rf"\b{_THE_TEXTS}\b"
    rf"|\b(?:could|can|was|am|were) ?(?:not|n't)[^.\n]{{0,20}}"
    rf"\b(?:find|found|determine|tell|answer)\b"
    rf"|\bcan(?:'t|not) (?:find|determine|tell|answer)\b",
    re.IGNORECASE,
)
_SOURCE = re.compile(r"(?:출처|근거|참고|sources?|references?)\s?[:：]", re.IGNORECASE)
_NOTES = ("extractive_note", "notice_widened", "notice_gone")


def claims_nothing(span: Span) -> bool:
    """Whether the sentence by its form or words says nothing that could be checked."""
    text = MARKER.sub("", span.text).strip()
    if span.form in (Form.TITLE, Form.CODE) or _ASIDE.search(text) or text in _notes():
        return True
    if _QUESTION.search(text) or _LEAD_IN.search(text) or _SOURCE.match(text):
        return True
    return _is_courtesy(text) or is_lack(text, cites=bool(span.slots))


def is_lack(text: str, *, cites: bool) -> bool:
    """Whether the sentence says that the documents do not tell something."""
    if _LACK_EN.search(text) or _LACK_KO.search(text):
        return True
    return not cites and bool(_LACK_UNCITED_KO.search(text))


def _is_courtesy(text: str) -> bool:
    small = text.casefold().replace("’", "'")
    return any(phrase in small for phrase in _courtesies())


@functools.cache
def _courtesies() -> tuple[str, ...]:
    return phrases("plain_sentences.ko") + phrases("plain_sentences.en")


@functools.cache
def _notes() -> frozenset[str]:
    """What we say ourselves of how an answer came about."""
    return frozenset(prompts.text(name, tongue) for name in _NOTES for tongue in ("ko", "en"))
