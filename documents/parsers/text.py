"""Text files, and what every reader does to text: decoded, cleaned, then stored.

Cleaned text is NFC with plain line ends, without NUL, surrogates and what nobody sees. Bytes are
read as Koreans save them: UTF-8, UTF-16, CP949, then a guess.
"""

import codecs
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from documents.parsers.base import EncodingUnknown, ReadingContext, TooLarge
from rag.types import Page

_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_DROPPED = (
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f"  # controls
    "\ud800-\udfff\ufffe\uffff"  # surrogates and non-characters: Postgres refuses them
    "\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"  # width 0, direction
    "\U000e0000-\U000e007f"  # tags: invisible orders to a model
)
_INVISIBLE = re.compile(f"[{_DROPPED}]")
_JOINERS = re.compile(
    "(?<=[0-9A-Za-z\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3\u4e00-\u9fff])[\u200c\u200d]"
)
WINGDINGS_SIGNS = {
    0x6C: "●", 0x6D: "❍", 0x6E: "■", 0x6F: "□", 0x71: "□", 0x75: "◆", 0x76: "❖", 0x77: "◆",
    **dict(zip(range(0x81, 0x8B), "①②③④⑤⑥⑦⑧⑨⑩", strict=True)),
    **dict(zip(range(0x8C, 0x96), "❶❷❸❹❺❻❼❽❾❿", strict=True)),
    0x9F: "•", 0xA7: "▪", 0xA8: "□", 0xB7: "•", 0xD8: "➢", 0xE0: "→", 0xE8: "→", 0xF0: "⇨",
    0xFB: "✗", 0xFC: "✓", 0xFD: "☒", 0xFE: "☑",
}  # fmt: skip
"""Signs that are text, by their place in the font; its other pictures mean nothing elsewhere."""
_PRIVATE_SIGNS = {
    **{0xF000 + place: sign for place, sign in WINGDINGS_SIGNS.items()},
    # Hangul's numbers in a frame: one digit, and the left and right halves of a frame for two
    **{0xF02B1 + number: str(number + 1) for number in range(9)},
    **{0xF02BA + number: str(number + 1) for number in range(9)},
    **{0xF02C3 + number: str(number) for number in range(10)},
}
"""Characters of private areas that Word and Hangul write, for which no other font has a picture."""
_PRIVATE = re.compile("[\uf000-\uf0ff\U000f02b1-\U000f02cc]")
_BLANK_LINES = re.compile(r"\n[ \t\u3000]*\n(?:[ \t\u3000]*\n)+")

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16: its mark begins the same
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LOST = "\ufffd"
_MAX_LOST_SHARE = 0.002
"""Share of characters that may be lost before an encoding counts as wrong."""
_MAX_SEEN_BYTES = 8_192
"""Bytes that are looked at for UTF-16 without a mark."""
_LEAST_LIKELY_SHARE = 0.7
"""Share of ASCII, Hangul and punctuation in what is UTF-16; bytes read wrongly are Hanja."""


class TextParser:
    """Reads .txt."""

    def parse(self, path: Path, context: ReadingContext) -> Iterator[Page]:
        """The text, cleaned."""
        yield Page(
            None, clean_text(decode_file(read_text_file(path, context), context)).strip("\n")
        )


def read_text_file(path: Path, context: ReadingContext) -> bytes:
    """The bytes of a text file. Raises TooLarge above what its text may be."""
    if path.stat().st_size > context.limits.characters * 4:
        raise TooLarge(limit=context.limits.characters)
    return path.read_bytes()


def decode_file(data: bytes, context: ReadingContext) -> str:
    """The text of the bytes, with a warning where some of it was lost."""
    text, lost = decode_text(data)
    if lost:
        context.warn("characters_replaced", lost)
    return text


def clean_text(text: str) -> str:
    """The text as it is stored and searched."""
    text = _LINE_ENDS.sub("\n", text)
    text = _JOINERS.sub("", _INVISIBLE.sub("", text))
    if _PRIVATE.search(text):
        text = text.translate(_PRIVATE_SIGNS)
    return unicodedata.normalize("NFC", text)


def is_kept(character: str) -> bool:
    """Whether `clean_text` would keep this character."""
    return _INVISIBLE.match(character) is None


def is_readable(text: str) -> bool:
    """Whether anything is to be seen."""
    return any(not character.isspace() for character in _JOINERS.sub("", text))


def tidy_text(text: str) -> str:
    """`clean_text`, and never more than one blank line together."""
    return _BLANK_LINES.sub("\n\n", clean_text(text)).strip("\n")


def decode_text(data: bytes) -> tuple[str, int]:
    """Text of the bytes, and how many characters of it were lost. Raises EncodingUnknown."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _decode_replacing(data[len(mark) :], encoding)
    if encoding := detect_utf16(data):
        return _decode_replacing(data, encoding)
    text, lost = _decode_replacing(data, "utf-8")
    lost -= data.count(_LOST.encode())
    if _is_within_budget(lost, text):
        return text, lost
    text, lost = _decode_replacing(data, "cp949")
    if _is_korean(text) and _is_within_budget(lost, text):
        return text, lost
    return _decode_by_line(data) or _decode_guessing(data)


def has_encoding_mark(data: bytes) -> bool:
    """Whether the bytes begin with the mark of an encoding, or are UTF-16 without one."""
    return any(data.startswith(mark) for mark, _ in _MARKS) or bool(detect_utf16(data))


def detect_utf16(data: bytes) -> str:
    """The byte order of UTF-16 without a mark; "" for anything else.

    Spaces, line ends and digits of such a text have a NUL byte, which no other text has.
    """
    seen = data[: _MAX_SEEN_BYTES - _MAX_SEEN_BYTES % 2]
    if b"\x00" not in seen or len(data) % 2:
        return ""
    for encoding in ("utf-16-le", "utf-16-be"):
        text = seen.decode(encoding, "replace")
        if _LOST not in text[:-1] and sum(map(_is_common, text)) >= _LEAST_LIKELY_SHARE * len(text):
            return encoding
    return ""


def _decode_replacing(data: bytes, encoding: str) -> tuple[str, int]:
    text = data.decode(encoding, "replace")
    return text, text.count(_LOST)


def _is_within_budget(lost: int, text: str) -> bool:
    return lost <= max(2, len(text) * _MAX_LOST_SHARE)


def _is_common(character: str) -> bool:
    """Whether it is a character of most Korean texts."""
    return (
        character in "\t\n\r"
        or " " <= character <= "~"
        or "가" <= character <= "힣"
        or "\u2000" <= character <= "\u33ff"
    )


def _is_korean(text: str) -> bool:
    """Whether what is not ASCII is mostly Hangul: any bytes decode to something in CP949."""
    foreign = [character for character in text if ord(character) > 127]
    hangul = sum("가" <= character <= "힣" for character in foreign)
    return hangul * 2 >= len(foreign)


def _decode_by_line(data: bytes) -> tuple[str, int] | None:
    """Files glued together from two encodings, line by line; None if a line is in neither."""
    lines = []
    for line in data.split(b"\n"):
        for encoding in ("utf-8", "cp949"):
            text, lost = _decode_replacing(line, encoding)
            if not lost and (encoding == "utf-8" or _is_korean(text)):
                lines.append(text)
                break
        else:
            return None
    return "\n".join(lines), 0


def _decode_guessing(data: bytes) -> tuple[str, int]:
    """What the detector makes of it."""
    from charset_normalizer import from_bytes

    best = from_bytes(data[:200_000]).best()
    if best is None:
        raise EncodingUnknown
    text, lost = _decode_replacing(data, best.encoding)
    if not _is_within_budget(lost, text) or text.count("\x00") > len(text) // 10:
        raise EncodingUnknown
    return text, lost
