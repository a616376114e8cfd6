"""Pieces as Markdown: under their headings, each with the number of its source."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from rag import prompts
from rag.generation.extractive.furniture import is_nothing
from rag.generation.extractive.passages import Passage
from rag.generation.extractive.pieces import Piece, nested
from rag.generation.extractive.reading import Block, is_told, told
from rag.generation.extractive.visible import cell, inert
from rag.generation.extractive.wants import letters

LONGEST = 700
"""Characters of one quoted sentence, item or row."""
LONGEST_HEADING = 100


def groups(pieces: Sequence[Piece], language: str) -> Iterator[str]:
    """A paragraph of Markdown for each run of pieces below one heading."""
    for heading, run in groupby(pieces, key=lambda piece: (piece.passage.slot, piece.heading)):
        texts = [text for piece in run for text in _texts(piece, language)]
        if not texts:
            continue
        title = _heading(heading[1], pieces)
        shown = "\n\n".join(texts)
        apart = "\n\n" if shown.startswith("|") else "\n"  # a table stands by itself
        yield f"**{title}**{apart}{shown}" if title else shown


def name(passage: Passage) -> str:
    """A document's name on a line of its own."""
    return f"### {inert(passage.title)}"


def _heading(heading: str, pieces: Sequence[Piece]) -> str:
    titles = {letters(piece.passage.title) for piece in pieces}
    if not heading or len(heading) > LONGEST_HEADING or letters(heading) in titles:
        return ""
    return inert(heading)


def _texts(piece: Piece, language: str) -> Iterator[str]:
    block, slot = piece.block, piece.passage.slot
    if block.table:
        yield _table(piece, language)
        return
    if quotes := [_quote(block, part, slot) for part in piece.parts if _said(block, part)]:
        yield " ".join(quotes)
    if piece.items:
        yield "\n".join(_list(piece, language))


def _said(block: Block, part: int) -> bool:
    return not is_nothing(block.sentences[part])


def _quote(block: Block, part: int, slot: int) -> str:
    return f"{inert(_cut(told(block)[part]))} [{slot}]"


def _list(piece: Piece, language: str) -> Iterator[str]:
    blocks, slot = piece.passage.blocks, piece.passage.slot
    counted = _is_counted([blocks[item].mark for item in piece.items])
    for item in piece.items:
        for depth, at in nested(piece.passage, item):
            said = " ".join(part for part in blocks[at].sentences if not is_nothing(part))
            own = blocks[at].mark
            mark = own if counted and not depth else "-"
            if said:
                name = f"{own} " if is_told(own) and mark == "-" else ""
                yield f"{'   ' * depth}{mark} {inert(_cut(name + said))} [{slot}]"
    yield from _more(piece, language)


def _is_counted(marks: Sequence[str]) -> bool:
    """Whether marks are 1., 2., 3. and so on, which Markdown counts by itself."""
    numbers = [int(mark[:-1]) for mark in marks if re.fullmatch(r"\d{1,3}\.", mark)]
    return numbers == [*range(numbers[0], numbers[0] + len(marks))] if numbers else False


def _more(piece: Piece, language: str) -> Iterator[str]:
    if piece.left:
        yield "\n" + prompts.fill("extractive_more", language, count=str(piece.left))


def _table(piece: Piece, language: str) -> str:
    table, slot = piece.block.table, piece.passage.slot
    rows = [table.rows[part] for part in piece.parts] if table else []
    if table is None or len(rows) == 1 or not table.columns:
        return "\n\n".join(
            f"{inert(_cut(told(piece.block)[part]))} [{slot}]" for part in piece.parts
        )
    width = max(len(table.columns), *map(len, rows))
    lines = [_row(table.columns, width, ""), "|" + " --- |" * width]
    lines += [_row(row, width, f" [{slot}]") for row in rows]
    return "\n".join([*lines, *_more(piece, language)])


def _row(cells: Sequence[str], width: int, end: str) -> str:
    shown = [cell(one) for one in [*cells, *[""] * (width - len(cells))]]
    return "| " + " | ".join([*shown[:-1], (shown[-1] + end).strip()]) + " |"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"
