"""Whether a question follows from the conversation, and which words it takes over from there.

The bond is a logistic function of signals in its words (`rag/lexicon/followup.toml`), fitted on
dialogues as described in docs/notes/conversations.md.
"""

import functools
import itertools
import math
import re
from bisect import bisect
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rag import tokenize
from rag.config import MemoryRules
from rag.conversation import Conversation, PastTurn
from rag.lexicon import load_patterns, load_phrases, load_rules, load_words
from rag.tokenize.korean import Morpheme, strip_particle
from rag.types import QuestionType
from rag.understand import filters, kinds
from rag.understand.filters import find_names, to_name_key
from rag.understand.kinds import ParsedMessage, read_message

MAX_TURNS = 4
"""Number of last turns that are considered."""
MAX_TEXT_CHARACTERS = 1000
"""Characters read of each question and answer, from its beginning."""
MAX_TITLES = 8
"""Number of titles of documents of earlier answers that are considered."""
MAX_SHARED_NOUNS, MAX_RUN_NOUNS, MAX_NEW_NOUNS = 3, 4, 5
MAX_CARRIED_WORDS = 6
"""Most words carried over."""
SIDE_WEIGHT = 0.5
"""Weight of a word that names an aspect ("기한"); one that names the thing has 1."""

_SPACE = re.compile(r"\s")
_PATTERNS = load_patterns("followup")
_WEIGHTS: Mapping[str, Mapping[str, float]] = load_rules("followup")["weights"]
_NAMING_TAGS = frozenset(("NNG", "NNP", "XR"))
_NOUN_TAGS = _NAMING_TAGS | {"NR", "SL", "SH"}
_NOUN_PART_TAGS = _NOUN_TAGS | {"NNB", "SN", "XSN", "XPN"}
_RELATIONAL = load_words("relational.ko") | tokenize.load_stems("relational.en")
"""Nouns that name an aspect and need its subject: "기한", "penalty"."""
_PLAIN_STEMS = tokenize.load_stems("plain.en")
_SERIES = {word: line.split()[0] for line in load_phrases("series") for word in line.split()}
"""Words that can replace each other, by the first word of their line.

Y stands for a year of four digits, # for any other number.
"""
_YEAR, _FIGURES = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)"), re.compile(r"\d[\d.,]*")
_ORDINAL = re.compile(r"제(?=\d)")
_PARTICLE_PAIRS = {
    pair[at]: (pair[0], pair[1]) for pair in ("은는", "이가", "을를", "과와") for at in (0, 1)
}
"""By either form: the particle after a final consonant, and the one after a vowel."""


def list_titles(conversation: Conversation) -> tuple[str, ...]:
    """The names of the documents that the conversation is about."""
    remembered = [item.title for item in conversation.memory.documents]
    shown = [ref.title for turn in conversation.current_turns[-MAX_TURNS:] for ref in turn.doc_refs]
    return tuple(name for name in dict.fromkeys((*remembered, *shown)) if name.strip())[:MAX_TITLES]


@functools.lru_cache(maxsize=256)
def find_nouns(text: str) -> frozenset[str]:
    """The nouns of a text, Latin words by their stems; words that only ask are left out."""
    clean = tokenize.normalise(text)
    nouns = {
        item.form.lower()
        for item in tokenize.analyse_morphemes(clean) or ()
        if item.tag in _NAMING_TAGS and not item.form.isascii()
    }
    for word in clean.split():
        nouns.update(term for term in tokenize.read_surface(word).others if not term[0].isdigit())
    return frozenset(nouns - tokenize.ASKING_WORDS)


def find_naming_nouns(text: str) -> frozenset[str]:
    """The nouns of a text that name something by themselves."""
    return find_nouns(text) - _RELATIONAL


# Signals of the bond in the words of a question


def find_signals(
    message: ParsedMessage, conversation: Conversation, rules: MemoryRules
) -> dict[str, float]:
    """Signals in the words of a question within its conversation; 0 if absent."""
    turns = conversation.current_turns[-MAX_TURNS:]
    texts = [
        text[:MAX_TEXT_CHARACTERS]
        for turn in turns
        for text in (turn.user_text, turn.assistant_text)
    ]
    known_nouns = frozenset[str]().union(*map(find_nouns, (*texts, *list_titles(conversation))))
    return {
        "bias": 1.0,
        "reference": float(is_pointing_back(message)),
        "connective": float(is_continuation(message, rules)),
        **(_find_korean_signals if message.korean else _find_english_signals)(message, known_nouns),
    }


def estimate_follow_up_likelihood(message: ParsedMessage, signals: Mapping[str, float]) -> float:
    """How likely a question with these signals is a follow-up, 0..1."""
    weights = _WEIGHTS["ko" if message.korean else "en"]
    logit = sum(weights[name] * value for name, value in signals.items())
    return 1 / (1 + math.exp(-logit))


def list_cues(rules: MemoryRules) -> Sequence[str]:
    """The configured follow-up words."""
    return rules.followup_words or load_phrases("followup_words")


def is_continuation(message: ParsedMessage, rules: MemoryRules) -> bool:
    """Whether it begins as a continuation."""
    if _PATTERNS["connective"].match(message.text):
        return True
    start = len(message.text) - len(message.text.lstrip(" \"'([“‘"))
    return any(
        place[0] == start for word in list_cues(rules) for place in message.find_places(word)
    )


_PRONOUNS = load_words("pronouns.ko")
_POINTING_WORDS = frozenset(("그", "이", "저", "해당", "그런", "이런", "위", "상기"))


def is_pointing_back(message: ParsedMessage) -> bool:
    """Whether words refer back: "그거", "위에서 말한", "the former"."""
    if not message.korean:
        return bool(_PATTERNS["points_english"].search(message.text))
    return bool(_PATTERNS["points_korean"].search(message.text)) or any(
        (item.tag == "NP" and item.form in _PRONOUNS)
        or (
            item.tag in ("MM", "NNG")
            and item.form in _POINTING_WORDS
            and after.tag.startswith("N")
            and after.start > item.end  # 이 법, 해당 기관; no part of a word
        )
        for item, after in itertools.pairwise(message.morphemes or ())
    )


def is_sentence(message: ParsedMessage) -> bool:
    """Whether it has a predicate: "연차 며칠이야?", and not "연차는?"."""
    if not message.korean:
        return not _is_english_fragment(message)
    return any(
        item.tag[:1] == "V" or item.tag in ("XSV", "XSA") for item in message.morphemes or ()
    )


def _is_english_fragment(message: ParsedMessage) -> bool:
    return len(message.text.split()) <= 4 or not _PATTERNS["verb"].search(message.text)


def _find_korean_signals(message: ParsedMessage, known_nouns: frozenset[str]) -> dict[str, float]:
    morphemes = message.morphemes or ()
    nouns = find_nouns(kinds.strip_table_wish(message.text))
    count = _count_words(message.text, morphemes, nouns - _RELATIONAL - known_nouns)
    is_fragment = not any(item.tag in ("VV", "VA", "XSV", "XSA", "VCN") for item in morphemes)
    proper_nouns = {item.form.lower() for item in morphemes if item.tag == "NNP"}
    has_topic = (
        len(morphemes) > 1 and morphemes[0].tag == "NNG" and morphemes[1].tag in ("JX", "JKS")
    )
    return {
        "nouns": math.log1p(len(nouns)),
        "new_none": float(count == 0),
        "new_one": float(count == 1),
        "new_two": float(count == 2),
        "new_more": float(max(0, min(count, MAX_NEW_NOUNS) - 2)),
        "shared": float(min(len(nouns & known_nouns), MAX_SHARED_NOUNS)),
        "run": float(max(0, min(_measure_longest_run(morphemes), MAX_RUN_NOUNS) - 1)),
        "condition": float(
            any(item.tag == "EC" and item.form.endswith("면") for item in morphemes)
        ),
        "proper": float(bool(proper_nouns - known_nouns)),
        "also": float(
            any(item.tag == "JX" and item.form in ("도", "까지도") for item in morphemes)
        ),
        "topic": float(has_topic),
        "fragment": float(is_fragment),
        "statement": float(not kinds.is_asking(message)),
    }


def _count_words(text: str, morphemes: Sequence[Morpheme], nouns: Collection[str]) -> int:
    """How many words between white space contain one of these nouns; a compound counts once."""
    starts = [item.start for item in morphemes if item.form.lower() in nouns]
    latin = sum(not tokenize.HANGUL.search(noun) for noun in nouns)
    spaces = [space.start() for space in _SPACE.finditer(text)]
    return len({bisect(spaces, start) for start in starts}) + latin


def _measure_longest_run(morphemes: Sequence[Morpheme]) -> int:
    """Longest run of nouns, as in "체육 지도자 자격"; those for an aspect do not count."""
    longest = length = 0
    for item in morphemes:
        if (item.tag in _NAMING_TAGS or item.tag == "SL") and item.form not in _RELATIONAL:
            length += 1
            longest = max(longest, length)
        elif item.tag not in _NOUN_PART_TAGS:
            length = 0
    return longest


def _find_english_signals(message: ParsedMessage, known_nouns: frozenset[str]) -> dict[str, float]:
    terms = find_nouns(message.text) - _PLAIN_STEMS
    naming_terms = terms - _RELATIONAL
    names = {
        tokenize.stem_word(name.lower()) for name in _PATTERNS["name"].findall(message.raw)
    } - {"i"}
    return {
        "length": math.log1p(len(message.text)),
        "nouns": math.log1p(len(terms)),
        "new": math.log1p(len(naming_terms - known_nouns)),
        "shared": float(min(len(naming_terms & known_nouns), MAX_SHARED_NOUNS)),
        "proper": float(bool(names - known_nouns)),
        "self": float(bool(_PATTERNS["speaks_of_self"].search(message.text))),
        "fragment": float(_is_english_fragment(message)),
    }


# Words that say what the last turns were about, and can be carried over to another question


@dataclass(frozen=True, slots=True)
class Word:
    """A word that says what something is about, with its terms.

    `weight` is 1 for a word that names something, less for one that names an aspect of it ("기한").
    `is_document`: it is the name of a law or document; `is_article`: the number of an article.
    """

    text: str
    terms: frozenset[str]
    weight: float = 1.0
    is_document: bool = False
    is_article: bool = False

    @property
    def series(self) -> str:
        """What all words of its kind have in common: "#분기" of "1분기"; empty without numbers."""
        text = _ORDINAL.sub("", self.text.lower())
        shape = _FIGURES.sub("#", _YEAR.sub("Y", text))
        return _SERIES.get(shape, shape if "#" in shape and shape != "#" else "")

    @property
    def is_name(self) -> bool:
        """Whether it names one thing."""
        marked = self.text[:1].isupper() or any(sign.isdigit() for sign in self.text)
        return self.is_document or self.is_article or marked


@dataclass(frozen=True, slots=True)
class QuestionWords:
    """The words of a question; `rest` is its text without names of documents."""

    text: str
    rest: str
    words: tuple[Word, ...]
    refers_back: bool

    @property
    def weight(self) -> float:
        """How much the question says by itself: the sum of its words' weights."""
        return sum(word.weight for word in self.words)


def read_words(text: str, conversation: Conversation) -> QuestionWords:
    """The words of a question; names of documents of its conversation are recognised."""
    names = (name for name in list_titles(conversation) if filters.is_distinct("title", name))
    return _read_words(text, tuple(names))


def read_topic_turns(conversation: Conversation) -> tuple[tuple[PastTurn, QuestionWords], ...]:
    """The last turns with a topic, oldest first, back to one that stands alone.

    Small talk and mere statements ("담당자는 김지훈이야") have none.
    """
    turns: list[tuple[PastTurn, QuestionWords]] = []
    for turn in reversed(conversation.current_turns[-MAX_TURNS:]):
        if turn.question_type == QuestionType.RESET:
            break
        text = turn.user_text[:MAX_TEXT_CHARACTERS].strip()
        if not text or kinds.is_smalltalk(text) or kinds.is_statement(text):
            continue
        words = read_words(text, conversation)
        turns.insert(0, (turn, words))
        if _is_self_contained(turn, words):
            break
    return tuple(turns)


def carry_words(question_words: QuestionWords, turns: Sequence[QuestionWords]) -> list[Word]:
    """The words of earlier questions that a question lacks, in the order of the conversation.

    From a question that was itself a follow-up, words for aspects are not taken. A law replaces
    an earlier one and its articles, and any word replaces an earlier one of its kind.
    """
    known = {term for word in question_words.words for term in word.terms}
    has_document = any(word.is_document for word in question_words.words)
    has_article = any(word.is_article for word in question_words.words)
    carried: list[Word] = []
    later = [question_words]
    for age, turn in enumerate(reversed(turns)):
        is_oldest = age == len(turns) - 1
        replaced = {old for question in later for old in _find_replaced(question, turn)}
        later.append(turn)
        new_words: list[Word] = []
        for word in turn.words:
            is_conflicting = (word.is_document and has_document) or (
                word.is_article and (has_document or has_article)
            )
            is_side_word = word.weight < 1 and not is_oldest
            is_excluded = is_conflicting or is_side_word or word in replaced
            if not is_excluded and not word.terms <= known:
                new_words.append(word)
                known |= word.terms
        has_document |= any(word.is_document for word in new_words)
        has_article |= any(word.is_article for word in new_words)
        carried = new_words + carried
    best = sorted(range(len(carried)), key=lambda index: (not carried[index].is_name, index))[
        :MAX_CARRIED_WORDS
    ]
    return [carried[index] for index in sorted(best)]


def _find_replaced(later: QuestionWords, earlier: QuestionWords) -> dict[Word, Word]:
    """Words of an earlier question, with those of a later one that replace them.

    A number with a unit replaces one with the same unit, a month a month. If the later question
    has only one new word, a name replaces a name ("부산" for "서울"), and a compound replaces one
    that ends with the same noun ("개발팀" for "영업팀").
    """
    earlier_terms = {term for word in earlier.words for term in word.terms}
    later_terms = {term for word in later.words for term in word.terms}
    new_words = [word for word in later.words if not word.terms <= earlier_terms]
    old_words = [word for word in earlier.words if not word.terms <= later_terms]
    replaced = {
        old: new
        for new in new_words
        for old in old_words
        if old.series and old.series == new.series
    }
    if replaced or len(new_words) != 1 or later.refers_back:
        return replaced
    (new,) = new_words
    kind = _find_kind(new)
    return {old: new for old in old_words if kind and _find_kind(old) == kind}


@functools.lru_cache(maxsize=256)
def _find_kind(word: Word) -> str:
    """The last noun of a Korean compound, "NNP" for a proper name; empty for any other word."""
    nouns = [
        item
        for item in tokenize.analyse_morphemes(word.text) or ()
        if item.tag in _NOUN_PART_TAGS and not word.is_document and not word.is_article
    ]
    if len(nouns) == 1:
        return "NNP" if nouns[0].tag == "NNP" else ""
    return nouns[-1].form if nouns and nouns[-1].tag in ("NNG", "XSN", "NNB") else ""


def adapt_earlier_question(
    question_words: QuestionWords, turns: Sequence[QuestionWords], conversation: Conversation
) -> str:
    """The previous question, adapted: "1분기 매출은?", "그럼 2분기는?" as "2분기 매출은?".

    Empty if the question says more than that, or if it is unclear which words are replaced.
    """
    earlier, *rest = turns
    for later in rest:
        text = _adapt_question(later, earlier)
        earlier = read_words(text, conversation) if text else later
    return _adapt_question(question_words, earlier)


def _adapt_question(later: QuestionWords, earlier: QuestionWords) -> str:
    replaced = _find_replaced(later, earlier)
    known = {term for word in (*earlier.words, *replaced.values()) for term in word.terms}
    terms = tokenize.find_subject_terms(later.text).union(*(word.terms for word in later.words))
    is_unclear = len(set(replaced.values())) < len(replaced)
    asks, earlier_asks = (
        set(_PATTERNS["asks"].findall(question.text.lower())) for question in (later, earlier)
    )
    if (
        not replaced
        or is_unclear
        or later.refers_back
        or not (terms <= known and asks <= earlier_asks)
    ):
        return ""
    text = tokenize.normalise(earlier.text)
    for old, new in replaced.items():
        text = _replace_word(text, old.text, new.text)
    return text


def _replace_word(text: str, old: str, new: str) -> str:
    """The text with a word replaced, and its particle adapted to the new word.

    "2호" replaces "제1호" as "제2호", as documents write it.
    """
    if _ORDINAL.match(old) and new[0].isdigit():
        new = f"제{new}"
    match = re.search(rf"(?<!\w){re.escape(old)}((?:은|는|이|가|을|를|과|와)(?!\w))?", text)
    if match is None:
        return text
    particle = match[1] or ""
    if particle and tokenize.HANGUL.fullmatch(new[-1]):
        is_closed = (ord(new[-1]) - ord("가")) % 28 > 0
        particle = _PARTICLE_PAIRS[particle][0 if is_closed else 1]
    return f"{text[: match.start()]}{new}{particle}{text[match.end() :]}"


def complete_text(text: str, carried: Sequence[Word]) -> str:
    """The carried words, followed by the question without the words that point back."""
    if not carried:
        return text
    question = _PATTERNS["beginning"].sub("", text).strip()
    question = _PATTERNS["pointing_word"].sub("", question) or question
    prefix = " ".join(word.text for word in carried)
    korean = tokenize.HANGUL.search(question or prefix)
    return f"{prefix} {question}" if korean else f"{prefix}: {question}"


@functools.lru_cache(maxsize=64)
def _read_words(text: str, names: tuple[str, ...]) -> QuestionWords:
    clean = tokenize.normalise(text)
    morphemes = tokenize.analyse_morphemes(clean)
    laws = find_names(clean)
    written = {to_name_key(name): name for name in names}
    words: dict[str, Word] = {}
    rest: list[str] = []
    for match in _split_words(clean, names):
        is_title = match[1] is not None
        word_text = (
            written[to_name_key(match[1])] if is_title else _strip_to_noun(clean, match, morphemes)
        )
        terms = frozenset(tokenize.find_subject_terms(word_text)) if word_text else frozenset()
        is_document = bool(terms) and (is_title or re.sub("[ㆍ·]+", "", word_text) in laws)
        if terms:
            weight = SIDE_WEIGHT if terms <= _RELATIONAL and not is_title else 1.0
            is_article = bool(_PATTERNS["article"].match(word_text))
            words.setdefault(word_text, Word(word_text, terms, weight, is_document, is_article))
        if not is_document:
            rest.append(match[0])
    return QuestionWords(
        text, " ".join(rest), tuple(words.values()), is_pointing_back(read_message(text))
    )


def _split_words(text: str, names: Iterable[str]) -> Iterable[re.Match[str]]:
    """The words between white space; group 1 is the name of a document that one begins with."""
    longest_first = sorted(map(tokenize.normalise, names), key=len, reverse=True)
    shapes = [r"\s*".join(map(re.escape, name.split())) for name in longest_first]
    return re.finditer(rf"({'|'.join(shapes) or '(?!)'})\S*|\S+", text, re.IGNORECASE)


def _strip_to_noun(text: str, match: re.Match[str], morphemes: Sequence[Morpheme] | None) -> str:
    """A word without its particle; empty if it has no noun."""
    edges = r"^[^\w]+|[^\w+#%]+$"
    word = match[0]
    if morphemes is None or not tokenize.HANGUL.search(word):
        return re.sub(edges, "", strip_particle(word) if morphemes is None else word)
    word_morphemes = [
        item for item in morphemes if match.start() <= item.start and item.end <= match.end()
    ]
    has_noun = any(
        item.tag in _NOUN_TAGS and item.form not in tokenize.ASKING_WORDS for item in word_morphemes
    )
    is_numbered = {"SN", "NNB"} <= {item.tag for item in word_morphemes}  # 2024년, 3월
    if not (has_noun or is_numbered or _PATTERNS["article"].match(word)):
        return ""
    end = max(
        (item.end for item in word_morphemes if item.tag in _NOUN_PART_TAGS), default=match.end()
    )
    return re.sub(edges, "", text[match.start() : end])


def _is_self_contained(turn: PastTurn, words: QuestionWords) -> bool:
    """Whether a turn's question was complete by itself: as judged then, else by its words."""
    if turn.question_type:
        return turn.question_type == QuestionType.SINGLE
    if any(word.is_document for word in words.words):
        return True
    return not words.refers_back and words.weight >= 2
