"""What stands on pages beside their text: headers, numbers of pages, notes of amendments."""

import re
from collections.abc import Iterable

LONGEST = 100
"""Characters of a line that may be a header or a footer."""
_DIGITS = re.compile(r"\d+")
_NOTHING = re.compile(
    r"[\W_]*(?:(?:page|p\.?|쪽|페이지)?\W*\d{1,4}(?:\W*(?:/|of|쪽|페이지|-)\W*\d{0,4})?)?[\W_]*"
    r"|.*(?:\.{5,}|…{2,}|·{4,})\s*\d*"
    r"|(?:<[^<>]*>|\[(?:전문|본조|제목|종전|시행|중)[^\[\]]*\])\s*\.?",
    re.IGNORECASE,
)
"""Numbers of pages, rules, lines of a table of contents, and what a law says of its own changes."""


def is_nothing(text: str) -> bool:
    """Whether a text holds nothing to quote, whatever the document."""
    return bool(_NOTHING.fullmatch(text))


def repeated(texts: Iterable[tuple[int, int | None, str]]) -> set[tuple[int, str]]:
    """Of short texts with slot and page, those that stand on several pages, apart from figures.

    As slot and `shape`.
    """
    pages: dict[tuple[int, str], set[int]] = {}
    for slot, page, text in texts:
        if page is not None and len(text) <= LONGEST:
            pages.setdefault((slot, shape(text)), set()).add(page)
    return {key for key, found in pages.items() if len(found) > 1}


def shape(text: str) -> str:
    """A text without its figures: "Page 3" and "Page 4" are alike."""
    return _DIGITS.sub("#", text)
