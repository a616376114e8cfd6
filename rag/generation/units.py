"""Cuts a passage into what can be quoted: sentences, list items, rows of tables with their columns.

Headings are not quoted; they say what the units below them are about.
"""

from dataclasses import dataclass

from rag.generation.extractive import reading


@dataclass(frozen=True, slots=True)
class Unit:
    """Something to quote, and the heading it stands under."""

    text: str
    heading: str


def cut(text: str) -> list[Unit]:
    """The units of a passage, in order."""
    return [
        Unit(part, block.heading) for block in reading.read(text) for part in reading.told(block)
    ]
