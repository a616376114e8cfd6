"""From a message in a conversation to a question: what kind, of which documents, in which words.

Rules where they are sure; where they are not, one call to the light model, whose word is
checked against what was really said.
"""

import asyncio
import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from rag import tokenize
from rag.adapters.light import Light
from rag.config import MemoryRules, RagConfig
from rag.conversation import Conversation, Memory, Question
from rag.errors import LLMError
from rag.lexicon import load_phrases
from rag.ports import Embedder, HistoryStore, PassageStore
from rag.retrieve.candidates import MIN_KNOWN_SHARE
from rag.tokenize.korean import Morpheme
from rag.tokenize.text import estimate_dense_weight
from rag.types import Intent, QuestionType, Scope, ScopeReason, Topic
from rag.understand import followup, kinds, model, references
from rag.understand.filters import find_names
from rag.understand.followup import QuestionWords, Word
from rag.understand.kinds import ParsedMessage, read_message
from rag.understand.model import Reading
from rag.understand.references import Reference

logger = structlog.get_logger()

SURE_CERTAINTY = 0.85
"""From that certainty on the rules' word on a question's bond to the conversation stands.

They are right there in .99 of the Korean and .95 of the English turns of our own dialogues, below
it in .76 and .93 (docs/notes/conversations.md).
"""
READ_CERTAINTY = 0.85
"""How sure a small model's word is taken to be: what is found may still outweigh it."""
READ_WEIGHT = 0.8
"""What a lexical term weighs that the model's standalone question adds to the question's own."""
READ_TERM_WEIGHT = 0.5
"""What a lexical term weighs that the model names as another word for what is asked."""
MIN_READ_LIKENESS = 0.5
"""What the model's question weighs at least where it is embedded beside the question itself."""
MAX_SHORT_CHARACTERS = 30
"""Characters below which mode "simple" takes every question for a follow-up."""
MAX_MESSAGE_CHARACTERS = 2000
"""Of a message that are read; longer ones are pasted texts and lack nothing."""
MAX_ANSWER_CHARACTERS = 300
"""Of the last answer's beginning, where it says what it is about."""
MIN_SHARE, POINTING_SHARE, SINGLE_WORD_SHARE = 0.05, 0.2, 0.4
"""What the conversation weighs beside any follow-up, one that points back, one of a single word."""
ELDER_TURN_SHARE = 0.5
"""What a turn weighs beside the one after it."""
MIN_OWN_WORDS = 3
"""Words of its own with which a question needs no others, if it does not point back.

Numbers with their units do not count.
"""
MAX_CARRIED_TERMS = 12
"""Lexical terms that are carried over: each costs the search some time."""


@dataclass(frozen=True, slots=True)
class QuestionAnalysis:
    """All that is understood of a question.

    `text` is what is asked, without words of reset or reference. `scope` is narrowed to documents
    that the question names by their place (`reference`). `topic` is what the user said of its bond
    to the conversation, and `memory` what the conversation is about.

    `follows`: it is bound to the conversation, so that it is completed and searched in the
    remembered documents first. A comparison may follow, too: `question_type` is COMPARE then.
    `certainty` (0..1) is how sure `follows` is; `by` is "rules", "simple", "light_llm" or "user".
    `forgets`: the remembered documents are to be forgotten first. `whole`: it asks for whole
    documents and names nothing to look for in them.

    `standalone` is the question with what it lacks, as it is shown and searched; `completed_by` is
    "" (as asked), "terms" or "light_llm". `context` are lexical terms of the conversation with what
    they weigh beside the question's own, also such as stand in `standalone`; `search_terms`, all
    below 1, other words for what is asked. `own_words` (empty: `standalone`) are embedded, and
    beside them with `background_weight` the `background`, which was said before.

    `intent` is how it is to be answered, `intent_by` what decided that: see `kinds.find_intent`.

    `failed` is the error code of a model that was asked in vain.
    """

    question_type: QuestionType
    text: str
    scope: Scope
    follows: bool = False
    certainty: float = 1.0
    by: str = "rules"
    signals: Mapping[str, float] = field(default_factory=dict)
    forgets: bool = False
    topic: Topic = Topic.AUTO
    memory: Memory = field(default_factory=Memory)
    reference: Reference | None = None
    whole: bool = False
    standalone: str = ""
    completed_by: str = ""
    context: Mapping[str, float] = field(default_factory=dict)
    search_terms: Mapping[str, float] = field(default_factory=dict)
    own_words: str = ""
    background: str = ""
    background_weight: float = 0.0
    intent: Intent = Intent.LOOKUP
    intent_by: str = kinds.USUAL
    failed: str = ""

    @property
    def is_complete(self) -> bool:
        """True for a question that names its document by place and its subject, too."""
        if self.reference is None:
            return False
        settled = self.reference.unclear or self.reference.whole
        return bool(settled or tokenize.find_subject_terms(self.text))


async def analyse_question(
    question: Question,
    history: HistoryStore,
    config: RagConfig,
    embedder: Embedder,
    light: Light | None,
) -> QuestionAnalysis:
    """What rules make of a question, and the light model where they are not sure.

    Never raises for what the model does.
    """
    if light is None:
        return await asyncio.to_thread(analyse_by_rules, question, history, config, embedder)
    conversation = question.conversation

    def judge() -> tuple[QuestionAnalysis, bool]:
        analysis = _add_intent(
            _judge_by_rules(question, history, config.memory, embedder), question
        )
        unsure = _needs_model(analysis, conversation)
        return analysis if unsure else _complete_for_search(analysis, conversation), unsure

    analysis, unsure = await asyncio.to_thread(judge)
    if not unsure:
        return analysis
    reading = None
    try:
        reading = await model.read_question_by_model(analysis.text, conversation, light)
        analysis = _add_reading(analysis, reading)
    except LLMError as error:
        logger.warning("question_not_read_by_model", code=error.code)
        analysis = replace(analysis, failed=error.code)
    return await asyncio.to_thread(_complete_for_search, analysis, conversation, reading)


def analyse_by_rules(
    question: Question,
    history: HistoryStore,
    config: RagConfig,
    embedder: Embedder | None = None,
) -> QuestionAnalysis:
    """What rules make of it.

    Reads the store only for references to the whole session; `embedder` serves mode "simple".
    """
    analysis = _add_intent(_judge_by_rules(question, history, config.memory, embedder), question)
    return _complete_for_search(analysis, question.conversation)


def _add_intent(analysis: QuestionAnalysis, question: Question) -> QuestionAnalysis:
    usual = question.persona.intent if question.persona else None
    intent, by = kinds.find_intent(read_message(analysis.text), usual)
    return replace(analysis, intent=intent, intent_by=by)


def describe_analysis(question: Question, analysis: QuestionAnalysis) -> dict[str, object]:
    """What was made of the question, as plain JSON for the trace."""
    reference = analysis.reference
    values: dict[str, object] = {
        "question_type": analysis.question_type.value,
        "question": {
            "type": analysis.question_type.value,
            "follows": analysis.follows,
            "certainty": round(analysis.certainty, 3),
            "by": analysis.by,
            "signals": {name: round(value, 3) for name, value in analysis.signals.items()},
            "topic": question.topic.value,
            "whole": analysis.whole,
            "intent": analysis.intent.value,
            "intent_by": analysis.intent_by,
            "failed": analysis.failed,
        },
        "standalone": {
            "text": analysis.standalone,
            "by": analysis.completed_by,
            "search_terms": sorted(analysis.search_terms),
        },
        "scope": describe_scope(question, analysis, analysis.scope, widened=False),
    }
    if reference is not None:
        values["reference"] = {
            "documents": [
                {"slot": ref.slot, "document_id": str(ref.document_id), "title": ref.title}
                for ref in reference.documents
            ],
            "whole": reference.whole,
            "part": reference.part,
            "unclear": reference.unclear.value if reference.unclear else None,
            "whole_session": reference.whole_session,
        }
    return values


def describe_scope(
    question: Question, analysis: QuestionAnalysis, scope: Scope, *, widened: bool
) -> dict[str, object]:
    """The documents that were searched in the end and why, as plain JSON."""
    is_fixed = analysis.reference and (analysis.reference.unclear or analysis.reference.whole)
    standalone = "" if is_fixed else analysis.standalone
    return {
        "reason": scope.reason.value,
        "document_ids": [str(key) for key in scope.document_ids],
        "widened": widened,
        "follows": analysis.follows,
        "forgets": analysis.forgets,
        "topic": question.topic.value,
        "standalone_query": standalone if standalone != question.text else "",
    }


def narrow_store(store: PassageStore, question: Question, scope: Scope) -> PassageStore:
    """The store over the scope alone: documents of earlier turns may lie outside of it."""
    is_same = scope.document_ids == question.scope.document_ids
    readable = question.conversation.readable.keys()
    covers_readable = not readable or readable <= set(scope.document_ids)
    return store if is_same and covers_readable else store.within(scope.document_ids)


def narrow_scope(scope: Scope, reference: Reference | None) -> Scope:
    """The documents referred to by place outrank all others, and never widen."""
    if reference is None or reference.unclear:
        return scope
    ids = tuple(dict.fromkeys(ref.document_id for ref in reference.documents))
    return replace(scope, document_ids=ids, reason=ScopeReason.SLOT)


def bind_to_conversation(analysis: QuestionAnalysis, certainty: float) -> QuestionAnalysis:
    """The same question, bound to the conversation."""
    single = analysis.question_type is QuestionType.SINGLE
    bound = QuestionType.FOLLOWUP if single else analysis.question_type
    return replace(analysis, question_type=bound, follows=True, certainty=certainty)


# What kind of question it is, and whether it is bound to the conversation


def _judge_by_rules(
    question: Question, history: HistoryStore, rules: MemoryRules, embedder: Embedder | None
) -> QuestionAnalysis:
    """Reference, kind and bond by rules; nothing is completed yet."""
    scope, conversation = question.scope, question.conversation
    only = scope.reason is ScopeReason.CHAT and len(scope.document_ids) == 1
    named_ids = scope.document_ids if only or scope.reason is ScopeReason.EXPLICIT else ()
    reference = references.resolve_reference(
        question.text, conversation, history.list_documents, named_ids
    )
    text = reference.rest if reference else question.text
    if question.topic in (Topic.WIDER, Topic.NEW):
        reference = None  # the user leaves the documents that the question names by their place
    unread = QuestionAnalysis(
        QuestionType.SINGLE,
        text,
        narrow_scope(scope, reference),
        memory=conversation.memory,
        reference=reference,
    )
    rest = kinds.find_reset(text, rules.reset_words)
    if rest == "":
        return replace(unread, question_type=QuestionType.RESET, text=question.text, forgets=True)
    if rest is not None:
        kind = kinds.decide_question_type(read_message(rest), rules)
        return replace(unread, question_type=kind, text=rest, forgets=True)
    message = read_message(text)
    alone = replace(unread, question_type=kinds.decide_question_type(message, rules))
    return _judge_follow_up(alone, message, question, rules, embedder)


def _judge_follow_up(
    alone: QuestionAnalysis,
    message: ParsedMessage,
    question: Question,
    rules: MemoryRules,
    embedder: Embedder | None,
) -> QuestionAnalysis:
    """Whether it follows. What the user says of the topic outranks its words."""
    conversation = question.conversation
    analysis = replace(alone, topic=question.topic)
    if alone.question_type is QuestionType.SMALLTALK or not conversation.total:
        return analysis
    if question.topic not in (Topic.AUTO, Topic.ALL):
        analysis = replace(analysis, by="user")
        return analysis if question.topic is Topic.NEW else bind_to_conversation(analysis, 1.0)
    if rules.mode == "simple":
        analysis = replace(analysis, by="simple")
        follows = _is_simple_followup(message, conversation, rules, embedder)
        return bind_to_conversation(analysis, 1.0) if follows else analysis
    signals = followup.find_signals(message, conversation, rules)
    likelihood = followup.estimate_follow_up_likelihood(message, signals)
    weighed = replace(analysis, certainty=max(likelihood, 1 - likelihood), signals=signals)
    return bind_to_conversation(weighed, weighed.certainty) if likelihood >= 0.5 else weighed


def _is_simple_followup(
    message: ParsedMessage,
    conversation: Conversation,
    rules: MemoryRules,
    embedder: Embedder | None,
) -> bool:
    """The plain rule: short, a follow-up word, or like the last question.

    Likeness is the cosine of both, where the embedder knows the language of both.
    """
    texts = (message.raw, conversation.memory.last_question)
    if len(message.raw.strip()) < MAX_SHORT_CHARACTERS or message.holds_any(
        followup.list_cues(rules)
    ):
        return True
    if embedder is None or not texts[1].strip():
        return False
    if min(estimate_dense_weight(text, embedder.languages) for text in texts) < MIN_KNOWN_SHARE:
        return False
    first, second = map(embedder.embed_query, texts)
    return sum(a * b for a, b in zip(first, second, strict=True)) >= rules.similarity_threshold


# What a question lacks: words of the conversation, and other words for what is asked


def _complete_for_search(
    analysis: QuestionAnalysis, conversation: Conversation, reading: Reading | None = None
) -> QuestionAnalysis:
    """The question as it is searched; `reading` is what a model made of it."""
    completed = complete_question(analysis, conversation)
    if completed.follows and reading and reading.standalone:
        completed = _add_standalone(completed, reading.standalone, conversation)
    text, scope = completed.text[:MAX_MESSAGE_CHARACTERS], completed.scope
    throughout = scope.reason is not ScopeReason.ALL and kinds.is_asking_throughout(text)
    return replace(
        completed,
        whole=throughout or kinds.is_whole_question(text, scope, find_names(text)),
        search_terms={**find_document_terms(text), **completed.search_terms},
    )


def complete_question(analysis: QuestionAnalysis, conversation: Conversation) -> QuestionAnalysis:
    """The question with what it lacks from the conversation; as it is, unless it follows."""
    text = analysis.text
    unchanged = replace(analysis, standalone=text)
    stands_alone = (
        not analysis.follows or analysis.is_complete or len(text) > MAX_MESSAGE_CHARACTERS
    )
    turns = () if stands_alone else followup.read_topic_turns(conversation)
    if not turns:
        return unchanged
    question_words = followup.read_words(text, conversation)
    earlier = [question for _, question in turns]
    carried = followup.carry_words(question_words, earlier)
    own_count = sum(not word.series for word in question_words.words)
    needs_words = question_words.refers_back or own_count < MIN_OWN_WORDS
    if needs_words:
        adapted = followup.adapt_earlier_question(question_words, earlier, conversation)
        if adapted and adapted != text:
            return replace(unchanged, standalone=adapted, completed_by="terms")
    share = min(
        1.0,
        MIN_SHARE
        + POINTING_SHARE * question_words.refers_back
        + SINGLE_WORD_SHARE / max(1.0, question_words.weight),
    )
    last = turns[-1][0]
    before = (text[:MAX_ANSWER_CHARACTERS] for text in (last.user_text, last.assistant_text))
    return replace(
        unchanged,
        standalone=followup.complete_text(text, carried) if needs_words else text,
        completed_by="terms",
        context=_weigh_context_terms(question_words, carried, earlier, share),
        own_words=text,
        background="\n".join(before).strip(),
        background_weight=share,
    )


def _weigh_context_terms(
    question_words: QuestionWords,
    carried: Sequence[Word],
    turns: Sequence[QuestionWords],
    share: float,
) -> dict[str, float]:
    """The terms of the turns, all of them together weighing `share` of the question's own.

    Names of documents are left out, as all of their passages bear them. Where the question names
    nothing at all, the words carried over weigh as if it had said them.
    """
    question_terms = tokenize.weigh_query_terms(question_words.text)
    mass = share * sum(question_terms.values())
    weights: dict[str, float] = {}
    for age, turn in enumerate(reversed(turns)):
        turn_terms = tokenize.weigh_query_terms(turn.rest)
        total = sum(turn_terms.values()) or 1.0
        for term, weight in turn_terms.items():
            weights[term] = weights.get(term, 0.0) + mass * ELDER_TURN_SHARE**age * weight / total
    carried_terms = {term for word in carried if not word.is_document for term in word.terms}
    best = sorted(weights, key=lambda term: (term not in carried_terms, -weights[term], term))
    chosen = [term for term in best if term not in question_terms][:MAX_CARRIED_TERMS]
    needed_terms = carried_terms if not question_words.words else ()
    return {term: 1.0 if term in needed_terms else min(0.99, weights[term]) for term in chosen}


# Everyday words beside the words of documents: 물어내다 - 변상, 말로 - 구술, fired - dismissal.
#
# What people say is looked up by its morphemes in a list of this project's own making
# (`everyday.ko.txt`, `everyday.en.txt`); what documents say for it is searched beside it, as weak
# terms.

EVERYDAY_WEIGHT = 0.4
"""What such a term weighs beside the question's own."""
MAX_EVERYDAY_SHARE = 0.5
"""What all of them together weigh at most beside all of the question's own."""
MAX_EVERYDAY_TERMS = 10
MAX_WORDS_BETWEEN = 1
"""Other words that may stand between the words of an entry: "돈을 꼭 내야"."""

_TELLING = frozenset(("NNG", "NNP", "NNB", "NP", "XR", "SL", "VV", "VA", "MAG", "MM", "XPN"))
_JOINED = frozenset(("XSV", "XSA", "XSN", "VX"))
"""What makes another word with the one before it: 일하다, 갑질, 돌려받다."""
_MEANS = frozenset(("로", "으로"))
"""Particles that an entry may end with: "말로" is another thing than "말"."""

Entry = tuple[tuple[str, ...], tuple[str, ...]]
"""The words of an everyday phrase, and the terms that documents have for it."""
WordReadings = Sequence[frozenset[str]]
"""Word by word how it may be read: a noun alone, or with what makes a verb of it."""


def find_document_terms(text: str) -> Mapping[str, float]:
    """Terms that documents may have for what a question says, with weights below 1.

    Longer entries leave out the shorter ones in them; what the question says itself is left out.
    """
    terms_found = dict.fromkeys(term for _, terms in find_everyday_words(text) for term in terms)
    question_terms = tokenize.weigh_query_terms(text) if terms_found else {}
    new_terms = [term for term in terms_found if term not in question_terms][:MAX_EVERYDAY_TERMS]
    if not new_terms:
        return {}
    weight = min(
        EVERYDAY_WEIGHT, MAX_EVERYDAY_SHARE * sum(question_terms.values()) / len(new_terms)
    )
    return dict.fromkeys(new_terms, weight)


def find_everyday_words(text: str) -> list[Entry]:
    """The entries whose words a question says, longer ones first; none within another."""
    word_forms = _read_word_forms(text)
    used_places: set[int] = set()
    found: list[Entry] = []
    for words, terms in _match_entries(word_forms):
        places = _find_places(words, word_forms)
        if places and used_places.isdisjoint(places):
            used_places |= places
            found.append((words, terms))
    return found


def _match_entries(word_forms: WordReadings) -> list[Entry]:
    """The entries whose first word is said, longer ones first."""
    entries = _load_entries()
    words = dict.fromkeys(
        word for ways in word_forms for word in sorted(ways, key=len, reverse=True)
    )
    matches = [entry for word in words for entry in entries.get(word, ())]
    return sorted(matches, key=lambda entry: -len("".join(entry[0])))


def _find_places(words: Sequence[str], word_forms: WordReadings) -> set[int]:
    """Where the words stand in this order and close to each other; empty where they do not."""
    for start, ways in enumerate(word_forms):
        if words[0] not in ways:
            continue
        places = [start]
        for wanted in words[1:]:
            after = range(places[-1] + 1, min(len(word_forms), places[-1] + 2 + MAX_WORDS_BETWEEN))
            place = next((place for place in after if wanted in word_forms[place]), None)
            if place is None:
                break
            places.append(place)
        if len(places) == len(words):
            return set(places)
    return set()


@functools.cache
def _load_entries() -> Mapping[str, Sequence[Entry]]:
    """All entries by their first word. Korean ones are written in stems: "돈 돌려받"."""
    found: dict[str, list[Entry]] = defaultdict(list)
    for language, to_stem in (("ko", str), ("en", tokenize.stem_word)):
        for line in load_phrases(f"everyday.{language}"):
            if not line.startswith("#"):
                words, terms = (tuple(map(to_stem, side.split())) for side in line.split(": "))
                found[words[0]].append((words, terms))
    return found


@functools.lru_cache(maxsize=64)
def _read_word_forms(text: str) -> WordReadings:
    """The words of a text as entries are compared: stems of verbs and of Latin words, nouns."""
    clean = tokenize.normalise(text)
    if tokenize.HANGUL.search(clean):
        return _read_korean_forms(clean, tokenize.analyse_morphemes(clean) or ())
    words = (part.strip(".,?!'\"") for part in clean.lower().split())
    return [frozenset((tokenize.stem_word(word),)) for word in words if word]


def _read_korean_forms(text: str, morphemes: Sequence[Morpheme]) -> WordReadings:
    words: list[set[str]] = []
    begins = 0
    before = ""
    for item in morphemes:
        is_joined = before == "EC" and item.tag == "VV" and not text[item.start - 1].isspace()
        if words and (item.tag in _JOINED or is_joined):
            words[-1].add(text[begins : item.start] + item.form)
        elif item.tag in _TELLING or (item.tag == "JKB" and item.form in _MEANS):
            if before == "XPN":
                words[-1].add(text[begins : item.end])
            else:
                begins = item.start
            words.append({item.form.lower()})
        before = item.tag
    return [frozenset(ways) for ways in words]


# What the light model adds


def _needs_model(analysis: QuestionAnalysis, conversation: Conversation) -> bool:
    """Whether the rules leave something open that a model could know better."""
    is_small = analysis.question_type in {QuestionType.RESET, QuestionType.SMALLTALK}
    is_settled = (
        is_small or analysis.forgets or analysis.is_complete or analysis.certainty >= SURE_CERTAINTY
    )
    return bool(conversation.total) and not is_settled


def _add_reading(analysis: QuestionAnalysis, reading: Reading) -> QuestionAnalysis:
    """The analysis with what a model says; the kind that the rules saw by a word of it stays."""
    kind, question_terms = analysis.question_type, tokenize.weigh_query_terms(analysis.text)
    if kind in {QuestionType.SINGLE, QuestionType.FOLLOWUP}:
        kind = reading.question_type
    terms = [
        term
        for words in reading.search_terms
        for term in sorted(tokenize.find_subject_terms(words))
    ]
    new = [term for term in terms if term not in question_terms][:MAX_CARRIED_TERMS]
    read = replace(
        analysis,
        question_type=kind,
        follows=False,
        certainty=READ_CERTAINTY,
        by="light_llm",
        search_terms=dict.fromkeys(new, READ_TERM_WEIGHT),
    )
    return bind_to_conversation(read, READ_CERTAINTY) if reading.follows else read


def _add_standalone(
    completed: QuestionAnalysis, standalone: str, conversation: Conversation
) -> QuestionAnalysis:
    """A model's question, searched beside the question's own words and never instead of them."""
    question_terms = tokenize.weigh_query_terms(completed.text)
    words = followup.read_words(standalone, conversation)
    added = [term for word in words.words if not word.is_document for term in word.terms]
    new = [term for term in dict.fromkeys(added) if term not in question_terms][:MAX_CARRIED_TERMS]
    return replace(
        completed,
        standalone=standalone,
        completed_by="light_llm",
        context={**completed.context, **dict.fromkeys(new, READ_WEIGHT), **question_terms},
        own_words=completed.text,
        background=standalone,
        background_weight=max(MIN_READ_LIKENESS, completed.background_weight),
    )
