"""Plain text: the whole file is one page."""

from collections.abc import Iterator
from pathlib import Path

from documents.parsers import kinds
from documents.parsers.base import Context
from documents.parsers.clean import clean
from documents.parsers.encoding import decode
from documents.parsers.errors import TooLarge
from rag.pages import Page


class TextParser:
    """Reads .txt."""

    types = (kinds.TEXT,)

    def parse(self, path: Path, context: Context) -> Iterator[Page]:
        """The text, cleaned."""
        yield Page(None, clean(decoded(load(path, context), context)).strip("\n"))


def load(path: Path, context: Context) -> bytes:
    """The bytes of a text file. Raises TooLarge above what its text may be."""
    if path.stat().st_size > context.limits.characters * 4:
        raise TooLarge(limit=context.limits.characters)
    return path.read_bytes()


def decoded(data: bytes, context: Context) -> str:
    """The text of the bytes, with a warning where some of it was lost."""
    text, lost = decode(data)
    if lost:
        context.warn("characters_replaced", lost)
    return text
