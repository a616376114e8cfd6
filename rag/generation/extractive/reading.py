"""Reads a passage: paragraphs, items of lists under what announces them, and tables.

Headings are not quoted; they say what the blocks below them are about.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rag.generation.extractive import tables
from rag.generation.extractive.furniture import is_nothing
from rag.generation.extractive.lines import Line, continues, lines_of, width
from rag.generation.extractive.sentences import split
from rag.generation.extractive.tables import Table

LONGEST_LABEL = 80
"""Characters of a line that may be the name of what stands below it."""
LONGEST_ENTRY = 120
"""Characters of a line that may be an item although no mark stands before it."""
_ANNOUNCES = re.compile(
    r"[:：]\W*$|다음\s?(?:각\s?(?:호|목)|과\s?같|의|사항|항목)|아래(?:와\s?같|의)|"
    r"\bfollowing\b|\bas follows\b",
    re.IGNORECASE,
)
_ENDED = re.compile(r"[.!?。？！…][\"'”’」』)\]]*$")


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, an item of a list, or a table.

    `mark` is what stands before an item ("①", "1.", "-"). `parent` is the place of the block that
    it belongs under. `label` names a table.
    """

    heading: str
    sentences: tuple[str, ...]
    mark: str = ""
    parent: int | None = None
    table: Table | None = None
    label: str = ""

    @property
    def text(self) -> str:
        """All of it on one line."""
        return " ".join(self.sentences)

    @property
    def announces(self) -> bool:
        """Whether it says that a list follows."""
        said = [one for one in self.sentences if not is_nothing(one)]
        return bool(said) and bool(_ANNOUNCES.search(said[-1]))

    @property
    def is_label(self) -> bool:
        """Whether it may be the name of what stands below it."""
        return len(self.text) <= LONGEST_LABEL and not _ENDED.search(self.text)


def read(text: str) -> list[Block]:
    """The blocks of a passage, in order."""
    return _Reader().read(lines_of(text))


@dataclass(slots=True)
class _Open:
    """A marked block under which others may stand."""

    indent: int
    kind: str
    place: int


@dataclass(slots=True)
class _Reader:
    blocks: list[Block] = field(default_factory=list)
    heading: str = ""
    open: list[_Open] = field(default_factory=list)

    def read(self, lines: Sequence[Line]) -> list[Block]:
        for run in _runs(lines):
            if run[0].heading:
                self.heading, self.open = run[0].text, []
            elif run[0].row:
                self._table(run)
            else:
                for part in _paragraphs(run):
                    self._paragraph(part)
        return self.blocks

    def _table(self, run: Sequence[Line]) -> None:
        before = self.blocks[-1] if self.blocks else None
        named = before is not None and before.heading == self.heading and before.is_label
        label = before.text if named and before is not None else ""
        table = tables.read([line.raw for line in run])
        if table.rows:
            self.blocks.append(Block(self.heading, (), table=table, label=label))
        self.open = []

    def _paragraph(self, part: Sequence[Line]) -> None:
        sentences = split("\n".join(line.text for line in part))
        if not sentences:
            return
        first = part[0]
        parent = self._parent(first, sentences)
        self.blocks.append(Block(self.heading, tuple(sentences), first.mark, parent))
        if first.mark:
            self.open.append(_Open(first.indent, first.kind, len(self.blocks) - 1))

    def _parent(self, first: Line, sentences: Sequence[str]) -> int | None:
        if not first.mark:
            self.open = []
            return self._entry_of(sentences)
        while self.open and not self._under(first):
            self.open.pop()
        if self.open and self.open[-1].kind == first.kind:
            return self.blocks[self.open.pop().place].parent
        return self.open[-1].place if self.open else self._lead()

    def _under(self, first: Line) -> bool:
        """Whether the innermost open block is the item's sister or stands above it."""
        if first.kind in (kinds := [one.kind for one in self.open]):
            return kinds[-1] == first.kind
        return self.open[-1].indent <= first.indent

    def _lead(self) -> int | None:
        """The paragraph before a list, where it announces or names the list."""
        before = self.blocks[-1] if self.blocks else None
        if before is None or before.heading != self.heading or before.table or before.mark:
            return None
        return len(self.blocks) - 1 if before.announces or before.is_label else None

    def _entry_of(self, sentences: Sequence[str]) -> int | None:
        """The paragraph with a colon that an unmarked short line stands under."""
        line = " ".join(sentences)
        if len(line) > LONGEST_ENTRY or _ENDED.search(line) or line.endswith((":", "：")):
            return None
        before = self.blocks[-1] if self.blocks else None
        if before is None or before.heading != self.heading or before.table or before.mark:
            return None
        return len(self.blocks) - 1 if before.text.endswith((":", "：")) else before.parent


def told(block: Block) -> list[str]:
    """The sentences of a block with its mark, or its rows in words."""
    if block.table:
        return [tables.told(block.table, row) for row in block.table.rows]
    first, *rest = block.sentences
    return [f"{block.mark} {first}" if is_told(block.mark) else first, *rest]


def is_told(mark: str) -> bool:
    """Whether a mark says where an item stands: a bullet does not."""
    return any(letter.isalnum() for letter in mark) and mark != "ㅇ"


def _runs(lines: Sequence[Line]) -> Iterator[list[Line]]:
    """Lines without a blank one between them: a heading, a table, or prose."""
    run: list[Line] = []
    for line in lines:
        if run and (line.blank or line.heading or run[-1].heading or run[-1].row != line.row):
            yield run
            run = []
        if not line.blank:
            run.append(line)
    if run:
        yield run


def _paragraphs(run: Sequence[Line]) -> Iterator[list[Line]]:
    """Lines joined where the margin broke them, apart where the author did."""
    full = width(run)
    held: list[Line] = []
    for line in run:
        if held and (line.mark or not continues(held[-1], line, full)):
            yield held
            held = []
        held.append(line)
    if held:
        yield held
