"""True sentences made wrong by rule: a figure, a date, a name, a denial, a limit."""

import random
import re

Rewrite = str | None
"""None: the rule does not fit the sentence."""

_FIGURE = re.compile(
    r"(?<![\d.,\w])\d{1,3}(?:,\d{3})+(?![\d.,])|(?<![\d.,A-Za-z-])\d{1,6}(?:\.\d)?(?![\d.,]*\d)"
)
_DATE = re.compile(
    r"(?<!\d)(?P<year>1\d{3}|20\d\d)(?=년| |\.|,)|(?<!\d)(?P<month>\d{1,2})(?=월)"
    r"|(?<=월 )(?P<day>\d{1,2})(?=일)"
    r"|\b(?P<name>January|February|March|April|June|July|August|September|October|November|"
    r"December)\b"
)
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_DENY_KO = (
    (r"할 수 있다\.$", "할 수 없다."),
    (r"([가-힣]) 수 있다\.$", r"\1 수 없다."),
    (r"수 없다\.$", "수 있다."),
    (r"하여야 한다\.$", "하지 아니하여도 된다."),
    (r"해야 한다\.$", "하지 않아도 된다."),
    (r"지 아니한다\.$", None),
    (r"지 않는다\.$", None),
    (r"한다\.$", "하지 않는다."),
    (r"된다\.$", "되지 않는다."),
    (r"하였다\.$", "하지 않았다."),
    (r"했다\.$", "하지 않았다."),
    (r"되었다\.$", "되지 않았다."),
    (r"됐다\.$", "되지 않았다."),
    (r"있었다\.$", "없었다."),
    (r"있다\.$", "없다."),
    (r"없다\.$", "있다."),
    (r"입니다\.$", "이 아닙니다."),
    (r"합니다\.$", "하지 않습니다."),
    (r"됩니다\.$", "되지 않습니다."),
    (r"있습니다\.$", "없습니다."),
    (r"이다\.$", "이 아니다."),
    (r"이었다\.$", "이 아니었다."),
)
_AUXILIARY = re.compile(
    r"\b(is|are|was|were|can|could|will|would|should|must|may|has|had|did|does|do)\b(?! not|n't)"
)
_DENIED_EN = re.compile(
    r"\b(is|are|was|were|can|could|will|would|should|must|may|has|had|did|does|do) not\b"
)
_LIMITS = (
    *(("이상", "이하"), ("이하", "이상"), ("초과", "미만"), ("미만", "초과"), ("이내", "이후")),
    *(("이전", "이후"), ("이후", "이전")),
)
_TURNS = (
    *((rf"(?<=\d{unit} ){old}", new) for unit in "명일년원회점세" for old, new in _LIMITS),
    *(("증가", "감소"), ("감소", "증가"), ("허용", "금지"), ("금지", "허용"), ("모든", "일부")),
    *(("최대", "최소"), ("가능", "불가능"), ("높은", "낮은"), ("많은", "적은"), ("상승", "하락")),
    *(("찬성", "반대"), ("승리", "패배"), ("제외", "포함"), ("유효", "무효"), ("공개", "비공개")),
)
_TURNS_EN = (
    *(("more than", "less than"), ("at least", "at most"), ("increased", "decreased")),
    *(("increase", "decrease"), ("all", "some"), ("largest", "smallest"), ("highest", "lowest")),
    *(("before", "after"), ("after", "before"), ("always", "never"), ("higher", "lower")),
    *(("first", "last"), ("won", "lost"), ("lost", "won"), ("most", "least"), ("north", "south")),
    *(("allowed", "prohibited"), ("required", "optional"), ("legal", "illegal"), ("must", "may")),
)


def number(text: str, passage: str, chance: random.Random) -> Rewrite:
    """One figure as another, which stands nowhere in the passage."""
    found = [match for match in _FIGURE.finditer(text) if not _is_date(text, match)]
    if not found:
        return None
    match = chance.choice(found)
    value = float(match[0].replace(",", ""))
    for _ in range(20):
        other = _other(value, chance)
        told = (
            f"{other:,.1f}"
            if "." in match[0]
            else f"{int(other):,}"
            if "," in match[0]
            else f"{int(other)}"
        )
        if told != match[0] and told.replace(",", "") not in passage.replace(",", ""):
            return text[: match.start()] + told + text[match.end() :]
    return None


def swapped_number(text: str, passage: str, chance: random.Random) -> Rewrite:
    """One figure as another of the same passage and with the same word behind it."""
    for match in chance.sample(found := list(_FIGURE.finditer(text)), len(found)):
        unit = re.match(r"\s?([가-힣%]|[a-z]{3,})", text[match.end() :])
        if _is_date(text, match) or not unit:
            continue
        alike = re.finditer(f"({_FIGURE.pattern}){re.escape(unit[0])}", passage)
        others = {other[1] for other in alike if other[1] not in text}
        if others:
            return text[: match.start()] + chance.choice(sorted(others)) + text[match.end() :]
    return None


def date(text: str, passage: str, chance: random.Random) -> Rewrite:
    """A year, month or day as another, which the passage does not hold."""
    found = list(_DATE.finditer(text))
    if not found:
        return None
    match = chance.choice(found)
    for _ in range(20):
        if match["year"]:
            other = str(int(match[0]) + chance.choice((-13, -7, -2, -1, 1, 2, 4, 11)))
        elif match["name"]:
            other = chance.choice(_MONTHS)
        else:
            other = str(chance.randint(1, 12 if match["month"] else 28))
        if other != match[0] and not re.search(rf"(?<!\d){other}(?!\d)", passage):
            return text[: match.start()] + other + text[match.end() :]
    return None


def denied(text: str, language: str, _: random.Random) -> Rewrite:
    """What is said, denied; what is denied, said."""
    if language == "en":
        if match := _DENIED_EN.search(text):
            return text[: match.start()] + match[1] + text[match.end() :]
        found = list(_AUXILIARY.finditer(text))
        return text[: found[0].end()] + " not" + text[found[0].end() :] if found else None
    for pattern, replacement in _DENY_KO:
        if re.search(pattern, text):
            return re.sub(pattern, replacement, text) if replacement else None
    return None


def turned(text: str, language: str, chance: random.Random) -> Rewrite:
    """A limit, direction or quantity as its opposite."""
    pairs = [
        (old, new)
        for old, new in (_TURNS if language == "ko" else _TURNS_EN)
        if re.search(rf"\b{old}\b" if language == "en" else old, text)
    ]
    if not pairs or "불가능" in text:
        return None
    old, new = chance.choice(pairs)
    return re.sub(rf"\b{old}\b" if language == "en" else old, new, text, count=1)


def _is_date(text: str, match: re.Match[str]) -> bool:
    behind = text[match.end() : match.end() + 2].strip()
    year = len(match[0]) == 4 and match[0][:2] in ("15", "16", "17", "18", "19", "20")
    return (
        behind[:1] in ("년", "월")
        or year
        or (behind[:1] == "일" and "월" in text[max(0, match.start() - 3) : match.start()])
    )


def _other(value: float, chance: random.Random) -> float:
    if value < 10:
        return value + chance.choice((1, 2, 3, 5))
    return round(value * chance.choice((0.5, 0.8, 1.1, 1.3, 2, 3)))
