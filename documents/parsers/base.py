"""What every reader is given and gives: limits, a context, pages."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from documents.parsers.errors import TooManyPages
from rag.types import Page

MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What one document may cost. Sizes in bytes, times in seconds, text in characters."""

    memory: int = 2048 * MEGABYTE
    seconds: float = 60.0
    seconds_per_page: float = 0.2
    pages: int = 5_000
    entries: int = 10_000
    inflated: int = 200 * MEGABYTE
    """Most that one part of an archive may unpack to."""
    ratio: int = 100
    """Most that a part may grow, once it is above `ratio_after`."""
    ratio_after: int = 10 * MEGABYTE
    characters: int = 20_000_000


class Context:
    """One reading: its limits, and where all goes that is not a page.

    `emit(kind, value)` is the sink; the child process puts it into the pipe at once.
    """

    def __init__(
        self,
        content_type: str,
        limits: Limits,
        emit: Callable[[str, object], None],
    ) -> None:
        self.content_type = content_type
        self.limits = limits
        self.metadata: dict[str, str] = {}
        self.no_text = "empty"
        self._emit = emit
        self._warned: set[str] = set()

    def page_total(self, count: int) -> None:
        """Say how many pages there are, as soon as it is known; too many end the reading."""
        if count > self.limits.pages:
            raise TooManyPages(pages=count, limit=self.limits.pages)
        self._emit("page_total", count)

    def found(self, metadata: Mapping[str, str | None]) -> None:
        """Keep metadata that the file carries; what was found before stays."""
        for key, value in metadata.items():
            if value and value.strip() and key not in self.metadata:
                self.metadata[key] = value.strip()[:500]

    def warn(self, code: str) -> None:
        """Say once that something was left out."""
        if code not in self._warned:
            self._warned.add(code)
            self._emit("warning", code)


class Parser(Protocol):
    """Reads one format. Raises `ParseFailed`; anything else counts as a broken file."""

    types: tuple[str, ...]

    def parse(self, path: Path, context: Context) -> Iterator[Page]:
        """The pages in order, each as soon as it is read."""
        ...
