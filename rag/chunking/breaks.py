"""Where a text may be cut: behind paragraphs, sentences, lines and words."""

import re
import unicodedata
from collections.abc import Iterator

from rag.sentences import ABBREVIATIONS

_SHORTENED = "".join(rf"(?<!\b{re.escape(word)}.)" for word in ABBREVIATIONS)
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*|\n(?=\|)")
SENTENCE = re.compile(
    r"(?:[!?]|\.(?<![0-9].)(?<!\b[a-zA-Z가나다라마바사아자차카타파하].)"  # not behind "1.", "가."
    rf"(?<!제\d[조항호].)(?<!제\d\d[조항호].)(?<!제\d\d\d[조항호].){_SHORTENED})"
    r"(?:[\"'”’」』)\]])*\s+"
    r"|[。！？…](?:[”’」』）])*\s*"
)
LINE = re.compile(r"\n\s*")
SPACE = re.compile(r"\s+")
BREAKS = (_PARAGRAPH, SENTENCE, LINE, SPACE)
"""The strongest first."""


def ends(kind: re.Pattern[str], text: str, lowest: int, highest: int) -> Iterator[int]:
    """Where the words before a break of this kind end, from `lowest` to `highest`.

    The white space behind them may reach further.
    """
    for match in kind.finditer(text, lowest, highest + 1):
        place = match.start() + len(match[0].rstrip())
        if lowest <= place <= highest:
            yield place


def visible(text: str, start: int, end: int) -> int:
    """The first visible character from `start`, or `end`."""
    while start < end and text[start].isspace():
        start += 1
    return start


def whole_before(text: str, place: int, lowest: int) -> int:
    """`place`, moved back so that no mark is cut from its letter; as it is where none lies behind.

    The result is above `lowest`.
    """
    best = place
    while best > lowest and _joined(text, best):
        best -= 1
    return best if best > lowest else place


def whole_behind(text: str, place: int, highest: int) -> int:
    """`place`, moved on for the same reason, up to `highest`."""
    while place < highest and _joined(text, place):
        place += 1
    return place


def _joined(text: str, place: int) -> bool:
    """Whether the character at a place belongs to the one before it."""
    if place >= len(text):
        return False
    letter = text[place]
    return (
        unicodedata.category(letter)[0] == "M"
        or "\u1160" <= letter <= "\u11ff"  # vowels and ends of Korean syllables in parts
        or letter == "\u200d"
        or text[place - 1] == "\u200d"
    )
