"""Numbers as word processors write them before paragraphs.

`format_number` takes the forms of Word (ECMA-376, ST_NumberFormat), which lists of HTML use, too;
`format_hangul_number` those of Hangul (OWPML, KS X 6101).
"""

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
    text = _letter_number(number, form) if number > 0 else ""
    return text or (f"{number:02}" if form == "decimalZero" else str(number))


def format_hangul_number(number: int, form: str) -> str:
    """A number in one of `HANGUL_FORMS`; in Arabic digits where the form is unknown."""
    if not 0 < number < _MAX_HANGUL:
        return str(number)
    plain = _spell_hangul(number, form.removeprefix("CIRCLED_"))
    return _circle(number, plain) if form.startswith("CIRCLED_") else plain


def _letter_number(number: int, form: str) -> str:
    """The number in signs other than Arabic digits; "" where there are none."""
    text = ""
    if form in _ROWS and number <= len(_ROWS[form]):
        text = _ROWS[form][number - 1]
    elif form in _DIGITS:
        text = "".join(_DIGITS[form][int(digit)] for digit in str(number))
    elif form in _COUNTED and number < 100:
        text = _count_out(number, *_COUNTED[form])
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
        return _count_out(number, *_HANGUL_COUNTED[form])
    if form == "ROMAN_CAPITAL":
        return _to_roman(number)
    return _to_roman(number).lower() if form == "ROMAN_SMALL" else str(number)


def _count_out(number: int, digits: str, ten: str, hundred: str = "") -> str:
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


def _circle(number: int, plain: str) -> str:
    """The character in a circle where Unicode has one, else in brackets."""
    if plain.isdigit() and number <= 20:
        return chr(0x2460 + number - 1)
    for signs, first in _CIRCLED:
        if plain in signs:
            return chr(first + signs.index(plain))
    return f"({plain})"
