"""Markers against the evidence: `[n]` without a source never reaches the reader."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field

_OPEN = re.compile(r"[ \t]*(?:\[[\d,\s]{0,16})?\Z|`+\Z")
_TOKEN = re.compile(r"(?P<ticks>`+)|(?P<space>[ \t]*)\[(?P<numbers>\d{1,4}(?:\s*,\s*\d{1,4})*)\]")


@dataclass(slots=True)
class MarkerFilter:
    """A streaming filter: feed pieces, send on what comes out, flush at the end.

    `cited` grows with valid markers.

    Code (between backticks) passes as it is; "[1, 2]" becomes "[1][2]".
    """

    slots: Collection[int]
    cited: set[int] = field(default_factory=set)
    _held: str = ""
    _fence: str = ""
    _before: str = ""

    def feed(self, text: str) -> str:
        """What of the text so far may go out; the start of a possible marker waits for more."""
        self._held += text
        found = _OPEN.search(self._held)
        cut = found.start() if found else len(self._held)
        ready, self._held = self._held[:cut], self._held[cut:]
        return self._clean(ready)

    def flush(self) -> str:
        """The rest, at the end of the stream."""
        ready, self._held = self._held, ""
        return self._clean(ready)

    def _clean(self, text: str) -> str:
        out: list[str] = []
        position = 0
        for match in _TOKEN.finditer(text):
            self._keep(text[position : match.start()], out)
            self._keep(self._ticks(match) if match["ticks"] else self._marker(match), out)
            position = match.end()
        self._keep(text[position:], out)
        return "".join(out)

    def _keep(self, text: str, out: list[str]) -> None:
        if text:
            out.append(text)
            self._before = text[-1]

    def _ticks(self, match: re.Match[str]) -> str:
        ticks = match["ticks"]
        if not self._fence:
            self._fence = ticks
        elif ticks == self._fence or (len(self._fence) >= 3 and len(ticks) >= len(self._fence)):
            self._fence = ""
        return ticks

    def _marker(self, match: re.Match[str]) -> str:
        if self._fence or self._is_subscript(match):
            return match[0]
        numbers = [int(number) for number in match["numbers"].split(",")]
        known = [number for number in numbers if number in self.slots]
        self.cited.update(known)
        return match["space"] + "".join(f"[{number}]" for number in known) if known else ""

    def _is_subscript(self, match: re.Match[str]) -> bool:
        """`items[0]` outside code: no slot is ever 0, so it is no marker."""
        attached = not match["space"] and (
            self._before.isascii() and (self._before.isalnum() or self._before in "_)]")
        )
        return attached and match["numbers"] == "0"
