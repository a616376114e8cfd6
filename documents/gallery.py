"""The pictures of one document while it is processed: kept, described, put into its pages."""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from documents.models import Document
from documents.parsers.sandbox import Reading
from rag.pages import Page


def _nothing() -> None:
    """Wait without telling anyone."""


class Gallery:
    """Takes the pictures of one document as its pages come.

        with sandbox.read(..., pictures=settings.PICTURES) as reading, Gallery(document) as gallery:
            for page in gallery.pages(reading): ...     # instead of `for page in reading`
            ...
            gallery.write()      # in the transaction that replaces the document's rows

    `pages` reads a few pages ahead while the vision model works and calls `on_wait` about every
    second. What was stored is removed at the end of the `with` where it ends in an error or `write`
    was not called. `warnings` are codes: pictures that should have been described and were not.
    """

    def __init__(self, document: Document, on_wait: Callable[[], None] = _nothing) -> None:
        self.warnings: list[str] = []
        self._document = document
        self._on_wait = on_wait

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave."""

    def pages(self, reading: Reading) -> Iterator[Page]:
        """The pages with what the vision model reads in their pictures behind their text.

        Raises `NoText` where neither pages nor pictures hold any.
        """
        yield from reading

    def write(self) -> None:
        """Replace the rows of the document's pictures."""
