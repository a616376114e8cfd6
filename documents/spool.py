"""What is too much for memory waits in files without names, which end with their process."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from django.conf import settings

from documents.files import storage_error
from rag.pages import Box, Kind
from rag.types import Chunk, IndexedChunk

BLOCK = 256 * 1024


class Spool:
    """Bytes that are written once and read back in order. Used within a `with`.

    Raises `StorageFull` or `StorageFailed`.
    """

    def __init__(self) -> None:
        with _in_words():
            folder = Path(settings.DATA_DIR) / "temp"
            folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=folder, buffering=BLOCK)  # noqa: SIM115

    def write(self, data: bytes) -> None:
        """Put `data` behind what is there."""
        with _in_words():
            self._file.write(data)

    def clear(self) -> None:
        """Begin anew."""
        with _in_words():
            self._file.seek(0)
            self._file.truncate()

    def blocks(self) -> Iterator[bytes]:
        """All of it, in pieces for a pipe."""
        with _in_words():
            self._file.seek(0)
        while block := self._file.read(BLOCK):
            yield block

    def lines(self) -> Iterator[bytes]:
        """All of it, by line."""
        with _in_words():
            self._file.seek(0)
        yield from self._file

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with _in_words():
            self._file.close()


class Chunks(Spool):
    """The analysed chunks of a document. They can be walked through more than once."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def add(self, analysed: IndexedChunk) -> None:
        """Put a chunk with its terms, not yet with a vector, behind the others."""
        value = [*_value(analysed.chunk), analysed.terms, analysed.emphasis]
        self.write(json.dumps(value).encode() + b"\n")
        self.count += 1

    def __iter__(self) -> Iterator[IndexedChunk]:
        for line in self.lines():
            *value, terms, emphasis = json.loads(line)
            yield IndexedChunk(_chunk(value), terms, None, emphasis)


def _value(chunk: Chunk) -> list[Any]:
    boxes = [(box.page, box.x0, box.y0, box.x1, box.y1) for box in chunk.boxes]
    place = (chunk.start, chunk.end, chunk.page, chunk.page_end)
    return [chunk.index, chunk.text, *place, chunk.section, boxes, chunk.kind, chunk.header]


def _chunk(value: Sequence[Any]) -> Chunk:
    index, text, *place, section, boxes, kind, header = value
    start, end, page, page_end = place
    drawn = tuple(Box(*box) for box in boxes)
    return Chunk(index, text, start, end, page, page_end, section, drawn, Kind(kind), header)


@contextmanager
def _in_words() -> Iterator[None]:
    """Errors of the file system as errors that people can read about."""
    try:
        yield
    except OSError as error:
        raise storage_error(error) from error
