"""What a question wants, by its words: a value of a kind, a definition, a whole list."""

import functools
import re
from dataclasses import dataclass

from rag import particles, tokenize
from rag.generation.brief import Brief
from rag.words import phrases

CARRIED = 0.35
"""What the terms count together that a follow-up carries over, beside its own."""
_COUNTED = re.compile(
    r"몇\s?(명|개|건|년|달|일|시|분|회|번|쪽|대|곳|호|살|세|주|층|장|권|퍼센트|%|원|가지|점|배)"
)
_MONEY = re.compile(r"얼마(?!나)|금액|예산|비용|가격|요금|how much|\bprice\b|\bcost", re.IGNORECASE)
_MANY = re.compile(
    r"얼마나|몇|한도|상한|how (?:many|long|often|far|old|tall|large|big|high)", re.IGNORECASE
)
_TIME = re.compile(
    r"언제|며칠|기한|기간|날짜|일정|마감|연도|시기|\bwhen\b|what (?:year|date|day|month)|deadline",
    re.IGNORECASE,
)
_FIGURE = re.compile(
    r"(?<![제\d,.])\d[\d,.]*(?![\d,.]*\s?(?:조|항|호)(?!\s?\d*\s?원))|"
    r"(?:[한두세네]|다섯|여섯|일곱|여덟|아홉|열)\s?(?:명|개|번|차례|가지|달|해)|"
    r"\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|hundred|thousand|"
    r"million|billion|dozen|half|third|quarter)s?\b",
    re.IGNORECASE,
)
_SUM = re.compile(
    r"\d[\d,.]*\s?(?:[십백천만억조]+\s?)*(?:원|달러|엔|유로|위안|%|퍼센트)|[$€£¥₩]\s?\d|"
    r"\d[\d,.]*\s?(?:hundred|thousand|million|billion|trillion|percent|dollars|euros|pounds)",
    re.IGNORECASE,
)
_WHEN = re.compile(
    r"\d\s?(?:년|월|일|시|분|세기|주|개월|년대)|\b1\d{3}\b|\b20\d\d\b|\b\d{1,2}[./-]\d{1,2}\b|"
    r"\b(?:January|February|March|April|May|June|July|August|September|October|November|December|"
    r"century|days?|weeks?|months?|years?|hours?|minutes?)\b|지체\s?없이|즉시|당일"
)
_WHO = re.compile(r"^\W*(?:who|whom|whose)\b|\bwho\b", re.IGNORECASE)
_NAME = re.compile(
    r"(?<!^)(?<![.!?] )\b[A-Z][a-z]+(?:\s(?:[A-Z]\.\s)?(?:(?:of|the|de|van)\s)?[A-Z])"
)
_DEFINED = re.compile(
    r"^\W*(?P<ko>.{1,60}?)(?:(?:이)?란|(?:이)?라는?\s?(?:것은|말은|게|건))\s*(?:무엇|뭐|뭔|무슨)?\S*\W*$|"
    r"^\W*(?P<is>.{1,60}?)(?:은|는|이|가)?\s(?:무엇(?:인가|입니까|을 말)|"
    r"뭐(?:야|예요|죠|지|에요|임)|뭔가요|무슨\s?(?:뜻|말|의미)|어떤\s?(?:뜻|의미))\S*\W*$|"
    r"^\W*(?P<noun>.{1,60}?)(?:의)?\s?(?:정의|뜻|의미|개념)(?:는|은|를|을|가|이)?"
    r"(?:\s\S{1,8}){0,2}\W*$|"
    r"^\W*(?:what(?:'s| is| are)|define|what does) (?P<en>(?:an? |the )?.{1,60}?)(?: mean)?\W*$",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"^(?:an?|the)\s+", re.IGNORECASE)
_LETTERS = re.compile(r"[^\w]+")


@dataclass(frozen=True, slots=True)
class Wants:
    """A question as it is looked for.

    `terms` with their weights; `value` is what an answer must hold; `defined` the letters of a
    word whose meaning is asked for; `list`: several items answer it; `whole`: none may lack.
    """

    terms: dict[str, float]
    value: re.Pattern[str] | None = None
    defined: str = ""
    list: bool = False
    whole: bool = False

    def holds_value(self, text: str) -> bool:
        """Whether a text holds a value of the kind that is asked for."""
        return self.value is not None and bool(self.value.search(text))


def read(brief: Brief) -> Wants:
    """What the question of a brief wants."""
    asked = brief.question
    whole = _says(asked, "list_whole")
    return Wants(
        terms=_terms(brief),
        value=_value(asked),
        defined=_defined(asked),
        list=whole or _says(asked, "list_asked"),
        whole=whole,
    )


def letters(text: str) -> str:
    """Letters and digits alone, small."""
    return _LETTERS.sub("", text).casefold()


def _says(text: str, name: str) -> bool:
    return bool(_phrases(name).search(text))


@functools.cache
def _phrases(name: str) -> re.Pattern[str]:
    """Korean words may have others around them, English ones stand alone."""
    found = [rf"\b{one}\b" if one.isascii() else re.escape(one) for one in phrases(name)]
    return re.compile("|".join(found), re.IGNORECASE)


def _value(asked: str) -> re.Pattern[str] | None:
    if found := _COUNTED.search(asked):
        return re.compile(rf"(?<![제\d])[\d,.]*\d\s?(?:여\s?)?{re.escape(found[1])}")
    kinds = ((_TIME, _WHEN), (_MONEY, _SUM), (_MANY, _FIGURE), (_WHO, _NAME))
    return next((value for asks, value in kinds if asks.search(asked)), None)


def _defined(asked: str) -> str:
    found = _DEFINED.match(asked)
    if not found:
        return ""
    said = next(filter(None, found.groups()))
    return letters(particles.strip(_ARTICLE.sub("", said)))


def _terms(brief: Brief) -> dict[str, float]:
    """The terms that are asked for: the question's own, and less those that it carries over."""
    own = [t for t, weight in tokenize.query_terms(brief.question).items() if weight >= 1]
    asked = tokenize.query_terms(brief.standalone)
    carried = [t for t, weight in asked.items() if weight >= 1 and t not in own]
    share = min(1.0, len(own) / max(1, len(carried))) * CARRIED if own else 1.0
    return dict.fromkeys(carried, share) | dict.fromkeys(own, 1.0)
