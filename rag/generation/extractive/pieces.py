"""From the units that answer to what is shown of them: sentences, lists under their lead, rows."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rag.generation.extractive.passages import Passage
from rag.generation.extractive.reading import Block
from rag.generation.extractive.scoring import Unit
from rag.generation.extractive.wants import Wants

MOST_ITEMS = 10
"""Items of a list, or rows of a table, that are shown; more are counted."""
MOST_OF_WHOLE = 40
"""The same where the question asks for all of them."""
_SENTENCE = re.compile(r"(?:[다요까오음함임됨]|[.!?])[.!?。]?[\"'”’」』)\]]*$")
_AMENDED = re.compile(r"\s*<(?:개정|신설|시행|본조|전문)[^<>]*>")


@dataclass(slots=True)
class Piece:
    """What is shown of one block: sentences or rows of it, and items under it.

    `parts` are places in the block, `items` those of blocks below it, `left` how many more items
    or rows there are. `whole`: the list or table is shown from its beginning.
    """

    passage: Passage
    place: int
    parts: list[int] = field(default_factory=list)
    items: list[int] = field(default_factory=list)
    whole: bool = False
    left: int = 0

    @property
    def block(self) -> Block:
        """The block itself."""
        return self.passage.blocks[self.place]

    @property
    def heading(self) -> str:
        """What stands above it: the table's name, its heading, or the last one of the section."""
        block = self.block
        found = block.label or block.heading or self.passage.section.rpartition(" > ")[2]
        return _AMENDED.sub("", found).strip()


def pieces(units: Sequence[Unit], passages: Sequence[Passage], wants: Wants) -> list[Piece]:
    """The pieces that show these units, in the order of the units; each block once."""
    found: dict[tuple[int, int], Piece] = {}
    for unit in units:
        passage = passages[unit.passage]
        *above, item = _above(unit, passage, wants)
        place = above[0] if above else item
        table = _named_by(passage, place)
        place = place if table is None else table
        piece = found.setdefault((unit.passage, place), Piece(passage, place))
        if above:
            piece.items.append([*above, item][1])
        elif table is not None or _leads(passage, place):
            piece.whole = True
        else:
            piece.parts.append(unit.part)
    for piece in found.values():
        _complete(piece, wants)
    shown = {(key[0], item) for key, one in found.items() for item in one.items}
    return [piece for key, piece in found.items() if key not in shown]


def nested(passage: Passage, place: int) -> Iterator[tuple[int, int]]:
    """An item and what stands under it, with its depth from 0."""
    yield 0, place
    for below in _children(passage, place):
        for depth, at in nested(passage, below):
            yield depth + 1, at


def _above(unit: Unit, passage: Passage, wants: Wants) -> list[int]:
    """The blocks under which a unit is to be shown, outermost first, then its own."""
    path = [unit.block]
    block = passage.blocks[unit.block]
    while (at := passage.blocks[path[0]].parent) is not None and _leads(passage, at):
        if not wants.list and _SENTENCE.search(block.text):
            break
        path.insert(0, at)
    return path


def _leads(passage: Passage, place: int) -> bool:
    """Whether a block says little without those that stand under it."""
    block = passage.blocks[place]
    return (block.announces or block.is_label) and bool(_children(passage, place))


def _named_by(passage: Passage, place: int) -> int | None:
    """The table that a block is the name of."""
    after = passage.blocks[place + 1] if place + 1 < len(passage.blocks) else None
    named = after is not None and after.label and after.label == passage.blocks[place].text
    return place + 1 if named else None


def _children(passage: Passage, place: int) -> list[int]:
    """The blocks that stand directly under one."""
    return [at for at, block in enumerate(passage.blocks) if block.parent == place]


def _complete(piece: Piece, wants: Wants) -> None:
    """The lead with as many items, or the table with as many rows, as are asked for."""
    table = piece.block.table
    if not piece.whole and not piece.items:
        piece.parts = sorted(piece.parts) if table else piece.parts
        return
    under = list(range(len(table.rows))) if table else _children(piece.passage, piece.place)
    chosen = sorted(set(piece.parts if table else piece.items))
    if piece.whole or wants.list:
        most = MOST_OF_WHOLE if wants.whole else MOST_ITEMS
        others = [at for at in under if at not in chosen]
        chosen = sorted([*chosen, *others][:most])
        piece.left = len(under) - len(chosen)
    if table:
        piece.parts = chosen
    else:
        piece.parts, piece.items = list(range(len(piece.block.sentences))), chosen
