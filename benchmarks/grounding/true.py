"""True sentences said in other words, by rule: endings, particles, clauses, figures, order."""

import random
import re

Rewrite = str | None
"""None: the rule does not fit the sentence."""

_FINALS, _NIEUN, _BIEUP, _SSANG_SIOT = 28, 4, 17, 20
_ENDED = re.compile(r"([가-힣])다\.?$")
_WORDS_KO = (
    *(("하여야", "해야"), ("에 대하여", "에 대해"), ("에 의하여", "에 의해"), ("하여", "해")),
    *(("또한 ", ""), ("그러나 ", ""), ("그리고 ", ""), (" 및 ", ", "), ("되었다", "됐다")),
    *(("에서는 ", "에서 "), ("으로써", "으로"), ("이러한 ", "이런 "), ("때문에", "까닭에")),
    *(("경우에는", "경우"), ("에게는", "에게"), ("하지만 ", ""), ("따라 ", "따라서 ")),
)
_WORDS_EN = (
    *(("However, ", ""), ("Also, ", ""), ("In addition, ", ""), ("Therefore, ", "")),
    *((" approximately ", " about "), (" such as ", " like "), (" in order to ", " to ")),
    *(
        (" began ", " started "),
        (" also ", " "),
        (" is not ", " isn't "),
        (" as well as ", " and "),
    ),
    *(
        (" because ", " since "),
        (" although ", " though "),
        (" which ", " that "),
        (" many ", " a lot of "),
    ),
)
_BRACKETS = re.compile(r"\s?\([^()]*\)")
_CLAUSE = re.compile(r"^[^,]{4,60},\s+(?=\S.{25})")
_LEADING = re.compile(r"^((?:In|On|At|During|After|Before|By|For) [^,]{3,50}), (.{20,})\.$")
_DATE_KO = re.compile(r"(\d{4})년 (\d{1,2})월 (\d{1,2})일")
_COMMA = re.compile(r"(?<=\d),(?=\d{3})")
_PLAIN = re.compile(r"(?<![\d.,])(\d{4,9})(?=\s?(?:명|원|개|people|dollars))")
_MONTHS = "January February March April May June July August September October November December"
_DATE_EN = re.compile(rf"({'|'.join(_MONTHS.split())}) (\d{{1,2}}), (\d{{4}})")
_COUNTS = {"two": "2", "three": "3", "four": "4", "five": "5", "ten": "10", "두 ": "2", "세 ": "3"}


def reworded(text: str, language: str, _: random.Random) -> Rewrite:
    """Another register and other small words."""
    new = text
    for old, other in _WORDS_KO if language == "ko" else _WORDS_EN:
        new = new.replace(old, other)
    new = polite(new) if language == "ko" else new[:1].upper() + new[1:]
    return new if new != text else None


def shortened(text: str, language: str, _: random.Random) -> Rewrite:
    """Without brackets and without what stands before the first comma."""
    bare = _BRACKETS.sub("", text)
    new = _CLAUSE.sub("", bare)
    if language == "en":
        new = new[:1].upper() + new[1:]
    return new if new != text and len(new) > 20 else None


def reordered(text: str, language: str, _: random.Random) -> Rewrite:
    """What led the sentence at its end; in Korean its first two parts the other way round."""
    if language == "en":
        match = _LEADING.match(text)
        return (
            f"{match[2][:1].upper()}{match[2][1:]} {match[1][:1].lower()}{match[1][1:]}."
            if match
            else None
        )
    words = text.split()
    ends = [
        at for at, word in enumerate(words[:6]) if re.search(r"(?:은|는|에서|에|으로|이|가)$", word)
    ]
    if len(ends) < 2 or len(words) < 6:
        return None
    first, second = ends[0] + 1, ends[1] + 1
    return " ".join([*words[first:second], *words[:first], *words[second:]])


def refigured(text: str, _language: str, _: random.Random) -> Rewrite:
    """Figures and dates in another form."""
    new = _DATE_KO.sub(lambda match: f"{match[1]}. {match[2]}. {match[3]}.", text)
    new = _DATE_EN.sub(lambda match: f"{match[2]} {match[1]} {match[3]}", new)
    new = _COMMA.sub("", new) if _COMMA.search(new) else _PLAIN.sub(_grouped, new)
    new = re.sub(r"(?<![\d,.])(\d{1,2})만 ?(원|명)", r"\g<1>0,000\2", new)
    new = new.replace("퍼센트", "%").replace(" percent", "%")
    for word, digit in _COUNTS.items():
        new = re.sub(
            rf"(?<![가-힣\w]){word}(?=\s?(?:가지|번|명|개|years|people|times|days))", digit, new
        )
    return new if new != text else None


def answered(question: str, answer: str, language: str) -> Rewrite:
    """The question with its answer as one statement."""
    if language == "en":
        match = re.match(r"(Who|What) (was|is|did|are|were) (.{8,})\?$", question)
        return (
            f"{match[3][:1].upper()}{match[3][1:]} {match[2]} {answer}."
            if match and match[2] != "did"
            else None
        )
    match = re.match(
        r"(.{10,}(?:은|는))\s?(?:무엇인가|누구인가|어디인가|언제인가|몇\s?\S+인가|무엇|누구|어디|언제)?\??$",
        question,
    )
    return f"{match[1]} {answer}입니다." if match else None


def polite(text: str) -> str:
    """한다 as 합니다."""
    match = _ENDED.search(text)
    if not match or text.rstrip(".").endswith("니다"):
        return text
    head, last = text[: match.start()], match[1]
    final = (ord(last) - ord("가")) % _FINALS
    if last == "는":
        return f"{head}습니다."
    if final in (0, _NIEUN):
        return f"{head}{chr(ord(last) - final + _BIEUP)}니다."
    return f"{head}{last}습니다."


def _grouped(match: re.Match[str]) -> str:
    return f"{int(match[1]):,}"
