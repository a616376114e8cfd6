"""Without a language model: found passages with their decisive sentence, or that nothing was found.

A question is read as words with weights, the kind of value that answers it, and its form
(`rag/lexicon/passages.toml`). A passage answers when it holds enough of the words and, where a
value is asked for, such a value; else the documents do not say.
"""

import functools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, groupby
from typing import Any

from rag import tokenize
from rag.generate import markdown, reading
from rag.generate.reading import Stretch, Unit, UnitKind
from rag.lexicon import load_rules, load_words
from rag.prompts import get_reply
from rag.tokenize.korean import strip_particle
from rag.tokenize.text import to_letters
from rag.types import Evidence, QuestionType

ROOM_CHARACTERS = 640
"""Of an answer, beside the value that stands first."""
MAX_PASSAGES = 3
MIN_ROOM_CHARACTERS = 120
MAX_BLOCK_CHARACTERS = 420
"""Of one passage, unless it is a list or a table."""
MAX_SHOWN_CHARACTERS = 400
MAX_HEADING_CHARACTERS = 80
MAX_VALUE_CHARACTERS = 60
MAX_ROWS, MAX_LISTED_ROWS = 6, 12
MIN_OUTLINED_CHARACTERS, MAX_OUTLINED_CHARACTERS = 12, 160
"""Of a sentence in the outline of a document."""
MIN_FOUND_SHARE = 0.4
"""Share of the question's weight that the document of the decisive unit must hold."""
MIN_SHARE_OF_BEST = 0.7
"""A further passage is shown that scores at least this share of the first one."""
SECTION_SHARE, DOCUMENT_SHARE = 0.5, 0.2
"""What a word counts that only stands near a unit in its section, or in its document."""
TITLE_WEIGHT, NAME_WEIGHT, LOOSE_WEIGHT = 0.2, 2.0, 0.5
"""What words of a document's name weigh; names, for which nothing else may stand; and verbs, words
of one syllable and words for the kind of an answer: documents say them otherwise."""
WITHOUT_VALUE_WORTH, DEFINITION_WORTH, LIST_WORTH = 0.18, 2.2, 1.2
"""What a unit is worth without the value asked for, and with a definition or a list where one is
asked for."""
FIGURES_WORTH = 1.4
"""What a sentence with figures is worth more in an outline."""

_RULES = load_rules("passages")
_EMPTY = frozenset(_RULES["empty"].split()) | load_words("asking.ko") | load_words("empty_verbs.ko")
_EMPTY_STEMS = {
    tokenize.stem_word(word)
    for word in _EMPTY | load_words("stop.en") | load_words("asking.en")
    if word.isascii()
}
_SIDES, _LOOSE = frozenset(_RULES["sides"].split()), frozenset(_RULES["loose"].split())
_PATTERNS = {
    name: re.compile("|".join(found), re.IGNORECASE) for name, found in _RULES["patterns"].items()
}
_COUNTED = re.compile(rf"몇\s?({'|'.join(_RULES['units'].split())})")
_NOUNS = frozenset(("NNG", "NNP", "NR", "XR", "SL", "SN", "XPN"))
_WORD = re.compile(r"[A-Za-z0-9][\w–‑.-]*|[가-힣]+")
_HANGUL, _SHORT = re.compile(r"[가-힣]{3,}"), re.compile(r"[가-힣]{3}")
"""A noun that may be short for a longer one: 지자체."""
_CODE = re.compile(r"(?<![\w-])[A-Za-z]{1,6}-\d[\w-]*(?<=[A-Za-z\d])", re.ASCII)
"""Of a fault, a requirement, a product: the analyser takes its letters and digits apart."""
_PERIODS = (
    (re.compile(r"(?:20)?(\d\d)년"), r"(?:(?:20|['‘’])?{0}(?:년|\.)|20{0})"),
    (re.compile(r"([1-4])분기"), r"{}(?:분기|q|/4)"),
)
"""How tables write a year and a quarter: 24년 2분기 is ‘24.2Q."""
_YEAR = r"(?<![\d.,-])(?:19|20)\d\d"
_YEARS = re.compile(
    rf"({_YEAR})(?:\s?년)?\s?[~∼–-]\s?({_YEAR})(?!\d)|"
    rf"({_YEAR})(?=\s?년|학년도|\s?[./-]\s?\d)|['‘’](\d\d)(?!\d)"
)
_BARE_YEAR = re.compile(rf"{_YEAR}(?![\d,])")
"""In the name of a column or a row."""
_APART = r"(?:(?<!\d)|(?!\d))"
"""Not between two digits."""
_BLANKS = re.compile(r"(?<=[0-9A-Za-z])(\s+)(?=[0-9A-Za-z])|\s+")
_VALUE_ENDING = re.compile(r"(?<=[가-힣\d%])(?:이다|이며|이고|입니다|으로|[을를로의에은는이가])$")
"""What a value does not end with: a copula, a particle."""
_HYPHENS = re.compile("[‐‑‒–−]")
MARKER = re.compile(r"(?<!\\)\[\d{1,4}\]")
"""A marker of ours: brackets of a document are written with a backslash."""
_FIELD = re.compile(r"\w\s?[:：]\s")
"""Where another field of a form begins in a line."""
_PLAIN_FIGURE = re.compile(r"[△▲-]?[\d,.]+")


@dataclass(frozen=True, slots=True)
class PassagesAnswer:
    """`text`: Markdown with a [slot] marker behind each passage shown.

    `spans`: by `Evidence.number` of the passages shown, the offsets in the document of the decisive
    sentences. Without any the documents do not say, and the text says so; it is empty where nothing
    was searched. `cited`: of each marker in order that number, and the place of its sentence there.
    """

    text: str
    spans: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    cited: tuple[tuple[int, int], ...] = ()

    @property
    def found(self) -> bool:
        """Whether the documents say what was asked."""
        return bool(self.spans)


@dataclass(frozen=True, slots=True)
class Value:
    """A kind of value: `asks` tells a question for it, `finds` one in a text.

    `example` is a question and its answer. `figures`: in a table they need no name of a unit.
    """

    name: str
    asks: re.Pattern[str]
    finds: re.Pattern[str]
    example: tuple[str, str]
    figures: bool = False

    def is_in(self, unit: Unit) -> bool:
        """Whether a unit holds one."""
        if unit.kind is not UnitKind.ROW:
            return bool(self.finds.search(unit.text))
        bare = self.figures and any(map(_PLAIN_FIGURE.fullmatch, unit.cells[1:]))
        return bare or any(map(self.finds.search, unit.cells[1:]))


def _to_value(row: Mapping[str, Any]) -> Value:
    patterns = {name: re.compile("|".join(row[name]), re.IGNORECASE) for name in ("asks", "finds")}
    return Value(**{**row, **patterns, "example": tuple(row["example"])})


VALUES = tuple(map(_to_value, _RULES["values"]))
"""In the order in which they are looked for."""


class _Text:
    """A text as words are looked for in it: its letters, and its terms where they are needed."""

    def __init__(self, text: str) -> None:
        self.text, self.key = text, _to_key(text)

    @functools.cached_property
    def terms(self) -> frozenset[str]:
        return frozenset(tokenize.count_terms(self.text))


@dataclass(frozen=True, slots=True)
class QuestionWord:
    """A content word of the question as `said`: its pattern or its term stands in a text.

    `name`: of a person, a body, a product.
    """

    said: str
    pattern: re.Pattern[str] | None
    term: str = ""
    weight: float = 1.0
    name: bool = False

    def is_in(self, text: _Text) -> bool:
        """Whether a text holds it, or what it is short for."""
        if self.pattern and self.pattern.search(text.key):
            return True
        return bool(self.term) and self.term in text.terms

    def is_in_title(self, title: _Text) -> bool:
        """Whether it is of a title, or short for it: 한예종 for 한국예술종합학교."""
        letters = iter(title.key)
        hangul = _HANGUL.fullmatch(self.said) and title.key[:1] == self.said[0]
        return self.is_in(title) or bool(hangul and all(one in letters for one in self.said))


@dataclass(frozen=True, slots=True)
class PassageQuery:
    """What a question asks: its words, and how.

    `value`: the kind of value that answers it, `unit` finds figures of the unit asked for (몇 명).
    `defined`: the letters of a word whose meaning is asked for. `listed`: several items answer it,
    `each`: several values do, one for each thing. `bound`: what follows the value, if it ends or
    begins something ("까지"). `years`: those that it names.
    """

    words: tuple[QuestionWord, ...]
    value: Value | None
    unit: re.Pattern[str] | None
    defined: str
    listed: bool
    each: bool
    bound: str
    years: frozenset[int]


def read_passage_query(question: str, titles: Iterable[str]) -> PassageQuery:
    """Read a question that stands alone; no passage need hold the `titles` that it says in full."""
    text = _HYPHENS.sub("-", tokenize.normalise(question))
    found = _PATTERNS["defined"].match(text)
    noun = next(filter(None, found.groups())).strip() if found else ""
    defined = strip_particle(re.sub(r"^(?:an?|the)\s+", "", noun, flags=re.IGNORECASE))
    value = next((kind for kind in VALUES if kind.asks.search(text)), None)
    counted = _COUNTED.search(text)
    bound = _PATTERNS["bound"].search(text)
    return PassageQuery(
        words=_read_words(_remove_titles(text, titles)) or _read_words(text),
        value=None if defined else value,
        unit=re.compile(rf"\d\s?{counted[1]}") if counted else None,
        defined=to_letters(defined),
        listed=bool(_PATTERNS["listed"].search(text)),
        each=bool(_PATTERNS["each"].search(text)),
        bound=bound[1] if bound else "",
        years=_find_years(text),
    )


def _find_years(text: str) -> frozenset[int]:
    """The years that a text names, with those within a span."""
    found: set[int] = set()
    for first, last, single, short in _YEARS.findall(text):
        if first:
            found.update(range(int(first), int(last) + 1))
        else:
            found.add(int(single) if single else 2000 + int(short))
    return frozenset(found)


def _remove_titles(question: str, titles: Iterable[str]) -> str:
    """The question without titles that stand in it as words of their own, the longest first."""
    for title in sorted(set(titles) - {""}, key=lambda one: (-len(one), one)):
        pattern = rf"(?<!\w){re.escape(title)}(?![A-Za-z\d])[가-힣]*"
        question = re.sub(pattern, functools.partial(_remove_title, title), question)
    return question


def _remove_title(title: str, said: re.Match[str]) -> str:
    """What is left of a word that begins with a title: nothing where a particle follows."""
    return " " if title in {said[0], strip_particle(said[0])} else said[0]


def _read_words(text: str) -> tuple[QuestionWord, ...]:
    """The content words in order, each once; sides of a thing ("예외") where nothing else is."""
    runs = {said: tag for said, tag in _find_words(text) if len(said) > 1 or not said.isascii()}
    telling = [said for said in runs if not _is_empty(said)]
    heavy = [said for said in telling if said not in _SIDES]
    return tuple(_to_word(said, runs[said]) for said in heavy or telling)


def _is_empty(said: str) -> bool:
    small = said.casefold()
    span = _PATTERNS["span"].fullmatch(said)  # 1년에 얼마
    return small in _EMPTY or tokenize.stem_word(small) in _EMPTY_STEMS or span is not None


def _find_words(text: str) -> Iterator[tuple[str, str]]:
    """Nouns written together ("NNG", "NNP" with a name among them), and verbs ("VV")."""
    found = tokenize.analyse_morphemes(text)
    if found is None or not tokenize.HANGUL.search(text):
        yield from ((strip_particle(match[0]), "NNG") for match in _WORD.finditer(text))
        return
    codes = [match.span() for match in _CODE.finditer(text)]
    yield from ((text[slice(*code)], "NNP") for code in codes)
    start, end, tag = 0, -1, ""
    for item in found:
        if any(first <= item.start < last for first, last in codes):
            continue
        glued = item.tag == "MM" and text[item.end : item.end + 1].strip()
        goes_on = item.start == end
        joins = item.tag in _NOUNS or glued or (goes_on and item.tag in {"XSN", "NNB"})
        if end > 0 and not (joins and goes_on):
            yield text[start:end], tag
            end = -1
        if joins:
            start, tag = (start, tag) if end > 0 else (item.start, "NNG")
            end, tag = item.end, "NNP" if item.tag == "NNP" else tag
        elif item.tag in {"VV", "VA"}:
            yield item.form, "VV"
    if end > 0:
        yield text[start:end], tag


def _to_word(said: str, tag: str) -> QuestionWord:
    hangul, figures = bool(tokenize.HANGUL.search(said)), any(map(str.isdigit, said))
    own = {said, strip_particle(said) if len(said) > 3 else said} if hangul or figures else set()
    forms = [re.escape(_to_key(one)) for one in sorted(own) if len(one) > 1]
    forms += [other.format(m[1]) for one, other in _PERIODS if (m := one.fullmatch(said))]
    if tag != "VV" and _SHORT.fullmatch(said):
        forms.append("[가-힣]{0,2}".join(said))
    # "3월" stands not in "13월", "12" not in "120"
    pattern = re.compile(rf"{_APART}(?:{'|'.join(forms)}){_APART}") if forms else None
    if tag == "VV":
        return QuestionWord(said, pattern, said, LOOSE_WEIGHT)
    term = min(tokenize.count_terms(said), default="") if not forms or len(said) == 1 else ""
    # what is of another year is no answer, but much is of none
    loose = said in _LOOSE or (hangul and len(said) == 1) or bool(_find_years(said))
    name = tag == "NNP" or (not hangul and said[0].isupper())
    return QuestionWord(said, pattern, term, LOOSE_WEIGHT if loose else 1.0, name)


def _to_key(text: str) -> str:
    """The letters of a text as they are compared: small, no blanks beside Hangul, one hyphen."""
    folded = _HYPHENS.sub("-", text)
    return _BLANKS.sub(lambda blank: " " if blank[1] else "", folded).casefold()


def compose_passages(  # noqa: PLR0913 - all that decides what is shown, by name
    questions: Sequence[str],
    evidence: Sequence[Evidence],
    *,
    question_type: QuestionType,
    whole: bool,
    named: Sequence[str],
    language: str,
) -> PassagesAnswer:
    """The passages that answer a question that stands alone, best first, or that none does.

    `questions`: the same one in several words, of which the first ones that find something count.
    `evidence` in rank order; where `whole` documents are asked about, in reading order. `named`:
    titles of documents that the question names or the user chose.
    """
    stretches = reading.read_stretches(evidence)
    if not stretches:
        return PassagesAnswer("")
    slots = list(dict.fromkeys(item.slot for item in evidence))
    if whole:
        return _outline_documents(stretches, slots, language)
    titles = [item.passage.title for item in evidence]
    own = [one for one in stretches if one.title in named]

    def compose(question: str) -> PassagesAnswer:
        asked = read_passage_query(question, titles)
        if question_type is QuestionType.COMPARE and len(slots) > 1:
            return _compare_documents(asked, stretches, slots, named, language)
        return _Composer(asked, own or stretches, language).answer(named, ROOM_CHARACTERS)

    first, *others = questions
    lacking = compose(first)
    answers = chain([lacking], map(compose, others))
    return next((one for one in answers if one.found), lacking)


@dataclass(slots=True)
class _AnswerBuilder:
    """An answer as it is written. `shown`: stretch and place of every unit on it."""

    language: str
    parts: list[str] = field(default_factory=list)
    spans: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    shown: set[tuple[int, int]] = field(default_factory=set)
    cited: list[tuple[int, int]] = field(default_factory=list)
    has_more: bool = False

    def add_citation(self, stretch: Stretch, unit: Unit) -> None:
        """Keep the unit as decisive; the markers of all parts since the last one are its own."""
        number = stretch.find_evidence(unit).number
        markers = sum(len(MARKER.findall(part)) for part in self.parts) - len(self.cited)
        self.cited += [(number, len(self.spans.get(number, ())))] * markers
        span = (stretch.base + unit.start, stretch.base + unit.end)
        self.spans[number] = (*self.spans.get(number, ()), span)

    def build_answer(self) -> PassagesAnswer:
        more = [get_reply("passages_more", self.language)] if self.has_more else []
        return PassagesAnswer("\n\n".join([*self.parts, *more]), self.spans, tuple(self.cited))


@dataclass(frozen=True, slots=True)
class _FoundUnit:
    """Unit `at` of stretch `of` with its score, and the words that it and its document hold."""

    of: int
    at: int
    score: float
    held: frozenset[int]


class _Composer:
    """Looks for the answer to one question in some stretches, and shows it on a page."""

    def __init__(self, asked: PassageQuery, stretches: Sequence[Stretch], language: str) -> None:
        texts = [unit.text for stretch in stretches for unit in stretch.units]
        if asked.value and asked.unit and any(map(asked.unit.search, texts)):
            # figures of the unit asked for are there, so others are no value
            asked = replace(asked, value=replace(asked.value, finds=asked.unit, figures=False))
        self.asked, self.stretches, self.builder = asked, stretches, _AnswerBuilder(language)
        self.known: dict[str, frozenset[int]] = {}
        self.own = [
            [self._find_held_words(_get_own_text(unit)) for unit in one.units] for one in stretches
        ]
        self.weights = self._weigh_words()
        self.ranked = self._rank_units()

    def answer(self, named: Sequence[str], room: int) -> PassagesAnswer:
        """The best passages, or that the documents do not say."""
        if not self.ranked or not self._is_answer(self.ranked[0]):
            return PassagesAnswer(self._write_not_found(named))
        builder, best, above = self.builder, self.ranked[0], ""
        for found in self.ranked:
            blocks = len(builder.spans) and sum(map(len, builder.spans.values()))
            if found.score < MIN_SHARE_OF_BEST * best.score or blocks == MAX_PASSAGES:
                break
            if (found.of, found.at) in builder.shown:
                continue
            left = room - sum(len(part) + 2 for part in builder.parts)
            if blocks and left < MIN_ROOM_CHARACTERS:
                builder.has_more = True
                break
            stretch = self.stretches[found.of]
            unit = stretch.units[found.at]
            if not blocks and (value := self._extract_value(unit)):
                builder.parts.append(f"**{markdown.escape_line(value)}** [{stretch.slot}]")
            source = _render_source(stretch, unit, builder.language)
            body = (
                self._render_table(found, left)
                if unit.kind is UnitKind.ROW
                else self._render_block(found, left)
            )
            gap = "\n\n" if body.startswith("|") else "\n"
            builder.parts.append(body if source == above else f"{source}{gap}{body}")
            builder.add_citation(stretch, unit)
            above = source
        return builder.build_answer()

    def _find_held_words(self, *texts: str) -> frozenset[int]:
        """The places of the words that stand in any of these texts."""
        for text in {*texts} - self.known.keys():
            read = _Text(text)
            held = (at for at, word in enumerate(self.asked.words) if word.is_in(read))
            self.known[text] = frozenset(held)
        return frozenset[int]().union(*(self.known[text] for text in texts))

    def _sum_weights(self, places: Iterable[int]) -> float:
        return math.fsum(self.weights[at] for at in places)

    def _weigh_words(self) -> list[float]:
        """What each word weighs: much where few stretches hold it, little of a document's name.

        Loose words that nobody holds weigh no more for that.
        """
        held = [frozenset[int]().union(*own) for own in self.own]
        asked = list(enumerate(self.asked.words))
        names = {stretch.title for stretch in self.stretches}
        names |= {_read_name(unit) for one in self.stretches for unit in one.units}
        titles = [_Text(name) for name in names]
        titled = {at for at, word in asked if any(map(word.is_in_title, titles))}
        tells = any(word.weight == 1 and at not in titled for at, word in asked)
        weights = []
        for at, word in asked:
            holding = sum(at in found for found in held)
            weight = word.weight * (NAME_WEIGHT if word.name else 1.0)
            if holding or word.weight == 1:
                weight *= 1 + math.log((len(held) + 1) / (holding + 1))
            weights.append(weight * (TITLE_WEIGHT if at in titled and tells else 1.0))
        return weights

    def _rank_units(self) -> list[_FoundUnit]:
        """Every unit that may be quoted, best first."""
        documents: dict[int, frozenset[int]] = {}
        for one, own in zip(self.stretches, self.own, strict=True):
            held = self._find_held_words(one.title).union(*own)
            documents[one.slot] = documents.get(one.slot, frozenset()) | held
        found = []
        for of, one in enumerate(self.stretches):
            for at in filter(one.is_quotable, range(len(one.units))):
                unit, held = one.units[at], documents[one.slot]
                told = self.own[of][at] | self._find_held_words(*one.list_texts_above(unit))
                section = told.union(*(self.own[of][place] for place in one.list_neighbours(at)))
                total = self._sum_weights(told) + SECTION_SHARE * self._sum_weights(section - told)
                total += DOCUMENT_SHARE * self._sum_weights(held - section)
                score = round(total * self._score_form(one, at), 9)
                if score and not self._is_of_another_year(one, unit):
                    found.append(_FoundUnit(of, at, score, held | told))
        return sorted(found, key=lambda one: (-one.score, one.of, one.at))

    def _is_of_another_year(self, stretch: Stretch, unit: Unit) -> bool:
        """Whether what a unit says holds for years, but for none that is asked about."""
        asked = self.asked.years
        if not asked:
            return False
        said = " ".join([stretch.title, _get_own_text(unit), *stretch.list_texts_above(unit)])
        if any(re.search(rf"(?<!\d){year % 100:02}년", said) for year in asked):
            return False
        names = " ".join([*unit.columns, *unit.cells[:1]])
        years = _find_years(said) | {int(one) for one in _BARE_YEAR.findall(names)}
        return bool(years) and not years & asked

    def _score_form(self, stretch: Stretch, at: int) -> float:
        """What the form of a unit adds or takes."""
        asked, unit = self.asked, stretch.units[at]
        worth = 0.6 + 0.4 * stretch.find_evidence(unit).relevance
        if asked.value:
            told = asked.value.is_in(unit) and not _read_name(unit)
            worth *= 1.0 if told else WITHOUT_VALUE_WORTH
        if asked.defined:
            said = to_letters(re.sub(r"\([^()]*\)", "", unit.text))
            worth *= (
                DEFINITION_WORTH if re.search(re.escape(asked.defined) + _DEFINES, said) else 1.0
            )
        if asked.listed and stretch.list_children(at):
            worth *= LIST_WORTH
        return worth

    def _is_answer(self, best: _FoundUnit) -> bool:
        """Whether the best unit tells what is asked: enough of its words, and a value."""
        asked, stretch = self.asked, self.stretches[best.of]
        if asked.value:
            if any(word.name and at not in best.held for at, word in enumerate(asked.words)):
                return False
            unit = stretch.units[best.at]
            lead = [] if unit.lead is None else [unit.lead]
            places = [best.at, *lead, *stretch.list_children(best.at), *stretch.list_block(best.at)]
            if not any(asked.value.is_in(stretch.units[at]) for at in places):
                return False
        total = math.fsum(self.weights)
        return total > 0 and self._sum_weights(best.held) >= MIN_FOUND_SHARE * total

    def _write_not_found(self, named: Sequence[str]) -> str:
        """The sentence that says what was not found, and where."""
        asked, language = self.asked, self.builder.language
        held = self.ranked[0].held if self.ranked else ()
        words = [word for at, word in enumerate(asked.words) if at not in held]
        lacking = [one.said for one in words if one.weight == 1 or _find_years(one.said)]
        what = markdown.escape_line(" ".join((lacking or [word.said for word in asked.words])[:4]))
        if not what:
            return get_reply("passages_nothing", language)
        if not named:
            return get_reply("passages_nothing_on", language, what=what)
        titles = map(markdown.escape_line, named[:2])
        where = ", ".join(get_reply("passages_title", language, title=one) for one in titles)
        return get_reply("passages_nothing_in", language, where=where, what=what)

    def _render_block(self, found: _FoundUnit, room: int) -> str:
        """The decisive unit in bold, with its paragraph, or its list with what announces it."""
        stretch, at = self.stretches[found.of], found.at
        top, lead = at, stretch.units[at].lead
        if lead is not None and stretch.units[lead].kind is UnitKind.SENTENCE:
            top = lead if stretch.units[lead].announces_list or self.asked.listed else at
        items = stretch.list_children(top) if top == at or self.asked.listed else [at]
        around = (
            [top]
            if items
            else self._list_continuation(stretch, at, min(room, MAX_BLOCK_CHARACTERS))
        )
        lines = [" ".join(self._render_unit(found, one) for one in around) + f" [{stretch.slot}]"]
        self.builder.shown.update((found.of, one) for one in around)
        left = 0
        for item, depth in stretch.walk_items(items):
            mark = stretch.units[item].mark
            counts = re.fullmatch(r"\d{1,3}\.", mark)
            text = f"{mark if counts else '-'} {self._render_unit(found, item, marked=not counts)}"
            if sum(map(len, lines)) + len(text) > room and item != at:
                left += 1
                continue
            lines.append(f"{'   ' * depth}{text} [{stretch.slot}]")
            self.builder.shown.add((found.of, item))
        more = get_reply("passages_items", self.builder.language, count=str(left)) if left else ""
        return "\n\n".join(filter(None, [lines[0], "\n".join(lines[1:]), more]))

    def _render_unit(self, found: _FoundUnit, at: int, *, marked: bool = True) -> str:
        """A unit with its mark, the decisive one in bold."""
        unit = self.stretches[found.of].units[at]
        told = marked and unit.mark != "ㅇ" and any(map(str.isalnum, unit.mark))
        text = markdown.escape_line(
            self._shorten_around_words(f"{unit.mark} {unit.text}" if told else unit.text)
        )
        return f"**{text}**" if at == found.at else text

    def _list_continuation(self, stretch: Stretch, at: int, room: int) -> list[int]:
        """A sentence with those of its paragraph that go on from it, as far as they fit."""
        block = [at, *(place for place in stretch.list_block(at) if place > at)]
        lengths = accumulate(len(stretch.units[place].text) for place in block)
        fits = [place for place, length in zip(block, lengths, strict=True) if length <= room]
        return fits or [at]

    def _render_table(self, found: _FoundUnit, room: int) -> str:
        """The best rows of a table under the names of its columns, the asked cell in bold."""
        stretch, listed = self.stretches[found.of], self.asked.listed
        unit = stretch.units[found.at]
        self.builder.shown.add((found.of, found.at))
        if not unit.columns or sum(map(len, unit.columns)) > room:
            text = markdown.escape_line(self._shorten_around_words(unit.text))
            return f"**{text}** [{stretch.slot}]"
        block = set(stretch.list_block(found.at))
        least = 0.0 if listed else MIN_SHARE_OF_BEST * found.score
        own = [one for one in self.ranked if one.of == found.of and one.at in block]
        told = self.own[found.of]
        names = {at for at, word in enumerate(self.asked.words) if word.name}
        # beside the row of E-1234 nobody asks for those of other codes
        beside = [one for one in own if told[one.at] & names or not told[found.at] & names]
        near = [one.at for one in beside if one.score >= least]
        rows = {found.at, *near[: MAX_LISTED_ROWS if listed else MAX_ROWS]}
        width = max(len(unit.columns), *(len(stretch.units[at].cells) for at in rows))
        lines = [_render_row(unit.columns, width), "|" + " --- |" * width]
        for at in sorted(rows):
            bold = (self._find_asked_cell(unit) or 0) if at == found.at else None
            line = _render_row(stretch.units[at].cells, width, bold)
            if at == found.at or sum(map(len, lines)) + len(line) <= room:
                lines.append(f"{line[:-2]} [{stretch.slot}] |")
        self.builder.shown.update((found.of, at) for at in block)  # a table is shown once
        return "\n".join(lines)

    def _find_asked_cell(self, unit: Unit) -> int | None:
        """The cell whose column holds most of what the row's name does not."""
        named = self._find_held_words(unit.cells[0])
        columns = enumerate(zip(unit.columns, unit.cells, strict=False))
        gains = [
            (len(self._find_held_words(column) - named), at)
            for at, (column, cell) in columns
            if at and cell
        ]
        best, place = max(gains, default=(0, 0))
        return place if best else None

    def _extract_value(self, unit: Unit) -> str:
        """The value that is asked for, as the unit has it: the one amid the asked words.

        Empty where it cannot be told from others: one stands for each of several things, or the
        asked words stand in the heading alone.
        """
        if self.asked.value is None or self.asked.each:
            return ""
        if unit.kind is UnitKind.ROW:
            cell = self._find_asked_cell(unit)
            return "" if cell is None else unit.cells[cell][:MAX_VALUE_CHARACTERS]
        values = list(self.asked.value.finds.finditer(unit.text))
        if not values or (len(values) > 1 and not self._find_held_words(unit.text)):
            return ""
        bound = self.asked.bound
        values = [one for one in values if unit.text.startswith(bound, one.end())] or values
        middle = self._find_densest_place(unit.text, MAX_VALUE_CHARACTERS)
        start = min((one.start() for one in values), key=lambda at: abs(at - middle))
        before = _PATTERNS["before_value"].search(unit.text[max(0, start - 40) : start])
        after = _PATTERNS["behind_value"].match(unit.text[start : start + MAX_VALUE_CHARACTERS])
        said = "".join(found[0] for found in (before, after) if found).strip(" ,.;:·\"'“”()")
        said += ")" * (said.count("(") - said.count(")"))
        return _VALUE_ENDING.sub("", said)

    def _shorten_around_words(self, text: str) -> str:
        """A long text shortened around the place where most of the words stand."""
        if len(text) <= MAX_SHOWN_CHARACTERS:
            return text
        middle = self._find_densest_place(text, MAX_SHOWN_CHARACTERS // 2)
        start = max(0, min(middle - MAX_SHOWN_CHARACTERS // 2, len(text) - MAX_SHOWN_CHARACTERS))
        end = start + MAX_SHOWN_CHARACTERS
        return f"{'…' if start else ''}{text[start:end].strip()}{'…' if end < len(text) else ''}"

    def _find_densest_place(self, text: str, reach: int) -> int:
        """The place of a text within whose reach most words of the question stand."""
        said = "|".join(sorted({re.escape(word.said) for word in self.asked.words}))
        places = [(m.start(), m[0]) for m in re.finditer(said, text, re.IGNORECASE) if m[0]]

        def count_near(at: int) -> tuple[int, int]:
            close = [(abs(at - one), word) for one, word in places if abs(at - one) <= reach]
            return len({word for _, word in close}), -sum(distance for distance, _ in close)

        return max((place for place, _ in places), key=count_near, default=0)


_DEFINES = "(?:이?란|이?라함은|이?라한다|means|refersto)"


def _get_own_text(unit: Unit) -> str:
    """What a unit says itself: of a row its cells."""
    return " ".join(unit.cells) if unit.kind is UnitKind.ROW else unit.text


def _read_name(unit: Unit) -> str:
    """The name that a unit gives what the document is about ("사업명: …"), and tells nothing else.

    Empty for others, also for the row of a form with another field beside it.
    """
    label = _PATTERNS["name_label"].match(unit.cells[0] if unit.cells else unit.text)
    if label is None:
        return ""
    if unit.kind is UnitKind.ROW:
        told = {*unit.cells[1:]} - {""}
        return told.pop() if len(told) == 1 else ""
    rest = unit.text[label.end() :]
    return "" if _FIELD.search(rest) else rest


def _render_source(stretch: Stretch, unit: Unit, language: str) -> str:
    """The line above a passage: its document, heading and page."""
    heading, page = stretch.find_heading(unit), stretch.find_evidence(unit).passage.page
    parts = [f"「{markdown.escape_line(stretch.title)}」"]
    if 0 < len(heading) <= MAX_HEADING_CHARACTERS and _to_key(heading) != _to_key(stretch.title):
        parts.append(markdown.escape_line(heading))
    if page:
        parts.append(get_reply("passages_page", language, page=str(page)))
    return " · ".join(parts)


def _render_row(cells: Sequence[str], width: int, bold: int | None = None) -> str:
    filled = [*cells, *[""] * (width - len(cells))]
    shown = [markdown.escape_line(one[:MAX_SHOWN_CHARACTERS]).replace("|", "\\|") for one in filled]
    if bold is not None and shown[bold].strip():
        shown[bold] = f"**{shown[bold]}**"
    return f"| {' | '.join(shown)} |"


def _compare_documents(
    asked: PassageQuery,
    stretches: Sequence[Stretch],
    slots: Sequence[int],
    named: Sequence[str],
    language: str,
) -> PassagesAnswer:
    """A block for each document on what is compared: without the names of the others."""
    titles = {one.slot: _Text(one.title) for one in stretches}
    chosen = [slot for slot in slots if titles[slot].text in named]
    chosen = (chosen if len(chosen) > 1 else list(slots))[:MAX_PASSAGES]
    naming = {
        word: {slot for slot, title in titles.items() if word.is_in_title(title)}
        for word in asked.words
    }
    if all(naming.values()):
        return _outline_documents(stretches, chosen, language)  # by name alone: what each is for
    parts: list[str] = []
    spans: dict[int, tuple[tuple[int, int], ...]] = {}
    cited: list[tuple[int, int]] = []
    for slot in chosen:
        kept = tuple(word for word, named in naming.items() if slot in named or not named)
        own = [one for one in stretches if one.slot == slot]
        composer = _Composer(replace(asked, words=kept), own, language)
        told = composer.answer([titles[slot].text], ROOM_CHARACTERS // len(chosen))
        parts.append(told.text)
        spans |= told.spans
        cited += told.cited
    return PassagesAnswer("\n\n".join(parts), spans, tuple(cited))


def _outline_documents(
    stretches: Sequence[Stretch], slots: Sequence[int], language: str
) -> PassagesAnswer:
    """The telling sentences of whole documents in their order, under their headings."""
    builder = _AnswerBuilder(language, has_more=True)
    for slot in slots[:MAX_PASSAGES]:
        own = [one for one in stretches if one.slot == slot]
        chosen = _choose_telling(own, ROOM_CHARACTERS // min(len(slots), MAX_PASSAGES))
        builder.parts.append(f"「{markdown.escape_line(own[0].title)}」")
        if not chosen:
            builder.parts.append(get_reply("passages_nothing_told", language))
        under = [(of, own[of].units[at].heading, own[of].units[at]) for of, at in chosen]
        for (of, heading), found in groupby(under, lambda one: one[:2]):
            lines = (
                []
                if heading is None
                else [f"**{markdown.escape_line(own[of].units[heading].text)}**"]
            )
            builder.parts.append("\n".join(lines))
            for _, _, unit in found:
                builder.parts[-1] += (
                    f"\n- {markdown.escape_line(_shorten_sentence(unit.text))} [{slot}]"
                )
                builder.add_citation(own[of], unit)
            builder.parts[-1] = builder.parts[-1].lstrip("\n")
    return builder.build_answer()


def _shorten_sentence(text: str) -> str:
    cut = text[:MAX_OUTLINED_CHARACTERS]
    return text if cut == text else f"{cut.rpartition(' ')[0] or cut}…"


def _choose_telling(stretches: Sequence[Stretch], room: int) -> list[tuple[int, int]]:
    """The sentences that say most of what a document is about, in its order.

    They hold words that it repeats, and figures; each must bring words that none before has.
    """
    units = {
        (of, at): unit
        for of, one in enumerate(stretches)
        for at, unit in enumerate(one.units)
        if unit.kind is UnitKind.SENTENCE
        and len(unit.text) >= MIN_OUTLINED_CHARACTERS
        and one.is_quotable(at)
    }
    terms = {place: set(tokenize.count_terms(unit.text)) for place, unit in units.items()}
    counts = Counter(term for found in terms.values() for term in found)

    def score_sentence(place: tuple[int, int]) -> float:
        told = math.fsum(math.log1p(counts[term]) for term in terms[place] if counts[term] > 1)
        told /= math.sqrt(len(units[place].text)) + 4
        told *= FIGURES_WORTH if re.search(r"\d", units[place].text) else 1.0
        return round(told, 9)

    chosen: list[tuple[int, int]] = []
    said: set[str] = set()
    for place in sorted(units, key=lambda one: (-score_sentence(one), one)):
        length = len(_shorten_sentence(units[place].text))
        if len(terms[place] - said) >= 0.4 * len(terms[place]) and length <= room:
            chosen.append(place)
            said |= terms[place]
            room -= length + 12
    return sorted(chosen)
