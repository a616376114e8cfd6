"""Answers without a language model: passages with their decisive sentence in bold.

A question is read as weighted words, the kind of value that would answer it, and its form
(`rag/lexicon/passages.toml`). A passage is an answer if it contains enough of the words and, where
a value is asked for, such a value. If none is, the answer says that nothing was found.
"""

import functools
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from rag.understand.analysis import Entry, find_everyday_words

ROOM_CHARACTERS = 640
"""Length of an answer, not counting the value at its beginning."""
MAX_PASSAGES = 3
MIN_ROOM_CHARACTERS = 120
MAX_BLOCK_CHARACTERS = 420
"""Length of one passage, unless it is a list or a table."""
MAX_SHOWN_CHARACTERS = 400
MAX_HEADING_CHARACTERS = 80
MAX_VALUE_CHARACTERS = 60
MAX_ROWS, MAX_LISTED_ROWS = 6, 12
MIN_OUTLINED_CHARACTERS, MAX_OUTLINED_CHARACTERS = 12, 160
"""Length of a sentence in the outline of a document."""
MIN_FOUND_SHARE = 0.4
"""Share of the question's weight that the decisive unit and its document must contain."""
MIN_SHARE_OF_BEST = 0.7
"""A further passage is shown if its score is at least this share of the first one's."""
SECTION_SHARE, DOCUMENT_SHARE = 0.5, 0.2
"""Factors for a word that occurs only in the unit's section, or only in its document."""
TITLE_WEIGHT, NAME_WEIGHT, LOOSE_WEIGHT = 0.2, 2.0, 0.5
"""Weights of words of a document's name; of names, which have no synonyms; and of verbs, words of
one syllable and words for the kind of an answer, which documents often put differently."""
WITHOUT_VALUE_FACTOR, DEFINITION_FACTOR, LIST_FACTOR = 0.18, 2.2, 1.2
"""Factors for a unit that lacks the value asked for, and for one with a definition or a list where
the question asks for one."""
BOUND_FACTOR = 1.2
"""Factor for a unit whose value is said to be the beginning or end asked for: "8학년까지"."""
FIGURES_FACTOR = 1.4
"""Factor for a sentence with figures in an outline."""

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
_COUNTED = re.compile(rf"몇\s?({'|'.join(_RULES['units'].split())})(\s?전)?|(며칠)\s?전")
_NOUNS = frozenset(("NNG", "NNP", "NR", "XR", "SL", "SN", "XPN"))
_WORD = re.compile(r"[A-Za-z0-9][\w–‑.-]*|[가-힣]+")
_HANGUL, _SHORT = re.compile(r"[가-힣]{3,}"), re.compile(r"[가-힣]{3}")
"""A noun that may be an abbreviation of a longer one: 지자체."""
_DAY = re.compile(r"([가-힣]{2,})(?:일|일자|일시|날짜)")
"""A day by what happens on it: forms write "마감: 3월 20일" for 마감일."""
_CODE = re.compile(r"(?<![\w-])[A-Za-z]{1,6}-\d[\w-]*(?<=[A-Za-z\d])", re.ASCII)
"""Code of a fault, requirement or product: the analyser would split its letters from its digits."""
_PERIODS = (
    (re.compile(r"(?:20)?(\d\d)년"), r"(?:(?:20|['‘’])?{0}(?:년|\.)|20{0})"),
    (re.compile(r"([1-4])분기"), r"{}(?:분기|q|/4)"),
)
"""How tables write a year and a quarter: 24년 2분기 becomes ‘24.2Q."""
_YEAR = r"(?<![\d.,-])(?:19|20)\d\d"
_YEARS = re.compile(
    rf"({_YEAR})(?:\s?년)?\s?[~∼–-]\s?({_YEAR})(?!\d)|"
    rf"({_YEAR})(?=\s?년|학년도|\s?[./-]\s?\d)|['‘’](\d\d)(?!\d)"
)
_BARE_YEAR = re.compile(rf"{_YEAR}(?![\d,])")
"""A year in the name of a column or row."""
_DIGITS = re.compile(r"\d+")
_APART = r"(?:(?<!\d)|(?!\d))"
"""Not between two digits."""
_BLANKS = re.compile(r"(?<=[0-9A-Za-z])(\s+)(?=[0-9A-Za-z])|\s+")
_VALUE_ENDING = re.compile(
    r"(?<=[가-힣\d%])(?<!없)(?:이다|이며|이고|입니다|으로|[을를로의에은는이가])$"
)
"""A copula or particle, which is not part of a value."""
_HYPHENS = re.compile("[‐‑‒–−]")
MARKER = re.compile(r"(?<!\\)\[\d{1,4}\]")
"""A citation marker; brackets in the documents' own text are escaped with a backslash."""
_FIELD = re.compile(r"\w\s?[:：]\s")
"""Where the next field of a form begins in the same line."""
_PLAIN_FIGURE = re.compile(r"[△▲-]?[\d,.]+")


@dataclass(frozen=True, slots=True)
class PassagesAnswer:
    """An answer made of passages; `text` is Markdown with a [slot] marker after each passage.

    `spans` maps the `Evidence.number` of each passage shown to the document offsets of its decisive
    sentences. If it is empty, the documents have no answer and the text says so; the text is empty
    if nothing was searched. `cited` lists for each marker, in order, that number and the index of
    the marker's sentence in its spans.
    """

    text: str
    spans: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    cited: tuple[tuple[int, int], ...] = ()

    @property
    def has_answer(self) -> bool:
        """Whether the documents have an answer."""
        return bool(self.spans)


@dataclass(frozen=True, slots=True)
class Value:
    """A kind of value: `asks` matches questions for it, `finds` matches one in a text.

    `example` is a question and its answer. `figures`: in a table a bare number is such a value.
    """

    name: str
    asks: re.Pattern[str]
    finds: re.Pattern[str]
    example: tuple[str, str]
    figures: bool = False

    def is_in(self, unit: Unit) -> bool:
        """Whether a unit contains such a value."""
        if unit.kind is not UnitKind.ROW:
            return bool(self.finds.search(unit.text))
        bare = self.figures and any(map(_PLAIN_FIGURE.fullmatch, unit.cells[1:]))
        return bare or any(map(self.finds.search, unit.cells[1:]))


def _to_value(row: Mapping[str, Any]) -> Value:
    patterns = {name: re.compile("|".join(row[name]), re.IGNORECASE) for name in ("asks", "finds")}
    return Value(**{**row, **patterns, "example": tuple(row["example"])})


VALUES = tuple(map(_to_value, _RULES["values"]))
"""In the order in which a question is checked for them."""


class _Text:
    """A text to look for words in: its normalised letters, and its terms, computed on demand."""

    def __init__(self, text: str) -> None:
        self.text, self.key = text, _to_key(text)

    @functools.cached_property
    def terms(self) -> frozenset[str]:
        return frozenset(tokenize.count_terms(self.text))


@dataclass(frozen=True, slots=True)
class QuestionWord:
    """A content word of the question: a text contains it if its pattern or its term is found.

    `name`: it names a person, an organisation or a product. `of` is the text of the word that says
    of which thing it is: 신청 of 기간.
    """

    text: str
    pattern: re.Pattern[str] | None
    term: str = ""
    weight: float = 1.0
    name: bool = False
    of: str = ""

    def is_in(self, text: _Text) -> bool:
        """Whether a text contains the word, or what it abbreviates."""
        if self.pattern and self.pattern.search(text.key):
            return True
        return bool(self.term) and self.term in text.terms

    def is_in_title(self, title: _Text) -> bool:
        """Whether a title contains it, or it abbreviates the title: 한예종, 한국예술종합학교."""
        letters = iter(title.key)
        hangul = _HANGUL.fullmatch(self.text) and title.key[:1] == self.text[0]
        return self.is_in(title) or bool(hangul and all(letter in letters for letter in self.text))


@dataclass(frozen=True, slots=True)
class PassageQuery:
    """What a question asks: its content words and its form.

    `value`: the kind of value that answers it; `unit` matches figures in the unit asked for (몇
    명); `counts_ahead`: only those before something (며칠 전). `defined_term`: the letters of a
    word whose meaning is asked for. `wants_list`: the answer is several items. `wants_each`: it
    is several values, one for each thing. `bound`: what follows the value if it is a beginning
    or an end ("까지"). `years`: those that the question names.
    """

    words: tuple[QuestionWord, ...]
    value: Value | None
    unit: re.Pattern[str] | None
    counts_ahead: bool
    defined_term: str
    wants_list: bool
    wants_each: bool
    bound: str
    years: frozenset[int]


def read_passage_query(question: str, titles: Iterable[str]) -> PassageQuery:
    """Read a standalone question; passages need not repeat `titles` that it gives in full."""
    text = _HYPHENS.sub("-", tokenize.normalise(question))
    definition = _PATTERNS["defined"].match(text)
    noun = next(filter(None, definition.groups())).strip() if definition else ""
    defined = strip_particle(re.sub(r"^(?:an?|the)\s+", "", noun, flags=re.IGNORECASE))
    value = next((kind for kind in VALUES if kind.asks.search(text)), None)
    counter = _COUNTED.search(text)
    bound = _PATTERNS["bound"].search(text)
    words = _read_words(_remove_titles(text, titles)) or _read_words(text)
    return PassageQuery(
        words=_tie_heads(" ".join(text.split()), words),
        value=None if defined else value,
        unit=_to_unit(counter) if counter else None,
        counts_ahead=bool(counter and (counter[2] or counter[3])),
        defined_term=to_letters(defined),
        wants_list=bool(_PATTERNS["listed"].search(text)),
        wants_each=bool(_PATTERNS["each"].search(text)),
        bound=bound[1] if bound else "",
        years=_find_years(text),
    )


def _to_unit(counter: re.Match[str]) -> re.Pattern[str]:
    """Figures in the unit asked for (몇 명): for "며칠 전" only days before something."""
    name, before, days = counter.groups()
    ahead = r"\s?전" if before or days else ""
    return re.compile(rf"\d\s?{'일' if days else name}{ahead}")


def _find_years(text: str) -> frozenset[int]:
    """The years that a text names, including all years of a range."""
    years: set[int] = set()
    for first, last, single, short in _YEARS.findall(text):
        if first:
            years.update(range(int(first), int(last) + 1))
        else:
            years.add(int(single) if single else 2000 + int(short))
    return frozenset(years)


def _remove_titles(question: str, titles: Iterable[str]) -> str:
    """The question without titles that occur in it as whole words, longest first."""
    for title in sorted(set(titles) - {""}, key=lambda item: (-len(item), item)):
        pattern = rf"(?<!\w){re.escape(title)}(?![A-Za-z\d])[가-힣]*"
        question = re.sub(pattern, functools.partial(_remove_title, title), question)
    return question


def _remove_title(title: str, match: re.Match[str]) -> str:
    """A word that begins with a title: a blank if only a particle follows, else unchanged."""
    return " " if title in {match[0], strip_particle(match[0])} else match[0]


def _read_words(text: str) -> tuple[QuestionWord, ...]:
    """The distinct content words in order; aspects ("예외") only if there is nothing else."""
    runs = {word: tag for word, tag in _find_words(text) if len(word) > 1 or not word.isascii()}
    content_words = [word for word in runs if not _is_empty(word)]
    main_words = [word for word in content_words if word not in _SIDES]
    entries = find_everyday_words(text)
    return tuple(
        _to_word(word, runs[word], _list_equivalents(word, entries))
        for word in main_words or content_words
    )


def _list_equivalents(word: str, entries: Iterable[Entry]) -> set[str]:
    """What documents call a word, by the everyday words that hold it."""
    named = [terms for words, terms in entries if word in (*words, "".join(words))]
    return set(chain.from_iterable(named))


def _tie_heads(text: str, words: Sequence[QuestionWord]) -> tuple[QuestionWord, ...]:
    """The words, those for the kind of an answer tied to the word before: 신청 기간."""
    pairs = zip(("", *(word.text for word in words)), words, strict=False)
    return tuple(
        replace(word, of=before)
        if before and word.text in _LOOSE and f"{before} {word.text}" in text
        else word
        for before, word in pairs
    )


def _is_empty(word: str) -> bool:
    lowered = word.casefold()
    span = _PATTERNS["span"].fullmatch(word)  # 1년에 얼마
    return lowered in _EMPTY or tokenize.stem_word(lowered) in _EMPTY_STEMS or span is not None


def _find_words(text: str) -> Iterator[tuple[str, str]]:
    """Compound nouns ("NNG"; "NNP" if they include a name) and verbs ("VV")."""
    morphemes = tokenize.analyse_morphemes(text)
    if morphemes is None or not tokenize.HANGUL.search(text):
        yield from ((strip_particle(match[0]), "NNG") for match in _WORD.finditer(text))
        return
    codes = [match.span() for match in _CODE.finditer(text)]
    yield from ((text[slice(*code)], "NNP") for code in codes)
    start, end, tag = 0, -1, ""
    for item in morphemes:
        if any(first <= item.start < last for first, last in codes):
            continue
        is_glued = item.tag == "MM" and text[item.end : item.end + 1].strip()
        continues = item.start == end
        is_joined = item.tag in _NOUNS or is_glued or (continues and item.tag in {"XSN", "NNB"})
        if end > 0 and not (is_joined and continues):
            yield text[start:end], tag
            end = -1
        if is_joined:
            start, tag = (start, tag) if end > 0 else (item.start, "NNG")
            end, tag = item.end, "NNP" if item.tag == "NNP" else tag
        elif item.tag in {"VV", "VA"}:
            yield item.form, "VV"
    if end > 0:
        yield text[start:end], tag


def _to_word(word: str, tag: str, equivalents: Collection[str] = ()) -> QuestionWord:
    is_hangul, has_figures = bool(tokenize.HANGUL.search(word)), any(map(str.isdigit, word))
    spellings = (
        {word, strip_particle(word) if len(word) > 3 else word}
        if is_hangul or has_figures
        else set()
    )
    spellings |= {day[1] for spelling in spellings if (day := _DAY.fullmatch(spelling))}
    forms = [re.escape(_to_key(spelling)) for spelling in sorted(spellings) if len(spelling) > 1]
    forms += [
        spelling.format(match[1])
        for period, spelling in _PERIODS
        if (match := period.fullmatch(word))
    ]
    if tag != "VV" and _SHORT.fullmatch(word):
        forms.append("[가-힣]{0,2}".join(word))
    has_own_form = bool(forms)
    forms += [re.escape(other) for other in sorted(equivalents) if tokenize.HANGUL.search(other)]
    # "3월" must not match in "13월", nor "12" in "120"
    pattern = re.compile(rf"{_APART}(?:{'|'.join(forms)}){_APART}") if forms else None
    if tag == "VV":
        return QuestionWord(word, pattern, word, LOOSE_WEIGHT)
    term = min(tokenize.count_terms(word), default="") if not has_own_form or len(word) == 1 else ""
    # a passage on another year is no answer, but many passages name no year
    is_loose = word in _LOOSE or (is_hangul and len(word) == 1) or bool(_find_years(word))
    is_name = tag == "NNP" or (not is_hangul and word[0].isupper())
    return QuestionWord(word, pattern, term, LOOSE_WEIGHT if is_loose else 1.0, is_name)


def _to_key(text: str) -> str:
    """The text as it is compared: lower case, no blanks next to Hangul, one kind of hyphen."""
    folded = _HYPHENS.sub("-", text)
    return _BLANKS.sub(lambda blank: " " if blank[1] else "", folded).casefold()


def compose_passages(  # noqa: PLR0913 - everything that decides what is shown, by name
    questions: Sequence[str],
    evidence: Sequence[Evidence],
    *,
    question_type: QuestionType,
    is_whole_document: bool,
    named_titles: Sequence[str],
    language: str,
) -> PassagesAnswer:
    """The passages that answer a standalone question, best first, or a text saying that none does.

    `questions` are wordings of the same question; the first that finds something counts, and one
    that names nothing ("둘을 비교해 줘") only if the others name nothing either. `evidence`
    is in rank order, or in reading order if whole documents are asked about (`is_whole_document`).
    `named_titles` are documents that the question names or the user chose.
    """
    stretches = reading.read_stretches(evidence)
    if not stretches:
        return PassagesAnswer("")
    slots = list(dict.fromkeys(item.slot for item in evidence))
    if is_whole_document:
        return _outline_documents(stretches, slots, language)
    titles = [item.passage.title for item in evidence]
    named_stretches = [stretch for stretch in stretches if stretch.title in named_titles]

    def compose(question: str) -> PassagesAnswer:
        query = read_passage_query(question, titles)
        if question_type is QuestionType.COMPARE and len(slots) > 1:
            return _compare_documents(query, stretches, slots, named_titles, language)
        return _Composer(query, named_stretches or stretches, language).answer(
            named_titles, ROOM_CHARACTERS
        )

    naming = (
        one for one in questions if len(questions) == 1 or read_passage_query(one, titles).words
    )
    first, *others = tuple(naming) or questions
    first_answer = compose(first)
    others += filter(None, map(_ask_until_when, questions))
    answers = chain([first_answer], map(compose, others))
    return next((answer for answer in answers if answer.has_answer), first_answer)


def _ask_until_when(question: str) -> str:
    """The question without the word for a deadline: "언제까지 제출?"; empty if it has none."""
    deadline = _PATTERNS["deadline"].search(question)
    if not deadline:
        return ""
    asked = f"언제까지 {deadline[1] or '제출'}?"
    return f"{question[: deadline.start()]}{asked}"


@dataclass(slots=True)
class _AnswerBuilder:
    """An answer being written. `shown`: stretch and unit index of every unit in it."""

    language: str
    parts: list[str] = field(default_factory=list)
    spans: dict[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    shown: set[tuple[int, int]] = field(default_factory=set)
    cited: list[tuple[int, int]] = field(default_factory=list)
    has_more: bool = False

    def add_citation(self, stretch: Stretch, unit: Unit) -> None:
        """Record the unit as decisive: all markers since the last citation refer to it."""
        number = stretch.find_evidence(unit).number
        markers = sum(len(MARKER.findall(part)) for part in self.parts) - len(self.cited)
        self.cited += [(number, len(self.spans.get(number, ())))] * markers
        span = (stretch.base + unit.start, stretch.base + unit.end)
        self.spans[number] = (*self.spans.get(number, ()), span)

    def build_answer(self) -> PassagesAnswer:
        more = [get_reply("passages_more", self.language)] if self.has_more else []
        return PassagesAnswer("\n\n".join([*self.parts, *more]), self.spans, tuple(self.cited))


@dataclass(frozen=True, slots=True)
class _RankedUnit:
    """A unit by its place, with its score and the words of the question in it or its document.

    `own_words` are those in the unit and the texts above it.
    """

    stretch_index: int
    unit_index: int
    score: float
    words: frozenset[int]
    own_words: frozenset[int]


class _Composer:
    """Finds the answer to one question in some stretches and renders it."""

    def __init__(self, query: PassageQuery, stretches: Sequence[Stretch], language: str) -> None:
        self.query, self.stretches, self.builder = query, stretches, _AnswerBuilder(language)
        self._words_by_text: dict[str, frozenset[int]] = {}
        indexes = {word.text: index for index, word in enumerate(query.words)}
        self.owners = {
            index: indexes[word.of] for index, word in enumerate(query.words) if word.of in indexes
        }
        self.words_by_unit = [
            [self._find_contained_words(_get_own_text(unit)) for unit in stretch.units]
            for stretch in stretches
        ]
        if query.value and query.unit and self._is_unit_used():
            # some figures have the unit asked for, so no others can be the value
            value = replace(query.value, finds=query.unit, figures=False)
            self.query = replace(query, value=value)
        self.is_value_beside_words = self.query.value is not None and any(
            map(self.query.value.is_in, self._list_units_with_words())
        )
        self.weights = self._weigh_words()
        self.other_titles = self._find_other_titles()
        self.ranked = self._rank_units()

    def answer(self, named_titles: Sequence[str], room: int) -> PassagesAnswer:
        """The best passages, or a sentence saying that the documents have no answer."""
        if not self.ranked or not self._is_answer(self.ranked[0]):
            return PassagesAnswer(self._write_not_found(named_titles))
        builder, best, last_source = self.builder, self.ranked[0], ""
        quoted: set[str] = set()
        for candidate in self.ranked:
            blocks = len(builder.spans) and sum(map(len, builder.spans.values()))
            if candidate.score < MIN_SHARE_OF_BEST * best.score or blocks == MAX_PASSAGES:
                break
            if (candidate.stretch_index, candidate.unit_index) in builder.shown:
                continue
            stretch = self.stretches[candidate.stretch_index]
            unit = stretch.units[candidate.unit_index]
            key = _to_key(unit.text)
            if key in quoted:  # documents repeat themselves, and versions each other
                continue
            room_left = room - sum(len(part) + 2 for part in builder.parts)
            if blocks and room_left < MIN_ROOM_CHARACTERS:
                builder.has_more = True
                break
            quoted.add(key)
            if not blocks and (value := self._extract_value(unit)):
                builder.parts.append(f"**{markdown.escape_line(value)}** [{stretch.slot}]")
            source = _render_source(stretch, unit, builder.language)
            body = (
                self._render_table(candidate, room_left)
                if unit.kind is UnitKind.ROW
                else self._render_block(candidate, room_left)
            )
            gap = "\n\n" if unit.kind is UnitKind.ROW and unit.columns else "\n"
            builder.parts.append(body if source == last_source else f"{source}{gap}{body}")
            builder.add_citation(stretch, unit)
            last_source = source
        return builder.build_answer()

    def _is_unit_used(self) -> bool:
        """Whether figures have the unit asked for, beside a word of the question.

        Many texts that do not answer "몇 명?" hold "3명"; days before something are answers alone.
        """
        units = (
            (unit for stretch in self.stretches for unit in stretch.units)
            if self.query.counts_ahead
            else self._list_units_with_words()
        )
        unit_pattern = self.query.unit
        return unit_pattern is not None and any(unit_pattern.search(unit.text) for unit in units)

    def _list_units_with_words(self) -> list[Unit]:
        """The units that hold a word of the question."""
        return [
            unit
            for stretch, words in zip(self.stretches, self.words_by_unit, strict=True)
            for unit, found in zip(stretch.units, words, strict=True)
            if found
        ]

    def _find_contained_words(self, *texts: str) -> frozenset[int]:
        """Indices of the question's words that occur in any of these texts."""
        for text in {*texts} - self._words_by_text.keys():
            target = _Text(text)
            indexes = (index for index, word in enumerate(self.query.words) if word.is_in(target))
            self._words_by_text[text] = frozenset(indexes)
        return frozenset[int]().union(*(self._words_by_text[text] for text in texts))

    def _sum_weights(self, word_indexes: Iterable[int]) -> float:
        return math.fsum(self.weights[index] for index in word_indexes)

    def _weigh_words(self) -> list[float]:
        """Weights of the words: high for rare ones, low for words of a document's name.

        Loose words that occur nowhere do not count as rare.
        """
        words_by_stretch = [
            frozenset[int]().union(*unit_words) for unit_words in self.words_by_unit
        ]
        words = list(enumerate(self.query.words))
        names = {stretch.title for stretch in self.stretches}
        names |= {_read_name(unit) for stretch in self.stretches for unit in stretch.units}
        titles = [_Text(name) for name in names]
        title_words = {index for index, word in words if any(map(word.is_in_title, titles))}
        has_other_words = any(
            word.weight == 1 and index not in title_words for index, word in words
        )
        weights = []
        for index, word in words:
            stretch_count = sum(index in stretch_words for stretch_words in words_by_stretch)
            weight = word.weight * (NAME_WEIGHT if word.name else 1.0)
            if stretch_count or word.weight == 1:
                weight *= 1 + math.log((len(words_by_stretch) + 1) / (stretch_count + 1))
            weights.append(
                weight * (TITLE_WEIGHT if index in title_words and has_other_words else 1.0)
            )
        return weights

    def _rank_units(self) -> list[_RankedUnit]:
        """Every unit that may be quoted, best first."""
        documents: dict[int, frozenset[int]] = {}
        for stretch, stretch_words in zip(self.stretches, self.words_by_unit, strict=True):
            document_words = self._find_contained_words(stretch.title).union(*stretch_words)
            documents[stretch.slot] = documents.get(stretch.slot, frozenset()) | document_words
        units = []
        for stretch_index, stretch in enumerate(self.stretches):
            if stretch.title in self.other_titles:
                continue
            title_words = self._find_contained_words(stretch.title)
            for unit_index in filter(stretch.is_quotable, range(len(stretch.units))):
                unit, document_words = stretch.units[unit_index], documents[stretch.slot]
                unit_words = self._drop_lone_heads(
                    self.words_by_unit[stretch_index][unit_index]
                    | self._find_contained_words(*stretch.list_texts_above(unit))
                )
                if unit.is_bare_date and len(unit_words | title_words) < len(self.query.words):
                    continue
                if stretch.is_caption(unit_index) and not self._tells(unit):
                    continue
                section = unit_words.union(
                    *(
                        self.words_by_unit[stretch_index][neighbour]
                        for neighbour in stretch.list_neighbours(unit_index)
                    )
                )
                total = self._sum_weights(unit_words) + SECTION_SHARE * self._sum_weights(
                    section - unit_words
                )
                total += DOCUMENT_SHARE * self._sum_weights(document_words - section)
                form = self._score_form(stretch, unit_index, is_on_topic=bool(section))
                score = round(total * form, 9)
                if score and not self._is_of_another_year(stretch, unit):
                    units.append(
                        _RankedUnit(
                            stretch_index,
                            unit_index,
                            score,
                            document_words | unit_words,
                            unit_words,
                        )
                    )
        return sorted(
            units,
            key=lambda ranked_unit: (
                -ranked_unit.score,
                ranked_unit.stretch_index,
                ranked_unit.unit_index,
            ),
        )

    def _tells(self, unit: Unit) -> bool:
        """Whether a line above a table says more than what the table shows."""
        value = self.query.value
        return bool(_FIELD.search(unit.text)) or (value is not None and value.is_in(unit))

    def _drop_lone_heads(self, words: frozenset[int]) -> frozenset[int]:
        """The words without those whose thing is not among them: 활동기간 is no 신청 기간."""
        return frozenset(index for index in words if self.owners.get(index, index) in words)

    def _find_other_titles(self) -> frozenset[str]:
        """Titles of another number than the question and another title name: "1분기 실적".

        Documents of a series resemble each other in all but that number. Years have a rule of
        their own.
        """
        words_by_shape: dict[str, set[int]] = {}
        for index, word in enumerate(self.query.words):
            key = _to_key(word.text)
            if _DIGITS.search(key) and re.search(r"[a-z가-힣]", key) and not _find_years(word.text):
                words_by_shape.setdefault(_DIGITS.sub("0", key), set()).add(index)
        titles = {stretch.title for stretch in self.stretches}
        others: set[str] = set()
        for shape, words in words_by_shape.items():
            pattern = re.compile(_APART + re.escape(shape).replace("0", r"\d+") + _APART)
            named = {title for title in titles if words & self._find_contained_words(title)}
            if named:
                others |= {title for title in titles - named if pattern.search(_to_key(title))}
        return frozenset(others)

    def _is_of_another_year(self, stretch: Stretch, unit: Unit) -> bool:
        """Whether a unit is about particular years, but none that the question names."""
        asked_years = self.query.years
        if not asked_years:
            return False
        text = " ".join([stretch.title, _get_own_text(unit), *stretch.list_texts_above(unit)])
        if any(re.search(rf"(?<!\d){year % 100:02}년", text) for year in asked_years):
            return False
        names = " ".join([*unit.columns, *unit.cells[:1]])
        years = _find_years(text) | {int(year) for year in _BARE_YEAR.findall(names)}
        return bool(years) and not years & asked_years

    def _score_form(self, stretch: Stretch, unit_index: int, *, is_on_topic: bool) -> float:
        """The factor by which the form of a unit raises or lowers its score.

        `is_on_topic`: the unit or its section holds a word of the question. Where a value stands
        beside one, figures elsewhere are none.
        """
        query, unit = self.query, stretch.units[unit_index]
        factor = 0.6 + 0.4 * stretch.find_evidence(unit).relevance
        if query.value:
            is_likely = is_on_topic or not self.is_value_beside_words
            has_value = is_likely and query.value.is_in(unit) and not _read_name(unit)
            factor *= 1.0 if has_value else WITHOUT_VALUE_FACTOR
            factor *= BOUND_FACTOR if has_value and self._list_bounds(unit.text) else 1.0
        if query.defined_term:
            letters = to_letters(re.sub(r"\([^()]*\)", "", unit.text))
            factor *= (
                DEFINITION_FACTOR
                if re.search(re.escape(query.defined_term) + _DEFINES, letters)
                else 1.0
            )
        if query.wants_list and stretch.list_children(unit_index):
            factor *= LIST_FACTOR
        return factor

    def _is_answer(self, best: _RankedUnit) -> bool:
        """Whether the best unit answers the question: it has enough of its words, and the value."""
        query, stretch = self.query, self.stretches[best.stretch_index]
        if query.value:
            if any(word.name and index not in best.words for index, word in enumerate(query.words)):
                return False
            if not best.own_words.issuperset(self.owners.values()):
                return False
            unit = stretch.units[best.unit_index]
            lead = [] if unit.lead is None else [unit.lead]
            unit_indexes = [
                best.unit_index,
                *lead,
                *stretch.list_children(best.unit_index),
                *stretch.list_block(best.unit_index),
            ]
            if not any(query.value.is_in(stretch.units[index]) for index in unit_indexes):
                return False
        total = math.fsum(self.weights)
        return total > 0 and self._sum_weights(best.words) >= MIN_FOUND_SHARE * total

    def _write_not_found(self, named_titles: Sequence[str]) -> str:
        """A sentence saying what was not found, and in which documents."""
        query, language = self.query, self.builder.language
        found_words = self.ranked[0].words if self.ranked else ()
        words = [word for index, word in enumerate(query.words) if index not in found_words]
        missing = [word.text for word in words if word.weight == 1 or _find_years(word.text)]
        missing_text = markdown.escape_line(
            " ".join((missing or [word.text for word in query.words])[:4])
        )
        if not missing_text:
            return get_reply("passages_nothing", language)
        if not named_titles:
            return get_reply("passages_nothing_on", language, what=missing_text)
        titles = map(markdown.escape_line, named_titles[:2])
        where = ", ".join(get_reply("passages_title", language, title=title) for title in titles)
        return get_reply("passages_nothing_in", language, where=where, what=missing_text)

    def _render_block(self, decisive: _RankedUnit, room: int) -> str:
        """The decisive unit in bold, with its paragraph, or with its list and the lead-in."""
        stretch, decisive_index = self.stretches[decisive.stretch_index], decisive.unit_index
        top, lead = decisive_index, stretch.units[decisive_index].lead
        if lead is not None and stretch.units[lead].kind is UnitKind.SENTENCE:
            top = (
                lead
                if stretch.units[lead].announces_list or self.query.wants_list
                else decisive_index
            )
        items = stretch.list_children(top)
        if top != decisive_index and not self.query.wants_list:
            items = self._select_siblings(decisive, items)
        paragraph = (
            [top]
            if items
            else self._list_continuation(stretch, decisive_index, min(room, MAX_BLOCK_CHARACTERS))
        )
        lines = [
            " ".join(self._render_unit(decisive, index) for index in paragraph)
            + f" [{stretch.slot}]"
        ]
        self.builder.shown.update((decisive.stretch_index, index) for index in paragraph)
        hidden_count = 0
        for item, depth in stretch.walk_items(items):
            mark = stretch.units[item].mark
            is_numbered = re.fullmatch(r"\d{1,3}\.", mark)
            body = self._render_unit(decisive, item, with_mark=not is_numbered)
            text = f"{mark if is_numbered else '-'} {body}"
            if sum(map(len, lines)) + len(text) > room and item != decisive_index:
                hidden_count += 1
                continue
            lines.append(f"{'   ' * depth}{text} [{stretch.slot}]")
            self.builder.shown.add((decisive.stretch_index, item))
        more = (
            get_reply("passages_items", self.builder.language, count=str(hidden_count))
            if hidden_count
            else ""
        )
        return "\n\n".join(filter(None, [lines[0], "\n".join(lines[1:]), more]))

    def _select_siblings(self, decisive: _RankedUnit, items: Sequence[int]) -> list[int]:
        """The decisive item and those of its list that are nearly as good, in order."""
        good = {
            item.unit_index
            for item in self.ranked
            if item.stretch_index == decisive.stretch_index
            and item.score >= MIN_SHARE_OF_BEST * self.ranked[0].score
        }
        return [item for item in items if item == decisive.unit_index or item in good]

    def _render_unit(
        self, decisive: _RankedUnit, unit_index: int, *, with_mark: bool = True
    ) -> str:
        """A unit with its list mark; the decisive one in bold."""
        unit = self.stretches[decisive.stretch_index].units[unit_index]
        shows_mark = with_mark and unit.mark != "ㅇ" and any(map(str.isalnum, unit.mark))
        text = markdown.escape_line(
            self._shorten_around_words(f"{unit.mark} {unit.text}" if shows_mark else unit.text)
        )
        return f"**{text}**" if unit_index == decisive.unit_index else text

    def _list_continuation(self, stretch: Stretch, unit_index: int, room: int) -> list[int]:
        """A sentence and those that follow it in its paragraph, as far as they fit."""
        block = [
            unit_index,
            *(index for index in stretch.list_block(unit_index) if index > unit_index),
        ]
        lengths = accumulate(len(stretch.units[index].text) for index in block)
        fitting = [index for index, length in zip(block, lengths, strict=True) if length <= room]
        return fitting or [unit_index]

    def _render_table(self, decisive: _RankedUnit, room: int) -> str:
        """The best rows of a table with its header; the cell asked for in bold."""
        stretch, wants_list = self.stretches[decisive.stretch_index], self.query.wants_list
        unit = stretch.units[decisive.unit_index]
        self.builder.shown.add((decisive.stretch_index, decisive.unit_index))
        if not unit.columns or sum(map(len, unit.columns)) > room:
            text = markdown.escape_line(self._shorten_around_words(unit.text))
            return f"**{text}** [{stretch.slot}]"
        block = set(stretch.list_block(decisive.unit_index))
        min_score = 0.0 if wants_list else MIN_SHARE_OF_BEST * decisive.score
        table_rows = [
            row
            for row in self.ranked
            if row.stretch_index == decisive.stretch_index and row.unit_index in block
        ]
        unit_words = self.words_by_unit[decisive.stretch_index]
        names = {index for index, word in enumerate(self.query.words) if word.name}
        # whoever asks for E-1234 does not want the rows of other codes
        same_names = [
            row
            for row in table_rows
            if unit_words[row.unit_index] & names or not unit_words[decisive.unit_index] & names
        ]
        good_rows = [row.unit_index for row in same_names if row.score >= min_score]
        rows = {decisive.unit_index, *good_rows[: MAX_LISTED_ROWS if wants_list else MAX_ROWS]}
        width = max(len(unit.columns), *(len(stretch.units[index].cells) for index in rows))
        lines = [_render_row(unit.columns, width), "|" + " --- |" * width]
        for index in sorted(rows):
            bold = (self._find_asked_cell(unit) or 0) if index == decisive.unit_index else None
            line = _render_row(stretch.units[index].cells, width, bold)
            if index == decisive.unit_index or sum(map(len, lines)) + len(line) <= room:
                lines.append(f"{line[:-2]} [{stretch.slot}] |")
        self.builder.shown.update(
            (decisive.stretch_index, index) for index in block
        )  # a table is shown only once
        caption = " ".join(map(markdown.escape_line, stretch.captions.get(unit.block, ())))
        hidden_count = len({decisive.unit_index, *good_rows}) - (len(lines) - 2)
        if wants_list and hidden_count:
            more = get_reply("passages_items", self.builder.language, count=str(hidden_count))
            lines += ["", more]
        return "\n".join([caption, "", *lines] if caption else lines)

    def _find_asked_cell(self, unit: Unit) -> int | None:
        """The cell whose column name has most of the question's words that the row's name lacks."""
        row_words = self._find_contained_words(unit.cells[0])
        columns = enumerate(zip(unit.columns, unit.cells, strict=False))
        gains = [
            (len(self._find_contained_words(column) - row_words), index)
            for index, (column, cell) in columns
            if index and cell
        ]
        best_gain, best_index = max(gains, default=(0, 0))
        return best_index if best_gain else None

    def _extract_value(self, unit: Unit) -> str:
        """The value asked for as the unit writes it: the one closest to the question's words.

        Empty if it cannot be told from other values: there is one for each of several things, or
        the question's words occur only in the heading.
        """
        if self.query.value is None or self.query.wants_each:
            return ""
        if unit.kind is UnitKind.ROW:
            cell = self._find_asked_cell(unit)
            return "" if cell is None else unit.cells[cell][:MAX_VALUE_CHARACTERS]
        asked = [
            match.span()
            for word in self.query.words
            if any(map(str.isdigit, word.text))
            for match in re.finditer(re.escape(word.text), unit.text, re.IGNORECASE)
        ]  # of "2분기 매출은 얼마야?" the 2 is no value
        values = [
            match
            for match in self.query.value.finds.finditer(unit.text)
            if not any(start <= match.start() < end for start, end in asked)
        ]
        if not values or (len(values) > 1 and not self._find_contained_words(unit.text)):
            return ""
        bounds = self._list_bounds(unit.text)
        values = [match for match in values if match.start() in bounds] or values
        middle = self._find_densest_offset(unit.text, MAX_VALUE_CHARACTERS)
        match = min(values, key=lambda found: abs(found.start() - middle))
        start = match.start()
        prefix = _PATTERNS["before_value"].search(unit.text[max(0, start - 40) : start])
        suffix = _PATTERNS["behind_value"].match(unit.text[start : start + MAX_VALUE_CHARACTERS])
        value = max(suffix[0] if suffix else "", match[0], key=len)
        value = f"{prefix[0] if prefix else ''}{value}".strip(" ,.;:·\"'“”()")
        value += ")" * (value.count("(") - value.count(")"))
        return _VALUE_ENDING.sub("", value)

    def _list_bounds(self, text: str) -> set[int]:
        """Where the values begin that are the beginning or end asked for: 8 in "8학년까지"."""
        if not self.query.value or not self.query.bound:
            return set()
        tail = re.compile(rf"[가-힣]{{0,2}}{self.query.bound}")
        found = self.query.value.finds.finditer(text)
        return {match.start() for match in found if tail.match(text, match.end())}

    def _shorten_around_words(self, text: str) -> str:
        """A long text shortened to where most of the question's words are."""
        if len(text) <= MAX_SHOWN_CHARACTERS:
            return text
        middle = self._find_densest_offset(text, MAX_SHOWN_CHARACTERS // 2)
        start = max(0, min(middle - MAX_SHOWN_CHARACTERS // 2, len(text) - MAX_SHOWN_CHARACTERS))
        end = start + MAX_SHOWN_CHARACTERS
        return f"{'…' if start else ''}{text[start:end].strip()}{'…' if end < len(text) else ''}"

    def _find_densest_offset(self, text: str, reach: int) -> int:
        """The offset in a text with the most words of the question within `reach` characters."""
        alternatives = "|".join(sorted({re.escape(word.text) for word in self.query.words}))
        matches = [
            (m.start(), m[0]) for m in re.finditer(alternatives, text, re.IGNORECASE) if m[0]
        ]

        def count_near(offset: int) -> tuple[int, int]:
            close = [
                (abs(offset - position), word)
                for position, word in matches
                if abs(offset - position) <= reach
            ]
            return len({word for _, word in close}), -sum(distance for distance, _ in close)

        return max((position for position, _ in matches), key=count_near, default=0)


_DEFINES = "(?:이?란|이?라함은|이?라한다|means|refersto)"


def _get_own_text(unit: Unit) -> str:
    """The text of a unit without its context: of a row only its cells."""
    return " ".join(unit.cells) if unit.kind is UnitKind.ROW else unit.text


def _read_name(unit: Unit) -> str:
    """The name of the document's subject if the unit gives nothing else ("사업명: …").

    Empty for other units, including rows of a form that have a further field.
    """
    label = _PATTERNS["name_label"].match(unit.cells[0] if unit.cells else unit.text)
    if label is None:
        return ""
    if unit.kind is UnitKind.ROW:
        values = {*unit.cells[1:]} - {""}
        return values.pop() if len(values) == 1 else ""
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
    texts = [
        markdown.escape_line(cell[:MAX_SHOWN_CHARACTERS]).replace("|", "\\|") for cell in filled
    ]
    if bold is not None and texts[bold].strip():
        texts[bold] = f"**{texts[bold]}**"
    return f"| {' | '.join(texts)} |"


def _compare_documents(
    query: PassageQuery,
    stretches: Sequence[Stretch],
    slots: Sequence[int],
    named: Sequence[str],
    language: str,
) -> PassagesAnswer:
    """One block per document, each on the question without the other documents' names."""
    titles = {stretch.slot: _Text(stretch.title) for stretch in stretches}
    chosen = [slot for slot in slots if titles[slot].text in named]
    chosen = (chosen if len(chosen) > 1 else list(slots))[:MAX_PASSAGES]
    naming = {
        word: {slot for slot, title in titles.items() if word.is_in_title(title)}
        for word in query.words
    }
    if all(naming.values()):
        return _outline_documents(
            stretches, chosen, language
        )  # nothing but names was asked: outline each document
    parts: list[str] = []
    spans: dict[int, tuple[tuple[int, int], ...]] = {}
    cited: list[tuple[int, int]] = []
    for slot in chosen:
        words = tuple(word for word, owners in naming.items() if slot in owners or not owners)
        own_stretches = [stretch for stretch in stretches if stretch.slot == slot]
        composer = _Composer(replace(query, words=words), own_stretches, language)
        answer = composer.answer([titles[slot].text], ROOM_CHARACTERS // len(chosen))
        parts.append(answer.text)
        spans |= answer.spans
        cited += answer.cited
    return PassagesAnswer("\n\n".join(parts), spans, tuple(cited))


def _outline_documents(
    stretches: Sequence[Stretch], slots: Sequence[int], language: str
) -> PassagesAnswer:
    """The most informative sentences of whole documents, in order, under their headings."""
    builder = _AnswerBuilder(language, has_more=True)
    for slot in slots[:MAX_PASSAGES]:
        own_stretches = [one for one in stretches if one.slot == slot]
        chosen = _select_outline_sentences(
            own_stretches, ROOM_CHARACTERS // min(len(slots), MAX_PASSAGES)
        )
        builder.parts.append(f"「{markdown.escape_line(own_stretches[0].title)}」")
        if not chosen:
            builder.parts.append(get_reply("passages_nothing_told", language))
        by_heading = [
            (
                stretch_index,
                own_stretches[stretch_index].units[unit_index].heading,
                own_stretches[stretch_index].units[unit_index],
            )
            for stretch_index, unit_index in chosen
        ]
        for (stretch_index, heading), units in groupby(by_heading, lambda one: one[:2]):
            lines = (
                []
                if heading is None
                else [
                    f"**{markdown.escape_line(own_stretches[stretch_index].units[heading].text)}**"
                ]
            )
            builder.parts.append("\n".join(lines))
            for _, _, unit in units:
                builder.parts[-1] += (
                    f"\n- {markdown.escape_line(_shorten_sentence(unit.text))} [{slot}]"
                )
                builder.add_citation(own_stretches[stretch_index], unit)
            builder.parts[-1] = builder.parts[-1].lstrip("\n")
    return builder.build_answer()


def _shorten_sentence(text: str) -> str:
    cut = text[:MAX_OUTLINED_CHARACTERS]
    return text if cut == text else f"{cut.rpartition(' ')[0] or cut}…"


def _select_outline_sentences(stretches: Sequence[Stretch], room: int) -> list[tuple[int, int]]:
    """The sentences that say most about a document, in its order.

    Words that the document repeats and figures count; each sentence must add new words.
    """
    units = {
        (stretch_index, unit_index): unit
        for stretch_index, stretch in enumerate(stretches)
        for unit_index, unit in enumerate(stretch.units)
        if unit.kind is UnitKind.SENTENCE
        and len(unit.text) >= MIN_OUTLINED_CHARACTERS
        and stretch.is_quotable(unit_index)
        and not stretch.is_caption(unit_index)
    }
    terms = {key: set(tokenize.count_terms(unit.text)) for key, unit in units.items()}
    counts = Counter(term for sentence_terms in terms.values() for term in sentence_terms)

    def score_sentence(key: tuple[int, int]) -> float:
        score = math.fsum(math.log1p(counts[term]) for term in terms[key] if counts[term] > 1)
        score /= math.sqrt(len(units[key].text)) + 4
        score *= FIGURES_FACTOR if re.search(r"\d", units[key].text) else 1.0
        return round(score, 9)

    chosen: list[tuple[int, int]] = []
    covered: set[str] = set()
    candidates = (key for key, unit in units.items() if not unit.is_bare_date)
    for key in sorted(candidates, key=lambda stretch: (-score_sentence(stretch), stretch)):
        length = len(_shorten_sentence(units[key].text))
        if len(terms[key] - covered) >= 0.4 * len(terms[key]) and length <= room:
            chosen.append(key)
            covered |= terms[key]
            room -= length + 12
    return sorted(chosen)
