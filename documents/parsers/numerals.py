"""Numbers as word processors write them before paragraphs (ECMA-376, ST_NumberFormat)."""

_ROMAN = (
    *((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L")),
    *((40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")),
)
_LARGEST_ROMAN = 3999
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MOST_LETTERS = 10
_ROWS: dict[str, str | tuple[str, ...]] = {
    "ganada": "가나다라마바사아자차카타파하",
    "chosung": "ㄱㄴㄷㄹㅁㅂㅅㅇㅈㅊㅋㅌㅍㅎ",
    "koreanLegal": ("하나", "둘", "셋", "넷", "다섯", "여섯", "일곱", "여덟", "아홉", "열"),
    "decimalEnclosedCircle": "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳",
    "decimalEnclosedParen": "⑴⑵⑶⑷⑸⑹⑺⑻⑼⑽⑾⑿⒀⒁⒂⒃⒄⒅⒆⒇",
    "ideographTraditional": "甲乙丙丁戊己庚辛壬癸",
}
"""Forms that have a sign for each number, and none for those beyond."""
_DIGITS = {
    "koreanDigital": "영일이삼사오육칠팔구",
    "koreanDigital2": "零一二三四五六七八九",
    "ideographDigital": "〇一二三四五六七八九",
}
_COUNTED = {
    "koreanCounting": ("일이삼사오육칠팔구", "십"),
    "chineseCounting": ("一二三四五六七八九", "十"),
    "chineseCountingThousand": ("一二三四五六七八九", "十"),
    "taiwaneseCounting": ("一二三四五六七八九", "十"),
}


def written(number: int, form: str) -> str:
    """The number in a form; in Arabic digits where the form is unknown or does not reach."""
    if form == "none":
        return ""
    text = _lettered(number, form) if number > 0 else ""
    return text or (f"{number:02}" if form == "decimalZero" else str(number))


def _lettered(number: int, form: str) -> str:
    """The number in signs other than Arabic digits; "" where there are none."""
    text = ""
    if form in _ROWS and number <= len(_ROWS[form]):
        text = _ROWS[form][number - 1]
    elif form in _DIGITS:
        text = "".join(_DIGITS[form][int(digit)] for digit in str(number))
    elif form in _COUNTED and number < 100:
        text = _counted(number, *_COUNTED[form])
    elif form.endswith("Roman") and number <= _LARGEST_ROMAN:
        text = _roman(number)
    elif form.endswith("Letter") and number <= len(_LETTERS) * _MOST_LETTERS:
        turns, at = divmod(number - 1, len(_LETTERS))
        text = _LETTERS[at] * (turns + 1)
    return text.lower() if form.startswith("lower") else text


def _counted(number: int, digits: str, ten: str) -> str:
    """Numbers below a hundred as they are spoken: 십일, 二十三."""
    tens, ones = divmod(number, 10)
    head = (digits[tens - 1] if tens > 1 else "") + ten if tens else ""
    return head + (digits[ones - 1] if ones else "")


def _roman(number: int) -> str:
    text = ""
    for value, letters in _ROMAN:
        count, number = divmod(number, value)
        text += letters * count
    return text
