"""Numbers of paragraphs: formats such as "제^1장" or "^1.^2)", counted level by level."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from documents.parsers.hangul.blocks import Head, HeadKind

FORMATS = (
    "DIGIT", "CIRCLED_DIGIT", "ROMAN_CAPITAL", "ROMAN_SMALL", "LATIN_CAPITAL", "LATIN_SMALL",
    "CIRCLED_LATIN_CAPITAL", "CIRCLED_LATIN_SMALL", "HANGUL_SYLLABLE", "CIRCLED_HANGUL_SYLLABLE",
    "HANGUL_JAMO", "CIRCLED_HANGUL_JAMO", "HANGUL_PHONETIC", "IDEOGRAPH", "CIRCLED_IDEOGRAPH",
)  # fmt: skip
"""Names of OWPML in the order of the codes of HWP 5."""
BULLET = "-"
_PLACE = re.compile(r"\^(\d+|n|N)")
_SYLLABLES = "가나다라마바사아자차카타파하"
_JAMO = "ㄱㄴㄷㄹㅁㅂㅅㅇㅈㅊㅋㅌㅍㅎ"
_LATIN = "abcdefghijklmnopqrstuvwxyz"
_LETTERS = {
    "LATIN_CAPITAL": _LATIN.upper(),
    "LATIN_SMALL": _LATIN,
    "HANGUL_SYLLABLE": _SYLLABLES,
    "HANGUL_JAMO": _JAMO,
}
_WORDS = {
    "HANGUL_PHONETIC": ("일이삼사오육칠팔구", "십", "백"),
    "IDEOGRAPH": ("一二三四五六七八九", "十", "百"),
}
_ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"),
    (50, "l"), (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip
_LARGEST = 100_000
"""Above it a number is written in digits: hostile files count from anywhere."""


@dataclass(frozen=True, slots=True)
class Level:
    """How one level is numbered; `text` holds `^1` for the number of level 1 and so on."""

    text: str
    format: str = "DIGIT"
    start: int = 1


class Numberer:
    """Counts the numbered paragraphs of a document, in order."""

    def __init__(self, numberings: Mapping[int, Sequence[Level]]) -> None:
        self._numberings = numberings
        self._counts: dict[tuple[HeadKind, int], dict[int, int]] = defaultdict(dict)

    def mark(self, head: Head) -> str:
        """What stands before the paragraph; it counts. Empty for a level without a number."""
        if head.kind is HeadKind.BULLET:
            return BULLET
        levels = self._numberings.get(head.list_id, ())
        if head.level >= len(levels):
            return ""
        counts = self._counts[head.kind, head.list_id]
        for deeper in [level for level in counts if level > head.level]:
            del counts[deeper]
        counts[head.level] = counts.get(head.level, levels[head.level].start - 1) + 1
        return _PLACE.sub(
            lambda place: _number(place[1], head.level, levels, counts), levels[head.level].text
        )


def _number(place: str, own: int, levels: Sequence[Level], counts: Mapping[int, int]) -> str:
    """One number of a mark; `^n` and `^N` stand for all levels down to this one."""
    if not place.isdigit():
        numbers = (_shown(level, levels, counts) for level in range(own + 1))
        return ".".join(numbers) + ("." if place == "N" else "")
    return _shown(int(place) - 1, levels, counts)


def _shown(level: int, levels: Sequence[Level], counts: Mapping[int, int]) -> str:
    if not 0 <= level < len(levels):
        return ""
    return number(counts.get(level, levels[level].start), levels[level].format)


def number(value: int, style: str) -> str:
    """A number as Hangul writes it in one of `FORMATS`; unknown ones as digits."""
    if not 0 < value < _LARGEST:
        return str(value)
    circled = style.startswith("CIRCLED_")
    plain = _plain(value, style.removeprefix("CIRCLED_"))
    return _circled(value, plain) if circled else plain


def _plain(value: int, style: str) -> str:
    if style in _LETTERS:
        return _of(_LETTERS[style], value)
    if style in _WORDS:
        return _counted(value, *_WORDS[style])
    if style == "ROMAN_CAPITAL":
        return _roman(value).upper()
    return _roman(value) if style == "ROMAN_SMALL" else str(value)


def _of(letters: str, value: int) -> str:
    """The letter of that number; behind the last one they begin anew."""
    return letters[(value - 1) % len(letters)]


def _roman(value: int) -> str:
    result = ""
    for worth, letters in _ROMAN:
        count, value = divmod(value, worth)
        result += letters * count
    return result


def _counted(value: int, digits: str, ten: str, hundred: str) -> str:
    """Numbers below 1,000 in words; larger ones in digits."""
    if value >= 1000:
        return str(value)
    result = ""
    for worth, word in ((100, hundred), (10, ten)):
        count, value = divmod(value, worth)
        if count:
            result += (digits[count - 1] if count > 1 else "") + word
    return result + (digits[value - 1] if value else "")


def _circled(value: int, plain: str) -> str:
    """The character in a circle where Unicode has one, else in brackets."""
    if plain.isdigit() and value <= 20:
        return chr(0x2460 + value - 1)
    if plain in _SYLLABLES:
        return chr(0x326E + _SYLLABLES.index(plain))
    if plain in _JAMO:
        return chr(0x3260 + _JAMO.index(plain))
    if plain in _LATIN:
        return chr(0x24D0 + _LATIN.index(plain))
    if plain in _LATIN.upper():
        return chr(0x24B6 + _LATIN.upper().index(plain))
    return f"({plain})"
