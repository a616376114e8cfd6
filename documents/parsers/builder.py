"""Builds the one page of a format without pages: headings and regions at true offsets, numbers.

`format_number` takes the forms of Word (ECMA-376, ST_NumberFormat), which lists of HTML use, too;
`format_hangul_number` those of Hangul (OWPML, KS X 6101).
"""

import re
from collections.abc import Sequence
from textwrap import dedent

from documents.parsers.base import ReadingContext, TooLarge
from documents.parsers.text import clean_text
from rag.types import Heading, Kind, Page, Region

_BACKTICKS = re.compile("`+")
_INDENT = "    "
_DEEPEST_ITEM = 8


class PageBuilder:
    """Blocks go in, in order; `build_page` joins them with a blank line between.

    Items that follow each other are one list. Every method cleans what it is given; what is
    blank adds nothing. All raise TooLarge when the text grows above the limit.
    """

    def __init__(self, context: ReadingContext) -> None:
        self._limit = context.limits.characters
        self._blocks: list[str] = []
        self._headings: list[Heading] = []
        self._regions: list[Region] = []
        self._items: list[str] = []
        self._length = 0
        self._waiting = 0

    @property
    def length(self) -> int:
        """Where the next block will begin; within a list that goes on, somewhere in it."""
        return self._length + self._waiting

    def add_paragraph(self, text: str) -> None:
        """Add a paragraph."""
        self._add_block(clean_text(text).strip())

    def add_heading(self, level: int, title: str) -> None:
        """Add a heading as separate text."""
        title = " ".join(clean_text(title).split())
        if title:
            self.end_list()
            self._headings.append(Heading(self._length, level, title[:200]))
            self._add_block(title)

    def add_list_item(self, text: str, depth: int = 0) -> None:
        """Add an item of a list, with its number or mark; `depth` counts from 0."""
        lines = clean_text(text).strip().split("\n")
        if lines[0]:
            indent = _INDENT * min(depth, _DEEPEST_ITEM)
            self._items.append("\n".join(indent + line.strip() for line in lines if line.strip()))
            self._waiting += len(self._items[-1]) + 1
            self._check_length()

    def end_list(self) -> None:
        """End the list, so that an item that follows begins another."""
        items, self._items, self._waiting = self._items, [], 0
        if items:
            self._add_block(dedent("\n".join(items)), Kind.LIST)

    def add_code(self, text: str) -> None:
        """Add code between fences with its white space unchanged."""
        text = clean_text(text).strip("\n")
        if text.strip():
            longest = max(map(len, _BACKTICKS.findall(text)), default=0)
            fence = "`" * max(3, longest + 1)
            self._add_block(f"{fence}\n{text}\n{fence}", Kind.CODE)

    def add_table(self, rows: Sequence[Sequence[str]], header_rows: int = 1) -> None:
        """Add a table as Markdown; columns and rows without any text are left out.

        Of a cell over several columns or rows, the others are "". One column, or one row, is
        text in a frame and stays text.
        """
        header_rows = sum(map(_has_text, rows[:header_rows]))
        rows = _drop_empty_columns([row for row in rows if _has_text(row)])
        if not rows:
            return
        if len(rows[0]) == 1 or len(rows) == 1:
            for row in rows:
                self.add_paragraph("\n".join(cell for cell in row if cell.strip()))
            return
        lines = [_format_row(row) for row in rows]
        lines.insert(1, "|" + " --- |" * len(rows[0]))
        header = len("\n".join(lines[: header_rows + 1])) if header_rows else 0
        self._add_block("\n".join(lines), Kind.TABLE, header)

    def build_page(self, margins: Sequence[str] = ()) -> Page:
        """All blocks as one page without a number."""
        self.end_list()
        text = "\n\n".join(self._blocks)
        headings, regions = tuple(self._headings), tuple(self._regions)
        return Page(None, text, headings, regions=regions, margins=tuple(margins))

    def _add_block(self, text: str, kind: Kind = Kind.TEXT, header: int = 0) -> None:
        """Add a block as final text; `header` is the length of its header rows."""
        if not text:
            return
        self.end_list()
        start, end = self._length, self._length + len(text)
        if kind is not Kind.TEXT:
            self._regions.append(Region(start, end, kind, start + header if header else 0))
        self._blocks.append(text)
        self._length = end + 2
        self._check_length()

    def _check_length(self) -> None:
        if self._length + self._waiting > self._limit:
            raise TooLarge(limit=self._limit)


def _has_text(row: Sequence[str]) -> bool:
    """Whether any cell contains text."""
    return any(cell.strip() for cell in row)


def _drop_empty_columns(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """The rows at equal width, without columns left empty by merged cells."""
    filled = sorted({at for row in rows for at, cell in enumerate(row) if cell.strip()})
    return [[row[at] if at < len(row) else "" for at in filled] for row in rows]


def _format_row(cells: Sequence[str]) -> str:
    """One line of a Markdown table."""
    texts = (" ".join(clean_text(cell).split()).replace("|", "\\|") for cell in cells)
    return "| " + " | ".join(texts) + " |"


_ROMAN = (
    *((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L")),
    *((40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")),
)
_MAX_ROMAN = 3999
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MAX_LETTERS = 10
_SYLLABLES = "가나다라마바사아자차카타파하"
_JAMO = "ㄱㄴㄷㄹㅁㅂㅅㅇㅈㅊㅋㅌㅍㅎ"
_SPOKEN = "일이삼사오육칠팔구"
_HANJA = "一二三四五六七八九"
_ROWS: dict[str, str | tuple[str, ...]] = {
    "ganada": _SYLLABLES,
    "chosung": _JAMO,
    "koreanLegal": ("하나", "둘", "셋", "넷", "다섯", "여섯", "일곱", "여덟", "아홉", "열"),
    "decimalEnclosedCircle": "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳",
    "decimalEnclosedParen": "⑴⑵⑶⑷⑸⑹⑺⑻⑼⑽⑾⑿⒀⒁⒂⒃⒄⒅⒆⒇",
    "ideographTraditional": "甲乙丙丁戊己庚辛壬癸",
}
"""Forms that have a sign for each number, and none for those beyond."""
_DIGITS = {
    "koreanDigital": f"영{_SPOKEN}",
    "koreanDigital2": f"零{_HANJA}",
    "ideographDigital": f"〇{_HANJA}",
}
_COUNTED = {
    "koreanCounting": (_SPOKEN, "십"),
    "chineseCounting": (_HANJA, "十"),
    "chineseCountingThousand": (_HANJA, "十"),
    "taiwaneseCounting": (_HANJA, "十"),
}

HANGUL_FORMS = (
    "DIGIT", "CIRCLED_DIGIT", "ROMAN_CAPITAL", "ROMAN_SMALL", "LATIN_CAPITAL", "LATIN_SMALL",
    "CIRCLED_LATIN_CAPITAL", "CIRCLED_LATIN_SMALL", "HANGUL_SYLLABLE", "CIRCLED_HANGUL_SYLLABLE",
    "HANGUL_JAMO", "CIRCLED_HANGUL_JAMO", "HANGUL_PHONETIC", "IDEOGRAPH", "CIRCLED_IDEOGRAPH",
)  # fmt: skip
"""Names of OWPML in the order of the codes of HWP 5."""
_HANGUL_LETTERS = {
    "LATIN_CAPITAL": _LETTERS,
    "LATIN_SMALL": _LETTERS.lower(),
    "HANGUL_SYLLABLE": _SYLLABLES,
    "HANGUL_JAMO": _JAMO,
}
_HANGUL_COUNTED = {"HANGUL_PHONETIC": (_SPOKEN, "십", "백"), "IDEOGRAPH": (_HANJA, "十", "百")}
_CIRCLED = ((_SYLLABLES, 0x326E), (_JAMO, 0x3260), (_LETTERS.lower(), 0x24D0), (_LETTERS, 0x24B6))
"""Signs and where their row of signs in circles begins."""
_MAX_HANGUL = 100_000
"""From it on a number is written in digits: hostile files count from anywhere."""


def format_number(number: int, form: str) -> str:
    """The number in a form; in Arabic digits where the form is unknown or does not reach."""
    if form == "none":
        return ""
    text = _format_signs(number, form) if number > 0 else ""
    return text or (f"{number:02}" if form == "decimalZero" else str(number))


def format_hangul_number(number: int, form: str) -> str:
    """A number in one of `HANGUL_FORMS`; in Arabic digits where the form is unknown."""
    if not 0 < number < _MAX_HANGUL:
        return str(number)
    plain = _spell_hangul(number, form.removeprefix("CIRCLED_"))
    return _circle_number(number, plain) if form.startswith("CIRCLED_") else plain


def _format_signs(number: int, form: str) -> str:
    """The number in signs other than Arabic digits; "" where there are none."""
    text = ""
    if form in _ROWS and number <= len(_ROWS[form]):
        text = _ROWS[form][number - 1]
    elif form in _DIGITS:
        text = "".join(_DIGITS[form][int(digit)] for digit in str(number))
    elif form in _COUNTED and number < 100:
        text = _spell_number(number, *_COUNTED[form])
    elif form.endswith("Roman") and number <= _MAX_ROMAN:
        text = _to_roman(number)
    elif form.endswith("Letter") and number <= len(_LETTERS) * _MAX_LETTERS:
        turns, at = divmod(number - 1, len(_LETTERS))
        text = _LETTERS[at] * (turns + 1)
    return text.lower() if form.startswith("lower") else text


def _spell_hangul(number: int, form: str) -> str:
    """The number without a circle; letters begin anew behind the last one."""
    if letters := _HANGUL_LETTERS.get(form):
        return letters[(number - 1) % len(letters)]
    if form in _HANGUL_COUNTED and number < 1000:
        return _spell_number(number, *_HANGUL_COUNTED[form])
    if form == "ROMAN_CAPITAL":
        return _to_roman(number)
    return _to_roman(number).lower() if form == "ROMAN_SMALL" else str(number)


def _spell_number(number: int, digits: str, ten: str, hundred: str = "") -> str:
    """Numbers below a hundred, or a thousand, as they are spoken: 십일, 二十三, 百五."""
    text = ""
    for worth, word in ((100, hundred), (10, ten)):
        count, number = divmod(number, worth)
        if count:
            text += (digits[count - 1] if count > 1 else "") + word
    return text + (digits[number - 1] if number else "")


def _to_roman(number: int) -> str:
    text = ""
    for value, letters in _ROMAN:
        count, number = divmod(number, value)
        text += letters * count
    return text


def _circle_number(number: int, plain: str) -> str:
    """The character in a circle where Unicode has one, else in brackets."""
    if plain.isdigit() and number <= 20:
        return chr(0x2460 + number - 1)
    for signs, first in _CIRCLED:
        if plain in signs:
            return chr(first + signs.index(plain))
    return f"({plain})"
