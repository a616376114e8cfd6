"""Text files, and the decoding and cleaning that all parsers share.

Cleaned text is NFC with LF line ends, without NUL, surrogates and invisible characters. Encodings
are tried in this order: the byte order mark, UTF-16, UTF-8, CP949, a mixture by line, a guess.
"""

import codecs
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from documents.parsers.base import EncodingUnknown, ReadingContext, TooLarge
from rag.types import Page

_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_INVISIBLE_RANGES = (
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f"  # controls
    "\ud800-\udfff\ufffe\uffff"  # surrogates and non-characters: Postgres refuses them
    "\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"  # width 0, direction
    "\U000e0000-\U000e007f"  # tags: could hide instructions to a model
)
_INVISIBLE = re.compile(f"[{_INVISIBLE_RANGES}]")
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
"""Wingdings characters that have a Unicode equivalent, by their code in the font."""
_PRIVATE_SIGNS = {
    **{0xF000 + place: sign for place, sign in WINGDINGS_SIGNS.items()},
    # Framed numbers of Hangul: single digits, then left and right halves of two-digit numbers
    **{0xF02B1 + number: str(number + 1) for number in range(9)},
    **{0xF02BA + number: str(number + 1) for number in range(9)},
    **{0xF02C3 + number: str(number) for number in range(10)},
}
"""Private-use characters that Word and Hangul write; no other font can display them."""
_PRIVATE_USE = re.compile("[\uf000-\uf0ff\U000f02b1-\U000f02cc]")
_BLANK_LINES = re.compile(r"\n[ \t\u3000]*\n(?:[ \t\u3000]*\n)+")

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is a prefix of this one
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_REPLACEMENT = "\ufffd"
_MAX_REPLACED_SHARE = 0.002
"""Share of characters that may be undecodable before the encoding counts as wrong."""
_MAX_SAMPLE_BYTES = 8_192
"""Bytes examined to detect UTF-16 without a byte order mark."""
_MIN_COMMON_SHARE = 0.7
"""Least share of ASCII, Hangul and punctuation in UTF-16; other bytes decode to Hanja."""


class TextParser:
    """Reads .txt."""

    def parse(self, path: Path, context: ReadingContext) -> Iterator[Page]:
        """The text, cleaned."""
        yield Page(
            None, clean_text(decode_file(read_text_file(path, context), context)).strip("\n")
        )


def read_text_file(path: Path, context: ReadingContext) -> bytes:
    """The bytes of a text file. Raises TooLarge if its text could exceed the limit."""
    if path.stat().st_size > context.limits.characters * 4:
        raise TooLarge(limit=context.limits.characters)
    return path.read_bytes()


def decode_file(data: bytes, context: ReadingContext) -> str:
    """Decode a file; warns if characters had to be replaced."""
    text, lost_count = decode_text(data)
    if lost_count:
        context.warn("characters_replaced", lost_count)
    return text


def clean_text(text: str) -> str:
    """The text as it is stored and searched."""
    text = _LINE_ENDS.sub("\n", text)
    text = _JOINERS.sub("", _INVISIBLE.sub("", text))
    if _PRIVATE_USE.search(text):
        text = text.translate(_PRIVATE_SIGNS)
    return unicodedata.normalize("NFC", text)


def is_kept(character: str) -> bool:
    """Whether `clean_text` would keep this character."""
    return _INVISIBLE.match(character) is None


def is_readable(text: str) -> bool:
    """Whether the text has any visible character."""
    return any(not character.isspace() for character in _JOINERS.sub("", text))


def tidy_text(text: str) -> str:
    """`clean_text`, with runs of blank lines reduced to one."""
    return _BLANK_LINES.sub("\n\n", clean_text(text)).strip("\n")


def decode_text(data: bytes) -> tuple[str, int]:
    """The decoded text, and how many characters were replaced. Raises EncodingUnknown."""
    for mark, encoding in _BYTE_ORDER_MARKS:
        if data.startswith(mark):
            return _decode_replacing(data[len(mark) :], encoding)
    if encoding := detect_utf16(data):
        return _decode_replacing(data, encoding)
    text, lost_count = _decode_replacing(data, "utf-8")
    lost_count -= data.count(_REPLACEMENT.encode())
    if _is_within_budget(lost_count, text):
        return text, lost_count
    text, lost_count = _decode_replacing(data, "cp949")
    if _is_korean(text) and _is_within_budget(lost_count, text):
        return text, lost_count
    return _decode_by_line(data) or _decode_guessing(data)


def has_encoding_mark(data: bytes) -> bool:
    """Whether the bytes begin with a byte order mark, or are UTF-16 without one."""
    return any(data.startswith(mark) for mark, _ in _BYTE_ORDER_MARKS) or bool(detect_utf16(data))


def detect_utf16(data: bytes) -> str:
    """The codec of UTF-16 without a byte order mark; "" for anything else.

    Its spaces, line ends and digits have a NUL byte, which text in other encodings never has.
    """
    sample = data[: _MAX_SAMPLE_BYTES - _MAX_SAMPLE_BYTES % 2]
    if b"\x00" not in sample or len(data) % 2:
        return ""
    for encoding in ("utf-16-le", "utf-16-be"):
        text = sample.decode(encoding, "replace")
        if _REPLACEMENT not in text[:-1] and sum(map(_is_common, text)) >= _MIN_COMMON_SHARE * len(
            text
        ):
            return encoding
    return ""


def _decode_replacing(data: bytes, encoding: str) -> tuple[str, int]:
    text = data.decode(encoding, "replace")
    return text, text.count(_REPLACEMENT)


def _is_within_budget(lost_count: int, text: str) -> bool:
    return lost_count <= max(2, len(text) * _MAX_REPLACED_SHARE)


def _is_common(character: str) -> bool:
    """Whether a character is common in Korean texts."""
    return (
        character in "\t\n\r"
        or " " <= character <= "~"
        or "가" <= character <= "힣"
        or "\u2000" <= character <= "\u33ff"
    )


def _is_korean(text: str) -> bool:
    """Whether non-ASCII characters are mostly Hangul: CP949 decodes nearly any bytes."""
    non_ascii = [character for character in text if ord(character) > 127]
    hangul = sum("가" <= character <= "힣" for character in non_ascii)
    return hangul * 2 >= len(non_ascii)


def _decode_by_line(data: bytes) -> tuple[str, int] | None:
    """Decode a mixture of UTF-8 and CP949 line by line; None if a line is in neither."""
    lines = []
    for line in data.split(b"\n"):
        for encoding in ("utf-8", "cp949"):
            text, lost_count = _decode_replacing(line, encoding)
            if not lost_count and (encoding == "utf-8" or _is_korean(text)):
                lines.append(text)
                break
        else:
            return None
    return "\n".join(lines), 0


def _decode_guessing(data: bytes) -> tuple[str, int]:
    """Decode with the encoding that charset_normalizer guesses. Raises EncodingUnknown."""
    from charset_normalizer import from_bytes

    guess = from_bytes(data[:200_000]).best()
    if guess is None:
        raise EncodingUnknown
    text, lost_count = _decode_replacing(data, guess.encoding)
    if not _is_within_budget(lost_count, text) or text.count("\x00") > len(text) // 10:
        raise EncodingUnknown
    return text, lost_count
