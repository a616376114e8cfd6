"""What the readers kept, looked at: tokens with their times, gaps, and what is wrong."""

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from benchmarks.streams.model import TOKEN_CHARACTERS, sent_at

LAST = {"run.completed", "run.stopped", "run.error"}


@dataclass(slots=True)
class Heard:
    """All frames of one socket: when they came, whether deflated, and their payload."""

    frames: list[tuple[float, bool, bytes]] = field(default_factory=list)
    received: int = 0
    """Bytes, those of the handshake left out."""
    sent: int = 0
    asked_at: float = 0.0
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """One answer: its tokens as (sent, read) in seconds, and whether nothing of it is wrong."""

    tokens: list[tuple[float, float]]
    text: str
    fault: str
    """Empty, or what a reader would complain of."""
    deltas: int
    received: int
    started_after: float
    """Seconds from asking to the first frame of the run."""
    first_after: float
    """Seconds from asking to the first token; not a number where none came."""

    def added(self, begin: float, end: float) -> Iterator[float]:
        """Seconds by which gaps between tokens grew on their way, of tokens sent in that time."""
        for one, two in pairwise(self.tokens):
            if begin <= one[0] and two[0] <= end:
                yield (two[1] - one[1]) - (two[0] - one[0])

    def under_way(self, begin: float, end: float) -> Iterator[float]:
        """Seconds from the model to the reader, of tokens sent in that time."""
        return (read - sent for sent, read in self.tokens if begin <= sent <= end)


def told(heard: Heard) -> Told:
    """Read the frames of one socket."""
    text, tokens, deltas, numbers = "", [], 0, []
    stored, ending, begun = "", "", 0.0
    for moment, frame in _frames(heard):
        if frame["run_id"] is None:
            continue
        begun = begun or moment
        numbers.append(frame["seq"])
        if frame["type"] == "delta":
            deltas += 1
            text += frame["data"]["text"]
            tokens += [(sent_at(one, moment), moment) for one in _tokens(frame["data"]["text"])]
        elif frame["type"] in LAST:
            ending, stored = frame["type"], frame["data"]["message"]["content"]
            ending += f" {frame['data'].get('code', '')}".rstrip()
    fault = _fault(numbers, tokens, text, stored, ending)
    return Told(
        tokens, text, fault, deltas, heard.received, begun - heard.asked_at, _first(tokens, heard)
    )


def told_by_v1(heard: Heard) -> Told:
    """Read the events of one streamed reply of `/v1/chat/completions`."""
    text, tokens, deltas = "", [], 0
    events = [(at, json.loads(line[6:])) for at, _, line in heard.frames if line[6:7] == b"{"]
    for moment, event in events:
        new = "".join(choice["delta"].get("content") or "" for choice in event.get("choices", ()))
        deltas += bool(new)
        text += new
        tokens += [(sent_at(one, moment), moment) for one in _tokens(new)]
    begun = events[0][0] if events else heard.asked_at
    fault = "cut off" if heard.lost else "no words" if not tokens else ""
    return Told(
        tokens, text, fault, deltas, heard.received, begun - heard.asked_at, _first(tokens, heard)
    )


def _first(tokens: Sequence[tuple[float, float]], heard: Heard) -> float:
    return tokens[0][1] - heard.asked_at if tokens else float("nan")


def _frames(heard: Heard) -> Iterator[tuple[float, dict[str, Any]]]:
    inflate = zlib.decompressobj(wbits=-15)
    for moment, deflated, payload in heard.frames:
        text = inflate.decompress(payload + b"\0\0\xff\xff") if deflated else payload
        yield moment, json.loads(text)


def _tokens(text: str) -> Sequence[str]:
    return [text[at : at + TOKEN_CHARACTERS] for at in range(0, len(text), TOKEN_CHARACTERS)]


def _fault(
    numbers: list[int],
    tokens: list[tuple[float, float]],
    text: str,
    stored: str,
    ending: str,
) -> str:
    if numbers != list(range(1, len(numbers) + 1)):
        return "a gap or a repetition in seq"
    if ending != "run.completed":
        return f"ended as {ending or 'nothing'}"
    if stored != text:
        return f"{len(text)} characters came, {len(stored)} are stored"
    if any(two[0] <= one[0] for one, two in pairwise(tokens)):
        return "tokens out of order"
    return ""
