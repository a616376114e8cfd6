"""Bytes of text files as Koreans save them: UTF-8, UTF-16, CP949, then a guess."""

import codecs

from documents.parsers.errors import EncodingUnknown

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16: its mark begins the same
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_LOST = "\ufffd"
_BUDGET = 0.002
"""Share of characters that may be lost before an encoding counts as wrong."""
_SEEN = 8_192
"""Bytes that are looked at for UTF-16 without a mark."""
_LIKELY = 0.7
"""Share of ASCII, Hangul and punctuation in what is UTF-16; bytes read wrongly are Hanja."""


def decode(data: bytes) -> tuple[str, int]:
    """Text of the bytes, and how many characters of it were lost. Raises EncodingUnknown."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return _replaced(data[len(mark) :], encoding)
    if encoding := utf16(data):
        return _replaced(data, encoding)
    text, lost = _replaced(data, "utf-8")
    lost -= data.count(_LOST.encode())
    if _within_budget(lost, text):
        return text, lost
    text, lost = _replaced(data, "cp949")
    if _korean(text) and _within_budget(lost, text):
        return text, lost
    return _line_by_line(data) or _guessed(data)


def is_marked(data: bytes) -> bool:
    """Whether the bytes begin with the mark of an encoding, or are UTF-16 without one."""
    return any(data.startswith(mark) for mark, _ in _MARKS) or bool(utf16(data))


def utf16(data: bytes) -> str:
    """The byte order of UTF-16 without a mark; "" for anything else.

    Spaces, line ends and digits of such a text have a NUL byte, which no other text has.
    """
    seen = data[: _SEEN - _SEEN % 2]
    if b"\x00" not in seen or len(data) % 2:
        return ""
    for encoding in ("utf-16-le", "utf-16-be"):
        text = seen.decode(encoding, "replace")
        if _LOST not in text[:-1] and sum(map(_usual, text)) >= _LIKELY * len(text):
            return encoding
    return ""


def _replaced(data: bytes, encoding: str) -> tuple[str, int]:
    text = data.decode(encoding, "replace")
    return text, text.count(_LOST)


def _within_budget(lost: int, text: str) -> bool:
    return lost <= max(2, len(text) * _BUDGET)


def _usual(character: str) -> bool:
    """Whether it is a character of most Korean texts."""
    return (
        character in "\t\n\r"
        or " " <= character <= "~"
        or "가" <= character <= "힣"
        or "\u2000" <= character <= "\u33ff"
    )


def _korean(text: str) -> bool:
    """Whether what is not ASCII is mostly Hangul: any bytes decode to something in CP949."""
    foreign = [character for character in text if ord(character) > 127]
    hangul = sum("가" <= character <= "힣" for character in foreign)
    return hangul * 2 >= len(foreign)


def _line_by_line(data: bytes) -> tuple[str, int] | None:
    """Files glued together from two encodings, line by line; None if a line is in neither."""
    lines = []
    for line in data.split(b"\n"):
        for encoding in ("utf-8", "cp949"):
            text, lost = _replaced(line, encoding)
            if not lost and (encoding == "utf-8" or _korean(text)):
                lines.append(text)
                break
        else:
            return None
    return "\n".join(lines), 0


def _guessed(data: bytes) -> tuple[str, int]:
    """What the detector makes of it."""
    from charset_normalizer import from_bytes

    best = from_bytes(data[:200_000]).best()
    if best is None:
        raise EncodingUnknown
    text, lost = _replaced(data, best.encoding)
    if not _within_budget(lost, text) or text.count("\x00") > len(text) // 10:
        raise EncodingUnknown
    return text, lost
