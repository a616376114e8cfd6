"""How like a text is to the one that is expected: 1 - edit distance / length, on normalised text.

Both sides lose what is writing and not text: Markdown marks, rules of tables, entities, comments,
the targets of links and pictures, and all differences of white space.
"""

import html
import re
import unicodedata
from collections import Counter

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_PICTURE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_TAG = re.compile(r"</?(?:br|sup|sub|u|b|i|strong|em|code|pre)\s*/?>", re.IGNORECASE)
_RULE = re.compile(
    r"^[ \t]*\|?[ \t]*:?-{2,}:?[ \t]*(?:\|[ \t]*:?-{2,}:?[ \t]*)*\|?[ \t]*$", re.MULTILINE
)
_MARK = re.compile(r"^[ \t]*(?:#{1,6}|>|[-*+])[ \t]+", re.MULTILINE)
_TOKEN = re.compile(r"\w+")


def normalised(text: str) -> str:
    """The words of a text, with one space between them."""
    text = html.unescape(unicodedata.normalize("NFKC", text))
    for pattern in (_COMMENT, _PICTURE, _RULE, _TAG):
        text = pattern.sub(" ", text)
    text = _MARK.sub("", _LINK.sub(r"\1", text))
    text = re.sub(r"\\(?=[^\w\s])|[*`|~]|__", " ", text)
    return " ".join(text.split())


def likeness(text: str, expected: str) -> float:
    """1 - Levenshtein distance over the length of the longer of both normalised texts."""
    from rapidfuzz.distance import Levenshtein

    return float(Levenshtein.normalized_similarity(normalised(text), normalised(expected)))


def token_f1(text: str, expected: str) -> float:
    """F1 of the bags of words of both."""
    ours, theirs = (Counter(_TOKEN.findall(normalised(one))) for one in (text, expected))
    shared = (ours & theirs).total()
    if not shared:
        return float(ours == theirs)
    return 2 * shared / (ours.total() + theirs.total())
