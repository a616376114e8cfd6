"""Numbers as people say the place of something: 2번, 두 번째, 이 번, ②, second, 2nd."""

import re

_COUNTING = {
    "첫": 1,
    "한": 1,
    "두": 2,
    "둘": 2,
    "세": 3,
    "셋": 3,
    "네": 4,
    "넷": 4,
    "다섯": 5,
    "여섯": 6,
    "일곱": 7,
    "여덟": 8,
    "아홉": 9,
    "열": 10,
}
_SINO = {"일": 1, "이": 2, "삼": 3, "사": 4, "오": 5, "육": 6, "칠": 7, "팔": 8, "구": 9, "십": 10}
_ENGLISH = {
    "first": 1,
    "second": 2,
    "third": 3,
    "fourth": 4,
    "fifth": 5,
    "sixth": 6,
    "seventh": 7,
    "eighth": 8,
    "ninth": 9,
    "tenth": 10,
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "last": -1,
    "final": -1,
}
COUNTING = "열\\s?(?:한|두|세|네|다섯)|" + "|".join(_COUNTING)
SINO = "십\\s?[일이삼사오육칠팔구]|[일이삼사오육칠팔구십]"
ORDINALS = (
    "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|\\d{1,3}(?:st|nd|rd|th)"
)
CARDINALS = "one|two|three|four|five|six|seven|eight|nine|ten"
CIRCLED = "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳"

_NUMBER = re.compile(r"\d{1,4}")
_RANGE = re.compile(r"(\d{1,4})\s?(?:[~∼〜-]|번\s?부터|번에서)\s?(\d{1,4})")
_WIDEST = 20
"""Documents that one range may name."""


def places(said: str) -> tuple[int, ...]:
    """The numbers in what was said, in order; 2번 -> 2, 1~3 -> 1, 2, 3. Raises `KeyError`."""
    if found := _RANGE.search(said):
        first, last = int(found[1]), int(found[2])
        if first <= last < first + _WIDEST:
            return tuple(range(first, last + 1))
    if digits := _NUMBER.findall(said):
        return tuple(int(number) for number in digits)
    if circled := [CIRCLED.index(mark) + 1 for mark in said if mark in CIRCLED]:
        return tuple(circled)
    return (spelled(said),)


def spelled(word: str) -> int:
    """The number that a word spells: 세, 열두, 삼, 십이, third, last (-1). Raises `KeyError`."""
    word = "".join(word.casefold().split())
    if word in _ENGLISH:
        return _ENGLISH[word]
    table = _SINO if word in _SINO or word.startswith("십") else _COUNTING
    if word in table:
        return table[word]
    return 10 + table[word[1:]]
