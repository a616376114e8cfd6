"""Reads a file as the product does: its type, then a child process; each file once a run."""

import functools
from dataclasses import dataclass
from pathlib import Path

import pytest

from documents.parsers import formats
from documents.parsers.base import Limits, NoText
from documents.parsers.sandbox import client
from rag.types import Page
from tests.support import DATA, NO_DATA

LIMITS = Limits(seconds=30)


@dataclass(frozen=True)
class Result:
    """All that came of a file."""

    pages: tuple[Page, ...]
    metadata: dict[str, str]
    warnings: tuple[str, ...]
    page_total: int | None

    @property
    def text(self) -> str:
        return "\n\n".join(page.text for page in self.pages)


@functools.cache
def read(path: Path, limits: Limits = LIMITS) -> Result:
    content_type = formats.detect_content_type(path, path.name)
    with client.read_document(path, content_type, path.name, limits) as reading:
        pages = tuple(reading)
        if reading.no_text:  # nobody here describes its pictures
            raise NoText(kind=reading.no_text)
    return Result(pages, reading.metadata, tuple(reading.warnings), reading.page_total)


def shared(name: str) -> Path:
    """A file of the shared data; the test is skipped where the data is not there."""
    path = DATA / name
    if not path.exists():
        pytest.skip(NO_DATA)
    return path
