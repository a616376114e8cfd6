"""Whether a message looks for information or just talks: by its form, not by its subject."""

import re

from rag import surface, tokenize

_QUESTION_WORD = re.compile(
    r"무엇|무슨|뭐|뭔|누구|누가|언제|어디|어느|어떤|어떻게|얼마|몇|왜|\b(?:what|which|who|whom|whose|when|where|why|how)\b",
    re.IGNORECASE,
)
_REQUEST = re.compile(
    r"알려|설명|찾아|요약|정리|비교|보여|가르쳐|말해\s?줘|적으시오|쓰시오|번역|"
    r"\b(?:tell|show|explain|describe|list|find|summar\w+|compare|give|define)\b",
    re.IGNORECASE,
)
_FORMAL_END = re.compile(
    r"(?:는가|은가|인가|던가|나요|가요|까요|습니까|입니까|됩니까|합니까|인지|는지)\W*$"
)
_SELF = re.compile(
    r"(?<![가-힣])(?:나|내|난|날|내가|나는|나를|나한테|나의|저는|제가|너|너는|네가|니가|넌|널|우리)(?![가-힣])"
)
_NOUN_END = frozenset(("NNG", "NNP", "NNB", "NR", "SN", "SL", "XSN", "JX", "JKS"))


def seeks(text: str) -> bool:
    """True for the form of a look-up.

    A question word, a request, a formal question, or a bare subject. Without Korean the form tells
    too little, and every message may be a look-up.
    """
    if not surface.HANGUL.search(text):
        return True
    if _QUESTION_WORD.search(text) or _REQUEST.search(text) or _FORMAL_END.search(text):
        return True
    return _ends_with_subject(text)


def talks_of_self(text: str) -> bool:
    """True when the speakers themselves are the subject, as in chatting."""
    return bool(_SELF.search(text))


def _ends_with_subject(text: str) -> bool:
    """True for "숙박비 상한은?", which ends with its subject, and not for "결혼했어"."""
    found = tokenize.morphemes_of(text)
    spoken = [
        item for item in found or () if not item.tag.startswith("S") or item.tag in ("SN", "SL")
    ]
    return bool(spoken) and spoken[-1].tag in _NOUN_END
