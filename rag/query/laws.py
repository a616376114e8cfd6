"""Names of laws, rules and orders as they stand in a sentence, known or not."""

import re

from rag.words import words

_LAW = re.compile(
    r"(?:[가-힣ㆍ·]{1,30}(?:법률|법|령|규정|규칙|조례|훈령|예규|고시|지침|요령|협정|헌법))"
    r"(?:\s?시행(?:령|규칙))?(?=$|[^가-힣]|(?:에서|에는|에선|으로|의|은|는|이|가|을|를|상|도|에|과|와|로|만|제)(?![가-힣])|제\s?\d)"
)
_QUOTED = re.compile(r"[「『《〈\"“'‘]([^」』》〉\"”'’\n]{2,80})[」』》〉\"”'’]")
_NO_NAME = words("no_law_names.ko")


def named(text: str) -> set[str]:
    """The names in a text, without spaces: "공탁법", "소음ㆍ진동관리법시행령"."""
    found = {_bare(match[0]) for match in _LAW.finditer(text)}
    found |= {_bare(match[1]) for match in _QUOTED.finditer(text)}
    return {name for name in found if name not in _NO_NAME and not name.endswith("방법")}


def _bare(name: str) -> str:
    return re.sub(r"[\sㆍ·]+", "", name)
