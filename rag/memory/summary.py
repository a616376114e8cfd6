"""The window of a conversation that goes into every prompt, and what is kept of earlier turns.

Each turn is kept as one line and its terms, and as a vector once it has left the window; turns
before the window are folded into a running summary. No summary may lose medication, allergies,
diagnoses, amounts, dates or codes: what a model drops of them is put back.
"""

import asyncio
import functools
import itertools
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from rag import prompts, tokenize
from rag.adapters.light import Light
from rag.config import ContextRules
from rag.conversation import Conversation, PastTurn, RunningSummary
from rag.errors import EmbedderFailed, LLMError
from rag.generate.markdown import to_plain_text
from rag.lexicon import load_patterns, load_phrases, load_words
from rag.ports import Embedder
from rag.prompts import get_reply
from rag.retrieve.candidates import MIN_KNOWN_SHARE
from rag.tokenize.text import (
    choose_reply_language,
    estimate_dense_weight,
    neutralise_text,
    split_sentences,
)
from rag.types import HistoryMessage, Speaker

MAX_LINE_CHARACTERS = 160
"""Length of the line that describes a turn."""
MAX_MESSAGE_CHARACTERS = 500
SLIDE_TURNS = 5
"""The window advances by this many turns at once, which are folded together: each move invalidates
the prompt prefix that the model's server has cached."""
EXTRACTIVE = "extractive"
"""The author of a summary that no model wrote: it has one line per turn."""


@dataclass(frozen=True, slots=True)
class Window:
    """The last turns of the conversation since its last new start.

    `first` is the number of the first of them, or one more than the last turn's if there are none.
    `folded` summarises the turns before them, back to the last new start; `folded_by` wrote it.
    `unfolded` are turns that have left the window but are not folded yet: number and line of each.
    """

    messages: tuple[HistoryMessage, ...] = ()
    first: int = 1
    folded: str = ""
    folded_by: str = EXTRACTIVE
    unfolded: tuple[tuple[int, str], ...] = ()

    def render_summary(self, excluded: Collection[int] = ()) -> str:
        """The turns before the window, without the `excluded` ones, which are given in full."""
        lines = self.folded.splitlines()
        if excluded and self.folded_by == EXTRACTIVE:  # a model may number its lines otherwise
            prefixes = tuple(f"{number}. " for number in excluded)
            lines = [line for line in lines if not line.startswith(prefixes)]
        lines += [f"{number}. {line}" for number, line in self.unfolded if number not in excluded]
        return "\n".join(line for line in lines if line.strip())


def find_window_start(begins_at: int, total: int, pairs: int) -> int:
    """The number of the first turn in the window of the question after turn `total`.

    At most `pairs` turns, back to `begins_at`; the window advances by several turns at once.
    """
    over = max(0, total - begins_at + 1 - pairs)
    step = max(1, min(SLIDE_TURNS, pairs))
    return min(total + 1, begins_at + step * math.ceil(over / step))


def open_window(conversation: Conversation, *, pairs: int, forgets: bool = False) -> Window:
    """At most the last `pairs` turns, each message cut at `MAX_MESSAGE_CHARACTERS`.

    It does not go back beyond the last new start and contains no turn that is already folded.
    `forgets`: the question itself is a new start.
    """
    total = conversation.total
    begins = total + 1 if forgets else conversation.begins_at
    running = conversation.summary
    through = running.through if running and running.through >= begins else begins - 1
    first = max(through + 1, find_window_start(begins, total, pairs))
    turns = [turn for turn in conversation.turns if turn.number >= first]
    between = [turn for turn in conversation.turns if through < turn.number < first]
    return Window(
        messages=tuple(
            HistoryMessage(message.role, message.content[:MAX_MESSAGE_CHARACTERS])
            for turn in turns
            for message in turn.messages
        ),
        first=first,
        folded=running.text if running and through >= begins else "",
        folded_by=running.model if running else EXTRACTIVE,
        unfolded=tuple(
            (turn.number, turn.summary or " ".join(turn.user_text.split())[:MAX_LINE_CHARACTERS])
            for turn in between
        ),
    )


def show_last_turn_whole(
    messages: Sequence[HistoryMessage], turn: PastTurn
) -> tuple[HistoryMessage, ...]:
    """The messages with their last turn in full, because a follow-up may refer to any of it."""
    full_texts = {Speaker.USER: turn.user_text, Speaker.ASSISTANT: turn.assistant_text}
    return (
        *messages[:-2],
        *(
            replace(message, content=full_texts[message.role])
            if full_texts[message.role].startswith(message.content)
            else message
            for message in messages[-2:]
        ),
    )


MAX_QUESTION_CHARACTERS = 1000
"""Characters of a question that are read for a line, a vector or a summary; and ..."""
MAX_SUMMARISED_CHARACTERS = 500
"""... of an answer by a model."""
MAX_EMBEDDED_CHARACTERS = 1000
"""Characters of an answer that are embedded: models read little more."""
MAX_INDEXED_CHARACTERS = 20_000
"""Characters of a text whose terms are kept."""
MAX_RUNNING_CHARACTERS = 1200
"""Length of a running summary, not counting what is put back into it."""
MAX_FOLDED_AT_ONCE = 15
"""Turns folded in one request, if many are waiting."""
MIN_LINE_CHARACTERS = 50
LINE_TOKENS = 120
FOLD_TOKENS = 900
MIN_SHARED_TERMS_SHARE = 0.4
"""Share of a line's terms that must occur in its turn."""
MAX_REFUSAL_CHARACTERS = 80
"""A refusal begins within the first characters of a summary."""
_QUOTES = "\"'“”‘’「」`-•* "
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class TurnNote:
    """What is stored of a turn.

    `model` wrote the summary. `vectors` are those of turns, by number; `embedding` names the
    embedder that computed them.
    """

    summary: str
    model: str
    terms: Mapping[str, int]
    running: RunningSummary | None
    vectors: Mapping[int, Sequence[float]]
    embedding: str


async def note_turn(  # noqa: PLR0913 - everything that a note is made with, by name
    turn: PastTurn,
    folding: Sequence[PastTurn],
    running: RunningSummary | None,
    *,
    light: Light | None,
    embedder: Embedder,
    rules: ContextRules,
    windowed: bool,
) -> TurnNote:
    """Note a turn; rules replace a model that fails.

    `folding` are the turns that `list_turns_to_fold` names, in full; they are folded into `running`
    and embedded. Most conversations never leave their window: if a model reads it (`windowed`), no
    turn in it is searched for, so its vector can wait.
    """
    model_line = await _ask_for_line(turn, light)
    embedded = folding if windowed else [turn]
    (line, model), vectors, terms = await asyncio.to_thread(
        lambda: (
            _choose_line(model_line, light, turn),
            _embed_turns(embedded, embedder),
            count_turn_terms(turn),
        )
    )
    ordered = sorted(folding, key=lambda earlier_turn: earlier_turn.number)
    for start in range(0, len(ordered), MAX_FOLDED_AT_ONCE):
        batch = ordered[start : start + MAX_FOLDED_AT_ONCE]
        running = await _fold_turns(batch, running.text if running else "", light, rules)
    return TurnNote(
        summary=line,
        model=model,
        terms=terms,
        running=running,
        vectors=vectors,
        embedding=embedder.name,
    )


def list_turns_to_fold(
    number: int, running: RunningSummary | None, *, pairs: int, begins_at: int = 1
) -> range:
    """The numbers of the turns to be folded when turn `number` is noted.

    Those that are before the window of the next question, in whole batches, but none from before
    the last new start.
    """
    first = max(begins_at, (running.through if running else 0) + 1)
    waiting = max(0, find_window_start(begins_at, number, pairs) - first)
    return range(first, first + waiting - waiting % SLIDE_TURNS)


def count_turn_terms(turn: PastTurn) -> dict[str, int]:
    """The lexical terms of a whole turn: question, answer, titles of its documents."""
    titles = " ".join(ref.title for ref in turn.doc_refs)
    texts = (turn.user_text, strip_own_sentences(turn))
    return tokenize.count_terms(
        "\n".join([*(text[:MAX_INDEXED_CHARACTERS] for text in texts), titles])
    )


def _embed_turns(turns: Sequence[PastTurn], embedder: Embedder) -> Mapping[int, Sequence[float]]:
    """Vectors of the turns in a language that the embedder knows; empty if it fails."""
    texts = {turn.number: _join_texts(turn) for turn in turns}
    supported = {
        number: text
        for number, text in texts.items()
        if estimate_dense_weight(text, embedder.languages) >= MIN_KNOWN_SHARE
    }
    if not supported:
        return {}
    try:
        return dict(zip(supported, embedder.embed_passages([*supported.values()]), strict=True))
    except EmbedderFailed:
        return {}


def _join_texts(turn: PastTurn) -> str:
    answer = strip_own_sentences(turn)[:MAX_EMBEDDED_CHARACTERS]
    return f"{turn.user_text[:MAX_QUESTION_CHARACTERS]}\n{answer}".strip()


async def _fold_turns(
    turns: Sequence[PastTurn], previous: str, light: Light | None, rules: ContextRules
) -> RunningSummary:
    """The running summary with these turns, oldest first, folded in."""
    language = choose_reply_language(
        " ".join(turn.user_text[:MAX_SUMMARISED_CHARACTERS] for turn in turns)
    )
    text, model = "", EXTRACTIVE
    if light is not None:
        rendered = "\n\n".join(_render_turn(turn, f"Q{turn.number}") for turn in turns)
        request = prompts.fill_prompt(
            "fold_turns",
            language,
            summary=neutralise_text(previous) or "-",
            turns=neutralise_text(rendered),
        )
        reply = await _ask_light_model(
            light, prompts.load_prompt("fold", language), request, FOLD_TOKENS
        )
        body = split_protected(reply)[0]
        if not _is_refusal(body[:MAX_REFUSAL_CHARACTERS]):
            text, model = shorten_text(body, MAX_RUNNING_CHARACTERS), light.name
    return await asyncio.to_thread(
        _make_running_summary, turns, previous, text, model, rules, language
    )


def _make_running_summary(  # noqa: PLR0913, PLR0917 - everything a fold is made of
    turns: Sequence[PastTurn],
    previous: str,
    text: str,
    model: str,
    rules: ContextRules,
    language: str,
) -> RunningSummary:
    """The text that a model wrote, or else the turns' lines; with what must not be lost."""
    if not text:
        text, model = _join_lines(turns, previous), EXTRACTIVE
    body, restored = split_protected(previous)
    latest = turns[::-1]
    texts = [
        *(turn.user_text for turn in latest),
        *restored,
        body,
        *map(strip_own_sentences, latest),
    ]
    protected = find_protected(texts, rules.protected_terms)
    return RunningSummary(restore_protected(text, protected, language), turns[-1].number, model)


def _join_lines(turns: Sequence[PastTurn], previous: str) -> str:
    """One line per turn: the more turns, the shorter each; the oldest go if there are too many."""
    old = split_protected(previous)[0].splitlines()
    new = [f"{turn.number}. {turn.summary or write_line(turn)}" for turn in turns]
    lines = [line for line in [*old, *new] if line.strip()]
    width = max(MIN_LINE_CHARACTERS, MAX_RUNNING_CHARACTERS // max(1, len(lines)) - 1)
    fitting = lines[-(MAX_RUNNING_CHARACTERS // (width + 1)) :]
    return "\n".join(shorten_text(line, width) for line in fitting)


def _render_turn(turn: PastTurn, mark: str) -> str:
    """The beginnings of a turn's texts as a prompt gives them."""
    answer = strip_own_sentences(turn)[:MAX_SUMMARISED_CHARACTERS]
    return f"{mark}: {turn.user_text[:MAX_QUESTION_CHARACTERS]}\nA: {answer}"


async def _ask_light_model(light: Light, system: str, user: str, max_tokens: int) -> str:
    """The light model's reply; empty if it fails."""
    try:
        return neutralise_text(await light.ask_text(system, user, max_tokens=max_tokens)).strip()
    except LLMError:
        return ""


def _is_refusal(text: str, source: str = "") -> bool:
    """Whether a model refuses, in phrases that do not occur in its `source`."""
    lowered, source_lowered = text.casefold(), source.casefold()
    return any(
        phrase in lowered and phrase not in source_lowered for phrase in load_phrases("refusals")
    )


# The line of a turn

MAX_ASKED_CHARACTERS = 80
"""Characters of a line for the question, if the answer has a sentence to show."""
MAX_LINE_SOURCE_CHARACTERS = 4000
"""Characters of a text that are read for a line."""
FIGURE_WEIGHT = 1.5
"""Weight of an amount, date or code in a sentence, added to those of the question's terms."""
_FIXED = (
    *("emergency_body", "emergency_self_harm"),
    *("passages_more", "passages_nothing", "passages_nothing_told"),
    *("notice_gone", "notice_widened", "reset"),
    *("plain_bye", "plain_greeting", "plain_help", "plain_help_delete", "plain_help_files"),
    *("plain_help_model", "plain_help_privacy", "plain_help_upload"),
    *("plain_no_documents", "plain_no_model", "plain_thanks"),
)
_MARKER = re.compile(r"\s?\[\d{1,4}\]")


async def _ask_for_line(turn: PastTurn, light: Light | None) -> str:
    """The turn's line as the light model writes it; empty without one."""
    if light is None:
        return ""
    request = neutralise_text(_render_turn(turn, "Q"))
    system = prompts.load_prompt("note", choose_reply_language(turn.user_text))
    return (await _ask_light_model(light, system, request, LINE_TOKENS)).strip(_QUOTES)


def _choose_line(model_line: str, light: Light | None, turn: PastTurn) -> tuple[str, str]:
    """The turn's line, and who wrote it."""
    if light is not None and is_usable_line(model_line, turn):
        return model_line, light.name
    return write_line(turn), EXTRACTIVE


def is_usable_line(line: str, turn: PastTurn) -> bool:
    """Whether a model's line describes a turn: one short line, mostly in the turn's own words.

    Small models refuse, explain themselves, or write about something else.
    """
    if not line or "\n" in line or len(line) > MAX_LINE_CHARACTERS:
        return False
    answer = strip_own_sentences(turn)[:MAX_INDEXED_CHARACTERS]
    whole = f"{turn.user_text[:MAX_QUESTION_CHARACTERS]}\n{answer}"
    if _is_refusal(line, whole) or not set(_DIGITS.findall(line)) <= set(_DIGITS.findall(whole)):
        return False
    line_terms = tokenize.count_terms(line).keys()
    return (
        len(line_terms & count_turn_terms(turn).keys())
        >= MIN_SHARED_TERMS_SHARE * len(line_terms)
        > 0
    )


def write_line(turn: PastTurn) -> str:
    """The question and the answer's most informative sentence, at most `MAX_LINE_CHARACTERS`.

    A long question is cut to its beginning and three times as much of its end, where it asks.
    """
    question = to_one_line(turn.user_text, MAX_LINE_SOURCE_CHARACTERS)
    telling = _find_telling_sentence(
        question, strip_own_sentences(turn)[:MAX_LINE_SOURCE_CHARACTERS]
    )
    room = MAX_ASKED_CHARACTERS if telling else MAX_LINE_CHARACTERS
    if len(question) > room:
        question = f"{shorten_text(question, room // 4)} {question[-(room * 3 // 4) :].lstrip()}"
    return shorten_text(f"{question} → {telling}" if telling else question, MAX_LINE_CHARACTERS)


def _find_telling_sentence(question: str, answer: str) -> str:
    """The sentence of an answer with most of the question's terms, preferably with a figure."""
    parts = [to_one_line(part, MAX_LINE_SOURCE_CHARACTERS) for part in split_sentences(answer)]
    question_terms = tokenize.weigh_query_terms(question)
    weights = [
        sum(weight for term, weight in question_terms.items() if term in terms)
        + FIGURE_WEIGHT * bool(load_patterns("protected")["figure"].search(part))
        for part, terms in zip(parts, tokenize.count_terms_per_text(parts), strict=True)
    ]
    return parts[weights.index(max(weights))] if parts else ""


def strip_own_sentences(turn: PastTurn) -> str:
    """The answer without Markdown and without the product's own fixed sentences."""
    text = _MARKER.sub("", turn.assistant_text)
    for fixed in _load_own_sentences():
        text = text.replace(fixed, "")
    lines = [line for line in map(to_plain_text, text.splitlines()) if line]
    return "\n".join(lines)


@functools.cache
def _load_own_sentences() -> tuple[str, ...]:
    return tuple(get_reply(name, language) for name in _FIXED for language in ("ko", "en"))


def shorten_text(text: str, length: int) -> str:
    """The text, or its beginning with an ellipsis, at most `length` characters."""
    return text if len(text) <= length else text[: max(0, length - 1)].rstrip() + "…"


def to_one_line(text: str, length: int) -> str:
    """The untrusted text, neutralised, on one line of at most `length` characters."""
    return shorten_text(" ".join(neutralise_text(text[: 2 * length]).split()), length)


# What no summary may lose

MAX_PROTECTED_CHARACTERS = 2000
"""Characters put back into a summary."""
MAX_PROTECTED_ITEMS = 400
"""Items taken from one text, which may contain endless tables."""
MAX_FACT_CHARACTERS = 160
"""Characters of a sentence kept for a protected word."""
MAX_CONTEXT_CHARACTERS = 80
"""Characters of a sentence kept around an amount, date or code."""
MIN_CONTAINED_SHARE = 0.75
"""Share of a sentence's terms that a summary must contain to include the sentence."""
_SEPARATORS = re.compile(r"(?<=\d),(?=\d{3})|(?<!\d)[\s,]+|[\s,]+(?!\d)")
"""White space and commas, except between two numbers."""


class Item(NamedTuple):
    """Something to keep: a `key` and the `text` around it; grave items come first."""

    key: str
    text: str
    grave: bool


def find_protected(texts: Iterable[str], terms: Sequence[str]) -> list[Item]:
    """The distinct items of texts that must be kept: grave ones first, else in text order.

    `terms` are the protected words; if empty, those of `rag/lexicon/protected_words.txt`.
    """
    pattern = _compile_words(tuple(terms))
    items_by_text = (
        itertools.islice(_find_items(text, pattern), MAX_PROTECTED_ITEMS) for text in texts
    )
    items = dict.fromkeys(itertools.chain.from_iterable(items_by_text))
    return sorted(items, key=lambda item: not item.grave)


def _find_items(text: str, pattern: re.Pattern[str]) -> Iterator[Item]:
    patterns = load_patterns("protected")
    for sentence in split_sentences(neutralise_text(text)):
        for match in itertools.chain(
            pattern.finditer(sentence), patterns["dose"].finditer(sentence)
        ):
            yield Item(match[0], _cut_around(sentence, match, MAX_FACT_CHARACTERS), grave=True)
        for match in patterns["figure"].finditer(sentence):
            yield Item(
                match[0].strip(), _cut_around(sentence, match, MAX_CONTEXT_CHARACTERS), grave=False
            )


def restore_protected(summary: str, items: Sequence[Item], language: str) -> str:
    """The summary, followed by those items that it lacks, as far as there is room."""
    text, terms = summary.casefold(), set(tokenize.count_terms(summary))
    compact_text = _SEPARATORS.sub("", text)
    restored: list[str] = []
    room = MAX_PROTECTED_CHARACTERS
    for item in items:
        line = f"- {item.text}"
        if len(line) < room and not _contains_item(item, text, compact_text, terms):
            restored.append(line)
            text += f"\n{line.casefold()}"
            compact_text = _SEPARATORS.sub("", text)
            terms |= tokenize.count_terms(line).keys()
            room -= len(line) + 1
    if not restored:
        return summary
    return "\n".join([summary, prompts.load_prompt("protected", language), *restored]).strip()


def _contains_item(item: Item, text: str, compact_text: str, terms: set[str]) -> bool:
    """Whether a lower-case text with these terms contains an item.

    `compact_text` is the text for finding figures in: 3억 is in neither 13억 nor 1.3억, A-7 is not
    in A-77.
    """
    if not item.grave:
        key = _SEPARATORS.sub("", item.key.casefold())
        end = r"(?!\d)" if key[-1:].isdigit() else ""
        return bool(re.search(rf"(?<!\d)(?<!\d\.){re.escape(key)}{end}", compact_text))
    item_terms = tokenize.count_terms(item.text).keys()
    return item.key.casefold() in text and len(item_terms & terms) >= MIN_CONTAINED_SHARE * len(
        item_terms
    )


def split_protected(text: str) -> tuple[str, list[str]]:
    """A summary without what had been put back into it, and that."""
    for language in ("ko", "en"):
        body, mark, rest = text.partition(prompts.load_prompt("protected", language))
        if mark:
            lines = rest.strip().splitlines()
            return body.strip(), [line.removeprefix("- ").strip("“”") for line in lines]
    return text, []


def _cut_around(sentence: str, match: re.Match[str], length: int) -> str:
    """About `length` characters of the sentence around the match, cut between words."""
    if len(sentence) <= length:
        return sentence
    start = max(0, min(match.start() - length // 2, len(sentence) - length))
    end = max(start + length, match.end())
    if start:
        start = sentence.find(" ", start, match.start()) + 1 or start
    return " ".join(sentence[start:end].split())


@functools.lru_cache(maxsize=8)
def _compile_words(terms: tuple[str, ...]) -> re.Pattern[str]:
    """A pattern for the terms: Latin ones at the start of a word, Korean ones anywhere."""
    chosen = [term for term in terms if term.strip()] or sorted(load_words("protected_words"))
    parts = (rf"\b{re.escape(term)}\w*" if term.isascii() else re.escape(term) for term in chosen)
    return re.compile("|".join(parts), re.IGNORECASE)
