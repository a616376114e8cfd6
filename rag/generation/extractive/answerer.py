"""Answers with the passages' own sentences, lists and rows. Deterministic."""

import asyncio
import itertools
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

from rag import prompts
from rag.config import ContextRules
from rag.context.assemble import measure
from rag.context.tokens import counter
from rag.generation.brief import Assembled, Brief
from rag.generation.extractive import choosing, passages, pieces, scoring, showing, wants
from rag.generation.extractive.passages import Passage
from rag.generation.extractive.scoring import Unit
from rag.generation.extractive.wants import Wants
from rag.pieces import Piece

OF_EACH, OF_MANY = 3, 2
"""Units of each document where several are asked about: of up to three, and of more."""
FEW = 3
PAIR = 2
"""Of two documents neither is left out."""
WORTH = 0.3
"""A document is left out whose best unit scores less than that share of the best of all."""


class ExtractiveAnswerer:
    """Quotes what holds most of the question: sentences, whole lists, rows of tables."""

    name = "extractive"

    def assemble(self, brief: Brief, rules: ContextRules) -> Assembled:
        """Everything: no model's window limits it."""
        return measure(brief, counter(self.name), rules)

    def sizes(self, brief: Brief) -> Mapping[str, int]:
        """Characters read."""
        return {"evidence": sum(len(item.text) for item in brief.evidence)}

    async def stream(self, brief: Brief) -> AsyncGenerator[Piece, None]:
        """The quotes, word by word, then one line that says what they are."""
        text = await asyncio.to_thread(answer, brief)
        for piece in re.findall(r"\S+\s*|\s+", text):
            yield Piece(text=piece)
        yield Piece(finish_reason="stop")


def answer(brief: Brief) -> str:
    """The whole answer as Markdown."""
    read = passages.read(brief.evidence)
    asked = wants.read(brief)
    quotes = list(_quotes(brief, read, asked))
    notes = [*brief.notices, "extractive_note" if quotes else "extractive_nothing"]
    return "\n\n".join([*quotes, *(prompts.text(name, brief.language) for name in notes)])


def _quotes(brief: Brief, read: Sequence[Passage], asked: Wants) -> Iterator[str]:
    if brief.opening:
        yield from _by_document(_leading(read), read, asked, brief.language)
        return
    scores = scoring.score(read, asked)
    slots = {passage.slot for passage in read}
    if brief.several and len(slots) > 1:
        most = OF_EACH if len(slots) <= FEW else OF_MANY
        least = WORTH if len(slots) > PAIR else 0.0
        each = choosing.of_each(scores, read, most, least)
        if not least:
            missing = slots - each.keys()
            each |= {slot: _closest(_only(read, slot), read) for slot in sorted(missing)}
        each = {slot: each[slot] for slot in sorted(each) if each[slot]}
        yield from _by_document(each, read, asked, brief.language)
    else:
        chosen = _ordered(choosing.best(scores), asked) if scores.ranked else _closest(read, read)
        yield from showing.groups(pieces.pieces(chosen, read, asked), brief.language)


def _ordered(chosen: Sequence[Unit], asked: Wants) -> list[Unit]:
    """A value or a definition that is asked for comes first, all else as the documents have it."""
    if asked.value:
        return sorted(chosen, key=lambda unit: not asked.holds_value(unit.text))
    return list(chosen) if asked.defined else sorted(chosen, key=lambda unit: unit.order)


def _only(read: Sequence[Passage], slot: int) -> list[Passage]:
    return [passage for passage in read if passage.slot == slot]


def _closest(among: Sequence[Passage], read: Sequence[Passage]) -> list[Unit]:
    """How the most relevant of some passages begins: for where no unit tells more."""
    best = max(among, key=lambda passage: passage.relevance, default=None)
    units = (one for one in scoring.units_of(read) if read[one.passage] is best)
    return list(itertools.islice(units, OF_MANY))


def _leading(read: Sequence[Passage]) -> dict[int, list[Unit]]:
    slots = len({passage.slot for passage in read})
    most = max(choosing.MOST, OF_MANY * slots)
    units = choosing.leading(list(scoring.units_of(read)), read, most)
    found: dict[int, list[Unit]] = {}
    for unit in sorted(units, key=lambda one: one.order):
        found.setdefault(read[unit.passage].slot, []).append(unit)
    return found


def _by_document(
    chosen: Mapping[int, Sequence[Unit]], read: Sequence[Passage], asked: Wants, language: str
) -> Iterator[str]:
    """The units of each document in its own order, under its name where there are several."""
    for units in chosen.values():
        ordered = sorted(units, key=lambda unit: unit.order)
        if len(chosen) > 1:
            yield showing.name(read[ordered[0].passage])
        yield from showing.groups(pieces.pieces(ordered, read, asked), language)
