"""What kind of message it is, and how it is to be answered, by its words.

Small talk, a comparison, a question on several documents or on whole ones, a wish to begin anew, a
look-up or mere talk (`rag/lexicon/kinds.toml`); an answer in the shape of its intent
(`rag/lexicon/intents.toml`), else as its assistant is set up.
"""

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rag import tokenize
from rag.config import MemoryRules
from rag.lexicon import load_patterns, load_phrases, load_words
from rag.tokenize.korean import Morpheme, strip_particle
from rag.types import Intent, QuestionType, Scope, ScopeReason

_IS = load_patterns("kinds")
MAX_MESSAGE_CHARACTERS = 2000
"""Characters of a message that its words are looked for in."""
MAX_THANKS_CHARACTERS = 60
"""Characters of a message that only greets, thanks or agrees."""


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """A message as written (`raw`), in small letters, and with its morphemes.

    `morphemes` None: the analyser is not there.
    """

    raw: str
    text: str
    morphemes: Sequence[Morpheme] | None

    @property
    def korean(self) -> bool:
        """Whether it contains Korean."""
        return bool(tokenize.HANGUL.search(self.text))

    def find_places(self, word: str) -> Iterable[tuple[int, int]]:
        """Where the word or phrase stands by itself, or as a whole part of a compound."""
        for match in _compile_word(word).finditer(self.text):
            if self._is_whole_word(*match.span()):
                yield match.span()

    def holds_any(self, words: Iterable[str]) -> bool:
        """True when one of the words stands in the message."""
        return any(True for word in words for _ in self.find_places(word))

    def _is_whole_word(self, start: int, end: int) -> bool:
        if not tokenize.HANGUL.search(self.text[start:end]):
            return True
        if self.morphemes is None:
            word = re.match(r"\w+", self.text[start:])
            return not re.match(r"\w", self.text[start - 1 : start]) and (
                word is not None and strip_particle(word[0]) == self.text[start:end]
            )
        return any(item.start == start for item in self.morphemes) and any(
            item.end == end for item in self.morphemes
        )


def read_message(text: str) -> ParsedMessage:
    """The message as it is read: folded, composed, its beginning only."""
    clean = tokenize.normalise(text[:MAX_MESSAGE_CHARACTERS])
    return ParsedMessage(clean, clean.lower(), tokenize.analyse_morphemes(clean))


@functools.lru_cache(maxsize=256)
def _compile_word(word: str) -> re.Pattern[str]:
    """The word in small letters; spaces in Korean phrases are optional."""
    clean = tokenize.normalise(word).lower()
    if tokenize.HANGUL.search(clean):
        return re.compile(r"\s?".join(re.escape(part) for part in clean.split()))
    return re.compile(rf"(?<![^\W가-힣]){re.escape(clean)}(?![^\W가-힣])")


def decide_question_type(message: ParsedMessage, rules: MemoryRules) -> QuestionType:
    """The kind of the message, regardless of the conversation."""
    if is_smalltalk(message.text):
        return QuestionType.SMALLTALK
    if is_comparison(message, rules.compare_words):
        return QuestionType.COMPARE
    if is_about_several(message, rules.multi_words):
        return QuestionType.MULTI
    return QuestionType.SINGLE


def is_smalltalk(text: str) -> bool:
    """True for a greeting, thanks, or a question about the assistant itself, and nothing else."""
    stripped = text.strip()
    if _IS["greeting"].fullmatch(stripped):
        return True
    short = len(stripped) <= MAX_THANKS_CHARACTERS and not stripped.endswith("?")
    return short and bool(_IS["thanks"].fullmatch(stripped))


def is_comparison(message: ParsedMessage, words: Sequence[str] = ()) -> bool:
    """True when a word of comparison is meant as one. No `words`: those of the list."""
    return _is_meant(message, words or load_phrases("compare"))


def is_about_several(message: ParsedMessage, words: Sequence[str] = ()) -> bool:
    """True when several documents or bodies are asked about. No `words`: those of the list."""
    if not words and _IS["each"].search(_IS["not_meant"].sub(" ", message.text)):
        return True
    return _is_meant(message, words or load_phrases("multi"))


def _is_meant(message: ParsedMessage, words: Sequence[str]) -> bool:
    """Whether one of the words stands there and means what it is listed for: 대비, not 재난대비."""
    other_meanings = [match.span() for match in _IS["not_meant"].finditer(message.text)]
    return any(
        not any(begins < end and start < ends for begins, ends in other_meanings)
        for word in words
        for start, end in message.find_places(word)
    )


# Whether a message looks for information or just talks: by its form, not by its subject

_VERBS = frozenset(("VV", "VA", "XSV", "XSA"))
_NOUNS_AT_END = frozenset(("NNG", "NNP", "NNB", "NR", "SN", "SL", "XSN"))


def is_lookup(text: str) -> bool:
    """True for the form of a look-up.

    A question word, a request, a formal question, or a bare subject. Without Korean the form tells
    too little, and every message may be a look-up.
    """
    if not tokenize.HANGUL.search(text):
        return True
    if any(_IS[name].search(text) for name in ("question", "request", "formal")):
        return True
    last = _find_last_morpheme(tokenize.analyse_morphemes(text))
    return last is not None and last.tag in _NOUNS_AT_END | {"JX", "JKS"}


def is_asking(message: ParsedMessage) -> bool:
    """True for what asks or wishes, and does not merely tell."""
    if (
        message.text.rstrip().endswith("?")
        or is_lookup(message.text)
        or _IS["wish"].search(message.text)
    ):
        return True
    ends = [item.form for item in message.morphemes or () if item.tag in ("EF", "EC")]
    return bool(ends and _IS["asking_end"].search(ends[-1]))


def is_statement(text: str) -> bool:
    """True for what tells and asks nothing: "담당자는 김지훈이야", "My manager is Kim."."""
    message = read_message(text.strip())
    if message.text.endswith("?") or _IS["question"].search(message.text):
        return False
    if not message.korean:
        return bool(_IS["told"].match(message.raw)) and not _IS["request"].search(message.text)
    last = _find_last_morpheme(message.morphemes)
    if last is None or not is_asking(message):
        return last is not None and last.tag == "EF"
    topic = _IS["named_topic"].match(message.text)
    if topic is None or last.tag not in _NOUNS_AT_END or _IS["request"].search(message.text):
        return False
    return not any(
        item.tag in _VERBS and item.end <= topic.end() for item in message.morphemes or ()
    )


def is_about_speakers(text: str) -> bool:
    """True when the speakers themselves are the subject, as in chatting."""
    return bool(_IS["self"].search(text))


def _find_last_morpheme(morphemes: Sequence[Morpheme] | None) -> Morpheme | None:
    """The last one that is no mark."""
    words = (item for item in morphemes or () if item.tag[0] != "S" or item.tag in ("SN", "SL"))
    return next(reversed(list(words)), None)


# The wish to forget what the conversation was about; a question about resetting is none

MAX_RESET_CHARACTERS = 300
"""Characters at the beginning that must contain the request."""

_PARTICLE = "(?:은|는|이|가|을|를|도|의|로|으로|에서|부터|들|들을|들은|한|하고)?"


def find_reset(text: str, words: Sequence[str] = ()) -> str | None:
    """The question behind the wish to begin anew, "" where there is none; None without the wish.

    No `words`: those of the list.
    """
    clean = tokenize.normalise(text).strip()
    wish = _compile_wish(tuple(words) or load_phrases("reset"))
    at = 0
    while not (match := wish.match(clean, at)):
        before = _IS["before_reset"].match(clean, at)
        if before is None or before.end() > MAX_RESET_CHARACTERS:
            return None
        at = before.end()
    at = match.end()
    while after := _IS["after_reset"].match(clean, at):
        at = after.end()
    if not clean[at:].strip(" .!~…ㅋㅎ^)\n"):
        return ""
    pause = _IS["reset_pause"].match(clean, at)
    return clean[pause.end() :].strip() if pause else None


@functools.lru_cache(maxsize=8)
def _compile_wish(words: tuple[str, ...]) -> re.Pattern[str]:
    """Any of the phrases: spaces are optional and particles may stand between the words."""
    longest_first = sorted(map(tokenize.normalise, words), key=len, reverse=True)
    shapes = ((_PARTICLE + r"\s*").join(map(re.escape, phrase.split())) for phrase in longest_first)
    return re.compile(rf"(?:{'|'.join(shapes)})(?![a-z])", re.IGNORECASE)


# Questions on whole documents: "이 문서 요약해줘", "두 문서 비교해줘", "summarize this document"

_KINDS = load_words("document_kinds.ko")
_POINTED = re.compile(
    rf"{_IS['pointed'].pattern}(?:{'|'.join(sorted(_KINDS, key=len, reverse=True))})"
)
_PLACE = load_words("place") | tokenize.load_stems("place")
_NAMING_NOTHING = load_words("whole_document.ko") | tokenize.load_stems("whole_document.en")


def is_whole_question(text: str, scope: Scope, names: Collection[str] = ()) -> bool:
    """True when the question asks for the documents as a whole and names nothing to search for.

    A comparison that names no aspect asks for whole documents, too. Where the scope is merely
    everything the user has, the question must also mention documents; where documents were named by
    their place ("방금 2번"), nothing else needs to be said. `names` in the question are those of
    documents.
    """
    if not scope.document_ids:
        return False
    text = text[:MAX_MESSAGE_CHARACTERS]
    if scope.reason is ScopeReason.SLOT:
        known = _NAMING_NOTHING | _PLACE | load_comparing_terms()
        return all(term in known or term[0].isdigit() for term in _find_terms_asked(text))
    chosen = scope.reason is ScopeReason.EXPLICIT or len(scope.document_ids) == 1
    pointed = bool(_POINTED.search(text))
    document = bool(_IS["document"].search(text))
    mentions = bool(names or pointed or document)
    compared = (mentions or chosen) and is_comparison(read_message(text))
    if not (compared or _IS["whole"].search(text) or (document and len(text.split()) > 1)):
        return False  # "자료" alone is a word to look for
    if scope.reason is ScopeReason.ALL and not mentions:
        return False
    rest = _find_terms_asked(text).difference(*map(tokenize.find_subject_terms, names))
    unsaid = load_comparing_terms() if compared else frozenset()
    kinds = _KINDS if chosen or pointed else frozenset()
    return rest <= _NAMING_NOTHING | unsaid | kinds


def _find_terms_asked(text: str) -> set[str]:
    """What is asked about, but for how long the answer is to be."""
    return tokenize.find_subject_terms(_IS["length"].sub(" ", text))


def is_asking_throughout(text: str) -> bool:
    """True when something is asked of all of a document: "문서 전체에서 벌칙은?"."""
    return bool(_IS["throughout"].search(text))


@functools.cache
def load_comparing_terms() -> frozenset[str]:
    """The terms that only say that something is compared."""
    return frozenset(
        term for phrase in load_phrases("compare") for term in tokenize.count_terms(phrase)
    )


_ASKS_FOR = load_patterns("intents")
BY_WORDS, BY_ASSISTANT, USUAL = "words", "assistant", "usual"
"""What decided: the question's words, its assistant, or nothing."""


@dataclass(frozen=True, slots=True)
class IntentTemplate:
    """How a question with an intent is looked up and answered.

    `passages`: so many times as many as usual. `shape` names the prompt that the answer follows;
    empty: none.
    """

    passages: float = 1.0
    is_multi_document: bool = False
    shape: str = ""


# All search by fusion, which was never worse than one leg (docs/notes/retrieval.md).
INTENT_TEMPLATES: Mapping[Intent, IntentTemplate] = {
    Intent.LOOKUP: IntentTemplate(),
    Intent.COMPARE: IntentTemplate(2.0, is_multi_document=True, shape="shape_compare"),
    Intent.SUMMARY: IntentTemplate(1.5, shape="shape_summary"),
    Intent.PROCEDURE: IntentTemplate(1.5, shape="shape_procedure"),
    Intent.TABLE: IntentTemplate(2.0, is_multi_document=True, shape="shape_table"),
}


def find_intent(message: ParsedMessage, usual: Intent | None = None) -> tuple[Intent, str]:
    """The intent of a message, and what decided it; `usual` is that of its assistant."""
    for intent in (Intent.TABLE, Intent.SUMMARY, Intent.PROCEDURE):
        if _ASKS_FOR[intent.value].search(message.text):
            return intent, BY_WORDS
    if is_comparison(message):
        return Intent.COMPARE, BY_WORDS
    return (Intent.LOOKUP, USUAL) if usual is None else (usual, BY_ASSISTANT)


def strip_table_wish(text: str) -> str:
    """A text without the words that ask for a table: they tell nothing of what it is about."""
    return _ASKS_FOR[Intent.TABLE.value].sub(" ", text)
