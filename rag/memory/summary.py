"""The window of a conversation that goes into every prompt, and what is kept of the turns before.

Of a turn a line and its terms are kept for later, and its vector once it has left the window; and
the running summary. No summary may lose medication, allergies, diagnoses; amounts, dates, codes:
what a model drops of them is put back.
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
"""Of what is told of a turn in one line."""
MAX_MESSAGE_CHARACTERS = 500
SLIDE_TURNS = 5
"""By so many turns at once the window moves on, and so many are folded together: each move costs
the model's server the beginning of the prompt that it remembers."""
EXTRACTIVE = "extractive"
"""Who wrote a summary where no model was asked, or none answered: it is a line each turn."""


@dataclass(frozen=True, slots=True)
class Window:
    """The last turns of what the conversation is about now.

    `first` is the number of the first of them, one more than the last turn's where there is none.
    `folded` tells what came before them, back to the last new start, in the words of `folded_by`;
    `left` are turns that have left the window and are not folded yet, by number, a line each.
    """

    messages: tuple[HistoryMessage, ...] = ()
    first: int = 1
    folded: str = ""
    folded_by: str = EXTRACTIVE
    left: tuple[tuple[int, str], ...] = ()

    def render_summary(self, without: Collection[int] = ()) -> str:
        """What came before the window; turns that the prompt holds whole are left out."""
        lines = self.folded.splitlines()
        if without and self.folded_by == EXTRACTIVE:  # a model's numbers are those of its own list
            known = tuple(f"{number}. " for number in without)
            lines = [line for line in lines if not line.startswith(known)]
        lines += [f"{number}. {line}" for number, line in self.left if number not in without]
        return "\n".join(line for line in lines if line.strip())


def find_window_start(begins_at: int, total: int, pairs: int) -> int:
    """The number of the first turn in the window of the question after turn `total`.

    At most `pairs` turns, back to `begins_at`; it stays where it is until it moves on by several.
    """
    over = max(0, total - begins_at + 1 - pairs)
    step = max(1, min(SLIDE_TURNS, pairs))
    return min(total + 1, begins_at + step * math.ceil(over / step))


def open_window(conversation: Conversation, *, pairs: int, forgets: bool = False) -> Window:
    """At most the last `pairs` turns, each message cut at `MAX_MESSAGE_CHARACTERS`.

    It goes back no further than the last new start, and holds no turn that is folded already.
    `forgets`: the question itself begins anew.
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
            HistoryMessage(one.role, one.content[:MAX_MESSAGE_CHARACTERS])
            for turn in turns
            for one in turn.messages
        ),
        first=first,
        folded=running.text if running and through >= begins else "",
        folded_by=running.model if running else EXTRACTIVE,
        left=tuple(
            (turn.number, turn.summary or " ".join(turn.user_text.split())[:MAX_LINE_CHARACTERS])
            for turn in between
        ),
    )


def show_last_turn_whole(
    messages: Sequence[HistoryMessage], turn: PastTurn
) -> tuple[HistoryMessage, ...]:
    """The messages with their last turn whole: a follow-up leans on all of it."""
    whole = {Speaker.USER: turn.user_text, Speaker.ASSISTANT: turn.assistant_text}
    return (
        *messages[:-2],
        *(
            replace(one, content=whole[one.role])
            if whole[one.role].startswith(one.content)
            else one
            for one in messages[-2:]
        ),
    )


MAX_QUESTION_CHARACTERS = 1000
"""Of a question that are read for a line, a vector, a summary; and ..."""
MAX_SUMMARISED_CHARACTERS = 500
"""... of an answer by a model."""
MAX_EMBEDDED_CHARACTERS = 1000
"""Of an answer: models read little more."""
MAX_INDEXED_CHARACTERS = 20_000
"""Of a text whose terms are kept."""
MAX_RUNNING_CHARACTERS = 1200
"""Of a running summary, without what is put back into it."""
MAX_FOLDED_AT_ONCE = 15
"""Where many are late."""
MIN_LINE_CHARACTERS = 50
LINE_TOKENS = 120
FOLD_TOKENS = 900
MIN_SHARED_TERMS_SHARE = 0.4
"""Share of a line's terms that stand in its turn, at least."""
MAX_REFUSAL_CHARACTERS = 80
"""Of a summary within which a refusal begins."""
_QUOTES = "\"'“”‘’「」`-•* "
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class TurnNote:
    """What is stored of a turn.

    `model` wrote the summary. `vectors` are those of turns by number, made by `embedding`.
    """

    summary: str
    model: str
    terms: Mapping[str, int]
    running: RunningSummary | None
    vectors: Mapping[int, Sequence[float]]
    embedding: str


async def note_turn(  # noqa: PLR0913 - the parts that a note is made with, by name
    turn: PastTurn,
    folding: Sequence[PastTurn],
    running: RunningSummary | None,
    *,
    light: Light | None,
    embedder: Embedder,
    rules: ContextRules,
    windowed: bool,
) -> TurnNote:
    """Note a turn, by rules where a model fails.

    `folding` are the whole turns that `list_turns_to_fold` names; they are folded into `running`,
    and embedded. Most conversations never leave their window: where a model reads it (`windowed`),
    nobody looks for a turn in it, so that its vector can wait.
    """
    said = await _ask_for_line(turn, light)
    embedded = folding if windowed else [turn]
    (line, model), vectors, terms = await asyncio.to_thread(
        lambda: (
            _choose_line(said, light, turn),
            _embed_turns(embedded, embedder),
            count_turn_terms(turn),
        )
    )
    ordered = sorted(folding, key=lambda one: one.number)
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
    """The numbers of the turns that are to be folded when turn `number` is noted.

    Those that have left the window of the next question, in whole batches; none from before the
    last new start.
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
    """The vectors of those in a language that the embedder knows; none where it fails."""
    texts = {turn.number: _join_texts(turn) for turn in turns}
    known = {
        number: text
        for number, text in texts.items()
        if estimate_dense_weight(text, embedder.languages) >= MIN_KNOWN_SHARE
    }
    if not known:
        return {}
    try:
        return dict(zip(known, embedder.embed_passages([*known.values()]), strict=True))
    except EmbedderFailed:
        return {}


def _join_texts(turn: PastTurn) -> str:
    answer = strip_own_sentences(turn)[:MAX_EMBEDDED_CHARACTERS]
    return f"{turn.user_text[:MAX_QUESTION_CHARACTERS]}\n{answer}".strip()


async def _fold_turns(
    turns: Sequence[PastTurn], before: str, light: Light | None, rules: ContextRules
) -> RunningSummary:
    """The running summary with these turns, oldest first, folded in."""
    language = choose_reply_language(
        " ".join(turn.user_text[:MAX_SUMMARISED_CHARACTERS] for turn in turns)
    )
    text, model = "", EXTRACTIVE
    if light is not None:
        told = "\n\n".join(_render_turn(turn, f"Q{turn.number}") for turn in turns)
        asked = prompts.fill_prompt(
            "fold_turns",
            language,
            summary=neutralise_text(before) or "-",
            turns=neutralise_text(told),
        )
        reply = await _ask_light_model(
            light, prompts.load_prompt("fold", language), asked, FOLD_TOKENS
        )
        body = split_protected(reply)[0]
        if not _is_refusal(body[:MAX_REFUSAL_CHARACTERS]):
            text, model = shorten_text(body, MAX_RUNNING_CHARACTERS), light.name
    return await asyncio.to_thread(
        _make_running_summary, turns, before, text, model, rules, language
    )


def _make_running_summary(  # noqa: PLR0913, PLR0917 - what a fold is made of
    turns: Sequence[PastTurn],
    before: str,
    text: str,
    model: str,
    rules: ContextRules,
    language: str,
) -> RunningSummary:
    """What a model wrote, or else the turns' lines, with what must not be lost."""
    if not text:
        text, model = _join_lines(turns, before), EXTRACTIVE
    body, kept = split_protected(before)
    latest = turns[::-1]
    texts = [*(turn.user_text for turn in latest), *kept, body, *map(strip_own_sentences, latest)]
    found = find_protected(texts, rules.protected_terms)
    return RunningSummary(restore_protected(text, found, language), turns[-1].number, model)


def _join_lines(turns: Sequence[PastTurn], before: str) -> str:
    """One line a turn, all shorter the more there are; the oldest go when too many."""
    old = split_protected(before)[0].splitlines()
    new = [f"{turn.number}. {turn.summary or write_line(turn)}" for turn in turns]
    lines = [line for line in [*old, *new] if line.strip()]
    width = max(MIN_LINE_CHARACTERS, MAX_RUNNING_CHARACTERS // max(1, len(lines)) - 1)
    fitting = lines[-(MAX_RUNNING_CHARACTERS // (width + 1)) :]
    return "\n".join(shorten_text(line, width) for line in fitting)


def _render_turn(turn: PastTurn, mark: str) -> str:
    """The beginnings of a turn's texts as a model reads them."""
    answer = strip_own_sentences(turn)[:MAX_SUMMARISED_CHARACTERS]
    return f"{mark}: {turn.user_text[:MAX_QUESTION_CHARACTERS]}\nA: {answer}"


async def _ask_light_model(light: Light, system: str, user: str, max_tokens: int) -> str:
    """What the light model says; empty where it fails."""
    try:
        return neutralise_text(await light.ask_text(system, user, max_tokens=max_tokens)).strip()
    except LLMError:
        return ""


def _is_refusal(said: str, known: str = "") -> bool:
    """Whether a model talks of itself, in words that are not those of a `known` text."""
    one, other = said.casefold(), known.casefold()
    return any(phrase in one and phrase not in other for phrase in load_phrases("refusals"))


# The line of a turn

MAX_ASKED_CHARACTERS = 80
"""Of a line for the question, where there is an answer worth telling."""
MAX_LINE_SOURCE_CHARACTERS = 4000
"""Of a text that are read for a line."""
FIGURE_WEIGHT = 1.5
"""What an amount, date or code in a sentence counts beside a term of the question."""
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
    """The turn's line in a model's words; empty where none is asked."""
    if light is None:
        return ""
    asked = neutralise_text(_render_turn(turn, "Q"))
    system = prompts.load_prompt("note", choose_reply_language(turn.user_text))
    return (await _ask_light_model(light, system, asked, LINE_TOKENS)).strip(_QUOTES)


def _choose_line(said: str, light: Light | None, turn: PastTurn) -> tuple[str, str]:
    """The turn's line, and who wrote it."""
    if light is not None and is_usable_line(said, turn):
        return said, light.name
    return write_line(turn), EXTRACTIVE


def is_usable_line(line: str, turn: PastTurn) -> bool:
    """Whether a model's line tells a turn: one short line, mostly in its words.

    Small models refuse, explain themselves, or speak of something else.
    """
    if not line or "\n" in line or len(line) > MAX_LINE_CHARACTERS:
        return False
    answer = strip_own_sentences(turn)[:MAX_INDEXED_CHARACTERS]
    whole = f"{turn.user_text[:MAX_QUESTION_CHARACTERS]}\n{answer}"
    if _is_refusal(line, whole) or not set(_DIGITS.findall(line)) <= set(_DIGITS.findall(whole)):
        return False
    own = tokenize.count_terms(line).keys()
    return len(own & count_turn_terms(turn).keys()) >= MIN_SHARED_TERMS_SHARE * len(own) > 0


def write_line(turn: PastTurn) -> str:
    """The question and the answer's most telling sentence, at most `MAX_LINE_CHARACTERS`.

    Of a long question it is the beginning and, thrice as much, the end, where it asks.
    """
    asked = to_one_line(turn.user_text, MAX_LINE_SOURCE_CHARACTERS)
    telling = _find_telling_sentence(asked, strip_own_sentences(turn)[:MAX_LINE_SOURCE_CHARACTERS])
    room = MAX_ASKED_CHARACTERS if telling else MAX_LINE_CHARACTERS
    if len(asked) > room:
        asked = f"{shorten_text(asked, room // 4)} {asked[-(room * 3 // 4) :].lstrip()}"
    return shorten_text(f"{asked} → {telling}" if telling else asked, MAX_LINE_CHARACTERS)


def _find_telling_sentence(asked: str, said: str) -> str:
    """The sentence of an answer that holds most of the question, preferably with a figure."""
    parts = [to_one_line(part, MAX_LINE_SOURCE_CHARACTERS) for part in split_sentences(said)]
    wanted = tokenize.weigh_query_terms(asked)
    weights = [
        sum(weight for term, weight in wanted.items() if term in held)
        + FIGURE_WEIGHT * bool(load_patterns("protected")["figure"].search(part))
        for part, held in zip(parts, tokenize.count_terms_of_all(parts), strict=True)
    ]
    return parts[weights.index(max(weights))] if parts else ""


def strip_own_sentences(turn: PastTurn) -> str:
    """The answer without signs of Markdown, and sentences that the product says of itself."""
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
    """The text, which may be of anybody, on one line of at most `length` characters."""
    return shorten_text(" ".join(neutralise_text(text[: 2 * length]).split()), length)


# What no summary may lose

MAX_PROTECTED_CHARACTERS = 2000
"""Of what is put back into a summary."""
MAX_PROTECTED_ITEMS = 400
"""Of one text that are looked at: it can hold endless tables."""
MAX_FACT_CHARACTERS = 160
"""Of a sentence kept for a protected word."""
MAX_CONTEXT_CHARACTERS = 80
"""Of a sentence kept around an amount, date or code."""
MIN_TOLD_SHARE = 0.75
"""Share of a sentence's terms that a summary must hold to tell it."""
_LOOSE = re.compile(r"(?<=\d),(?=\d{3})|(?<!\d)[\s,]+|[\s,]+(?!\d)")
"""White space and commas but for those between two numbers."""


class Item(NamedTuple):
    """A thing to keep: the `key` that tells it, in its `text`; grave ones come first."""

    key: str
    text: str
    grave: bool


def find_protected(texts: Iterable[str], terms: Sequence[str]) -> list[Item]:
    """What is to be kept of texts, none twice: grave ones first, else in the order of the texts.

    `terms` are the protected words; empty: those of `rag/lexicon/protected_words.txt`.
    """
    wanted = _compile_words(tuple(terms))
    each = (itertools.islice(_find_items(text, wanted), MAX_PROTECTED_ITEMS) for text in texts)
    found = dict.fromkeys(itertools.chain.from_iterable(each))
    return sorted(found, key=lambda item: not item.grave)


def _find_items(text: str, wanted: re.Pattern[str]) -> Iterator[Item]:
    known = load_patterns("protected")
    for sentence in split_sentences(neutralise_text(text)):
        for match in itertools.chain(wanted.finditer(sentence), known["dose"].finditer(sentence)):
            yield Item(match[0], _cut_around(sentence, match, MAX_FACT_CHARACTERS), grave=True)
        for match in known["figure"].finditer(sentence):
            yield Item(
                match[0].strip(), _cut_around(sentence, match, MAX_CONTEXT_CHARACTERS), grave=False
            )


def restore_protected(summary: str, found: Sequence[Item], language: str) -> str:
    """The summary, then those of `found` that it does not tell, as far as there is room."""
    told, held = summary.casefold(), set(tokenize.count_terms(summary))
    loose = _LOOSE.sub("", told)
    kept: list[str] = []
    room = MAX_PROTECTED_CHARACTERS
    for item in found:
        line = f"- {item.text}"
        if len(line) < room and not _is_told(item, told, loose, held):
            kept.append(line)
            told += f"\n{line.casefold()}"
            loose = _LOOSE.sub("", told)
            held |= tokenize.count_terms(line).keys()
            room -= len(line) + 1
    if not kept:
        return summary
    return "\n".join([summary, prompts.load_prompt("protected", language), *kept]).strip()


def _is_told(item: Item, told: str, loose: str, held: set[str]) -> bool:
    """Whether a text in small letters, which holds these terms, tells an item.

    `loose` is the text as figures are looked for: 3억 is neither in 13억 nor in 1.3억, A-7 not in
    A-77.
    """
    if not item.grave:
        key = _LOOSE.sub("", item.key.casefold())
        end = r"(?!\d)" if key[-1:].isdigit() else ""
        return bool(re.search(rf"(?<!\d)(?<!\d\.){re.escape(key)}{end}", loose))
    wanted = tokenize.count_terms(item.text).keys()
    return item.key.casefold() in told and len(wanted & held) >= MIN_TOLD_SHARE * len(wanted)


def split_protected(text: str) -> tuple[str, list[str]]:
    """A summary, and what had been put back into it."""
    for language in ("ko", "en"):
        body, mark, rest = text.partition(prompts.load_prompt("protected", language))
        if mark:
            lines = rest.strip().splitlines()
            return body.strip(), [line.removeprefix("- ").strip("“”") for line in lines]
    return text, []


def _cut_around(sentence: str, match: re.Match[str], length: int) -> str:
    """At most `length` characters of the sentence with the match in them, cut between words."""
    if len(sentence) <= length:
        return sentence
    start = max(0, min(match.start() - length // 2, len(sentence) - length))
    end = max(start + length, match.end())
    if start:
        start = sentence.find(" ", start, match.start()) + 1 or start
    return " ".join(sentence[start:end].split())


@functools.lru_cache(maxsize=8)
def _compile_words(terms: tuple[str, ...]) -> re.Pattern[str]:
    """Words of Latin letters begin where a word begins; Korean ones may stand inside of one."""
    chosen = [term for term in terms if term.strip()] or sorted(load_words("protected_words"))
    parts = (rf"\b{re.escape(one)}\w*" if one.isascii() else re.escape(one) for one in chosen)
    return re.compile("|".join(parts), re.IGNORECASE)
