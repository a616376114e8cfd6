"""Server-sent events out of a body's bytes, however the network cut them.

Own code because it runs for every token: the client's decoder and its objects cost more than all
the rest of a chunk (`benchmarks/llm_parsing.py`).
"""

from collections.abc import Iterator
from typing import NamedTuple

BOM = b"\xef\xbb\xbf"
LARGEST = 8 * 2**20
"""Bytes of an event; a server that sends more without an end is not read any further."""


class Event(NamedTuple):
    """What stood between two blank lines; `name` is empty where the server gave none."""

    name: bytes
    data: bytes


class Decoder:
    """Takes bytes, gives the events that are whole.

    Lines end with CR LF, LF or CR. Comments and unknown fields are passed over. What servers do
    against the rules is read as it is meant: an event without its blank line at the end of the
    body, a line `error: ...` (older llama.cpp), and a body that is one JSON document, which becomes
    one event at the end.
    """

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._name = b""
        self._held = 0
        self._after_cr = False
        self._first_line = True
        self._document: bool | None = None

    def feed(self, part: bytes) -> list[Event]:
        """The events that these bytes complete. Raises `ValueError` where one is too large."""
        if self._document is None and (begun := part.lstrip()):
            self._document = begun.startswith(b"{")
        if self._document:
            self._hold(self._data, part)
            return []
        if self._after_cr and part.startswith(b"\n"):
            part = part[1:]
        self._after_cr = part.endswith(b"\r")
        return list(self._events(part))

    def close(self) -> list[Event]:
        """The event that the body ended in, if any."""
        if self._document:
            self._data = [b"".join(self._data)]
            return list(self._dispatched())
        return list(self._events(b"\n\n"))

    def _events(self, part: bytes) -> Iterator[Event]:
        lines = part.splitlines(keepends=True)
        for line in lines:
            if not line.endswith((b"\n", b"\r")):
                self._hold(self._line, line)
                return
            whole = line.rstrip(b"\r\n")
            if self._line:
                whole = b"".join((*self._line, whole))
                self._line.clear()
            if whole:
                self._field(whole)
            else:
                yield from self._dispatched()

    def _field(self, line: bytes) -> None:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(BOM)
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._hold(self._data, value)
        elif name == b"event":
            self._name = value
        elif name == b"error":
            self._name = name
            self._hold(self._data, value)

    def _dispatched(self) -> Iterator[Event]:
        if self._data:
            yield Event(self._name, b"\n".join(self._data))
            self._data.clear()
        self._name = b""
        self._held = 0

    def _hold(self, where: list[bytes], part: bytes) -> None:
        self._held += len(part)
        if self._held > LARGEST:
            raise ValueError("an event without an end")
        where.append(part)
