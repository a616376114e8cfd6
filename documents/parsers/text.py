"""Plain text as Koreans save it: UTF-8, UTF-16 with a mark, CP949, then a guess."""

import codecs
from collections.abc import Iterator
from pathlib import Path

from documents.parsers import kinds
from documents.parsers.base import Context
from documents.parsers.clean import clean
from documents.parsers.errors import EncodingUnknown, TooLarge
from rag.pages import Page

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16: its mark begins the same
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_BUDGET = 0.002
"""Share of characters that may be lost before an encoding counts as wrong."""


class TextParser:
    """Reads .txt: the whole file is one page."""

    types = (kinds.TEXT,)

    def parse(self, path: Path, context: Context) -> Iterator[Page]:
        """The text, cleaned."""
        yield Page(None, clean(load(path, context)).strip("\n"))


def load(path: Path, context: Context) -> str:
    """The decoded file."""
    data = path.read_bytes()
    if len(data) > context.limits.characters * 4:
        raise TooLarge(limit=context.limits.characters)
    text, whole = decode(data)
    if not whole:
        context.warn("characters_replaced")
    return text


def decode(data: bytes) -> tuple[str, bool]:
    """Text of the bytes, and whether nothing was lost."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            text = data[len(mark) :].decode(encoding, "replace")
            return text, "\ufffd" not in text
    for encoding in ("utf-8", "cp949"):
        text = data.decode(encoding, "replace")
        lost = text.count("\ufffd") - (0 if encoding == "cp949" else data.count(b"\xef\xbf\xbd"))
        plausible = encoding == "utf-8" or _korean(text)
        if plausible and lost <= max(2, len(text) * _BUDGET):
            return text, lost == 0
    return _line_by_line(data) or _guessed(data)


def _korean(text: str) -> bool:
    """Whether what is not ASCII is mostly Hangul: any bytes decode to something in CP949."""
    foreign = [character for character in text if ord(character) > 127]
    hangul = sum("가" <= character <= "힣" for character in foreign)
    return hangul * 2 >= len(foreign)


def _line_by_line(data: bytes) -> tuple[str, bool] | None:
    """Files glued together from two encodings, line by line; None if a line is in neither."""
    lines = []
    for line in data.split(b"\n"):
        for encoding in ("utf-8", "cp949"):
            try:
                text = line.decode(encoding)
            except UnicodeDecodeError:
                continue
            if encoding == "utf-8" or _korean(text):
                lines.append(text)
                break
        else:
            return None
    return "\n".join(lines), True


def _guessed(data: bytes) -> tuple[str, bool]:
    """What the detector makes of it."""
    from charset_normalizer import from_bytes

    best = from_bytes(data[:200_000]).best()
    if best is None:
        raise EncodingUnknown
    text = data.decode(best.encoding, "replace")
    if text.count("\ufffd") > max(2, len(text) * _BUDGET) or text.count("\x00") > len(text) // 10:
        raise EncodingUnknown
    return text, "\ufffd" not in text
