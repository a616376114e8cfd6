"""What a language model writes: the answer, and notes on whole documents that do not fit a prompt.

An answer is tried once more, less long, where the prompt was too long. Whole documents are read
part by part.
"""

import logging
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from rag import prompts
from rag.adapters.light import Light
from rag.context.budget import halve_context
from rag.context.prompt import AnswerContext, build_messages, render_passages
from rag.context.tokens import PER_MESSAGE, TokenCounter, get_counter
from rag.conversation import Sampling
from rag.errors import ContextOverflow, LLMError
from rag.ports import LLM, GenerationOptions, Piece, Usage
from rag.tokenize.text import neutralise_text
from rag.types import Evidence, HistoryMessage

log = logging.getLogger(__name__)

MAX_PARTS = 12
"""Parts that are read for one question; of longer documents evenly many are left out, and told."""
NOTE_TOKENS = 500
MAX_NOTE_CHARACTERS = 400
SECONDS_A_PART = 60.0
_NUMBERS = re.compile(r"\[(\d{1,4})\]")


@dataclass(frozen=True, slots=True)
class Writer:
    """Asks the model for answers."""

    llm: LLM
    options: GenerationOptions

    @property
    def name(self) -> str:
        """The model's name."""
        return self.llm.name

    @property
    def counter(self) -> TokenCounter:
        """Counts as the model does."""
        return get_counter(self.llm.name)

    async def stream_answer(
        self,
        context: AnswerContext,
        messages: Sequence[HistoryMessage],
        sampling: Sampling,
        on_trim: Callable[[AnswerContext], None],
    ) -> AsyncGenerator[Piece, None]:
        """The model's pieces to `messages`, the prompt of `context`; usage at the end.

        A prompt that is too long for the model is halved once, and `on_trim` told. Raises
        `rag.errors.LLMError` and nothing else.
        """
        said = False
        try:
            async with aclosing(self._stream_once(messages, sampling)) as pieces:
                async for piece in pieces:
                    said = said or bool(piece.text)
                    yield piece
        except ContextOverflow:
            if said:
                raise
            less = halve_context(context, self.counter)
            on_trim(less)
            async with aclosing(self._stream_once(build_messages(less), sampling)) as pieces:
                async for piece in pieces:
                    yield piece

    async def _stream_once(
        self, messages: Sequence[HistoryMessage], sampling: Sampling
    ) -> AsyncGenerator[Piece, None]:
        counted = sum(self.counter.count(one.content) + PER_MESSAGE for one in messages)
        said: list[str] = []
        reported: Usage | None = None
        async with aclosing(self.llm.stream(messages, self.options.wished(sampling))) as pieces:
            async for piece in pieces:
                said.append(piece.text)
                reported = piece.usage or reported
                yield piece
        if reported:
            self.counter.learn(counted, reported.prompt_tokens)
        else:
            yield Piece(usage=Usage(counted, self.counter.count("".join(said)), estimated=True))


@dataclass(frozen=True, slots=True)
class Note:
    """A point noted of a passage: its text, with the numbers of the passages that it rests on."""

    text: str
    numbers: tuple[int, ...]
    part: int = 0


@dataclass(slots=True)
class SectionReader:
    """Reads portions one after the other with a model; one that fails is left out.

    `notes` hold what was noted so far, `unread` how many parts were not read.
    """

    light: Light
    language: str
    fence: str
    notes: list[Note] = field(default_factory=list)
    unread: int = 0

    async def read(
        self, question: str, portions: Sequence[Sequence[Evidence]]
    ) -> AsyncGenerator[int, None]:
        """Read at most `MAX_PARTS` portions; yields the number of each before, from 1."""
        chosen = _spread_evenly(len(portions), MAX_PARTS)
        self.unread = len(portions) - len(chosen)
        for place in chosen:
            yield place + 1
            try:
                self.notes += await self._note(question, portions[place], place)
            except LLMError as error:
                log.warning("a part of a document was not read: %s", error.code)
                self.unread += 1

    def fit_notes(self, room: int, counter: TokenCounter) -> list[Note]:
        """The notes that fit into `room` tokens: the first of each part before any second."""
        turns: Counter[int] = Counter()
        by_turns = []
        for place, note in enumerate(self.notes):
            by_turns.append((turns[note.part], place))
            turns[note.part] += 1
        kept: list[int] = []
        for _, place in sorted(by_turns):
            room -= counter.count(self.notes[place].text) + 1
            if room < 0:
                break
            kept.append(place)
        return [self.notes[place] for place in sorted(kept)]

    async def _note(self, question: str, portion: Sequence[Evidence], part: int) -> list[Note]:
        told = render_passages(portion, self.language)
        shown = prompts.fill_prompt(
            "read_section_text",
            self.language,
            question=neutralise_text(question),
            fence=f"=== {self.fence} ===",
            content=told,
        )
        system = prompts.load_prompt("read_section", self.language)
        said = await self.light.say(system, shown, max_tokens=NOTE_TOKENS)
        known = {item.number for item in portion}
        return [note for line in said.splitlines() if (note := _to_note(line, known, part))]


def _to_note(line: str, known: set[int], part: int) -> Note | None:
    """A line of notes; None where it rests on none of the passages shown."""
    numbers = tuple(dict.fromkeys(int(one) for one in _NUMBERS.findall(line)))
    rests_on = tuple(one for one in numbers if one in known)
    text = _NUMBERS.sub("", line).strip(" -*•\t")[:MAX_NOTE_CHARACTERS]
    if not text or not rests_on:
        return None
    return Note(
        f"- {neutralise_text(text)} " + "".join(f"[{one}]" for one in rests_on), rests_on, part
    )


def _spread_evenly(total: int, most: int) -> list[int]:
    """At most `most` places of `total`, the first and the last among them."""
    if total <= most:
        return list(range(total))
    return [round(place * (total - 1) / (most - 1)) for place in range(most)]
