"""How child and parent talk: frames of a length and JSON (or raw bytes), never pickles.

A frame is 4 bytes of length, 1 byte for the kind of body (`J`son or `B`ytes), the body.
JSON bodies are `[kind, value]`.
"""

import json
import math
import struct
from array import array
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from documents.parsers.base import MEGABYTE, Picture
from rag.pages import Box, Heading, Kind, Line, Page, Region

HEADER = struct.Struct(">IB")
JSON, BYTES = ord("J"), ord("B")
DIGEST = 64
"""Characters of a picture's digest."""
LARGEST_PICTURE = 16 * MEGABYTE


class BrokenFrame(Exception):
    """The other side sent what cannot be."""


def frame(kind: str, value: object) -> bytes:
    """One frame; bytes travel as they are."""
    if isinstance(value, bytes):
        return HEADER.pack(len(value), BYTES) + value
    body = json.dumps([kind, value], ensure_ascii=False, separators=(",", ":")).encode()
    return HEADER.pack(len(body), JSON) + body


def frames(buffer: bytearray, largest: int) -> Iterator[tuple[str, Any]]:
    """Take every whole frame out of the buffer."""
    while len(buffer) >= HEADER.size:
        length, body_kind = HEADER.unpack_from(buffer)
        if length > largest:
            raise BrokenFrame("frame too long")
        end = HEADER.size + length
        if len(buffer) < end:
            return
        body = bytes(buffer[HEADER.size : end])
        del buffer[:end]
        yield ("bytes", body) if body_kind == BYTES else _decoded(body)


def _decoded(body: bytes) -> tuple[str, Any]:
    """Kind and value of a JSON body."""
    try:
        kind, value = json.loads(body)
    except (ValueError, TypeError, RecursionError) as error:
        raise BrokenFrame("not a frame") from error
    return str(kind), value


def page_value(page: Page) -> list[object]:
    """A page as plain JSON. The edges of all lines are one text: numbers one by one take longer."""
    edges = array("d", chain.from_iterable(line.edges for line in page.lines))
    return [
        page.number,
        page.text,
        [[heading.start, heading.level, heading.title] for heading in page.headings],
        [[line.start, line.end, line.y0, line.y1] for line in page.lines],
        b64encode(edges.tobytes()).decode(),
        [_region_value(region) for region in page.regions],
        page.margins,
    ]


def _region_value(region: Region) -> list[object]:
    box = region.box
    area = [box.page, box.x0, box.y0, box.x1, box.y1] if box else None
    return [region.start, region.end, region.kind, region.header_end, area]


def page(value: Any) -> Page:
    """A page back from JSON. The child is not trusted: every field is checked."""
    try:
        number, text, headings, lines, edges, regions, margins = value
        if not isinstance(text, str) or not (number is None or isinstance(number, int)):
            raise BrokenFrame("not a page")
        return Page(
            number,
            text,
            tuple(Heading(int(start), int(level), str(title)) for start, level, title in headings),
            tuple(_lines(lines, edges, len(text))),
            tuple(_region(region, len(text)) for region in regions),
            tuple(map(str, margins)),
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise BrokenFrame("not a page") from error


def _lines(lines: Iterable[Sequence[Any]], edges: str, length: int) -> Iterator[Line]:
    """Lines whose offsets lie inside the text and whose edges fit them; all places are finite."""
    places = array("d", b64decode(edges, validate=True))
    whole, at, heights = tuple(places), 0, 0.0
    for start, end, y0, y1 in lines:
        if not 0 <= start <= end <= length:
            raise BrokenFrame("not a line")
        behind = at + end - start + 1
        yield Line(int(start), int(end), float(y0), float(y1), whole[at:behind])
        at, heights = behind, heights + y0 + y1
    if at != len(whole) or not math.isfinite(sum(whole) + heights):
        raise BrokenFrame("not the places of lines")


def _region(region: Sequence[Any], length: int) -> Region:
    """A region inside the text."""
    start, end, kind, header_end, area = region
    if not 0 <= start <= end <= length or not (header_end == 0 or start <= header_end <= end):
        raise BrokenFrame("not a region")
    box = Box(int(area[0]), *map(float, area[1:])) if area else None
    return Region(int(start), int(end), Kind(kind), int(header_end), box)


def picture(value: Any, data: bytes) -> Picture:
    """A picture back from JSON, with its bytes."""
    try:
        page, box, at = value["page"], value["box"], value["at"]
        kept = 0 < len(data) <= LARGEST_PICTURE
        if not (page is None or isinstance(page, int)) or kept == bool(value["rejected"]):
            raise BrokenFrame("not a picture")
        return Picture(
            page,
            str(value["digest"])[:DIGEST],
            max(0, int(value["width"])),
            max(0, int(value["height"])),
            _area(box) if box else None,
            str(value["rejected"])[:20],
            str(value["content_type"])[:40],
            data,
            None if at is None else max(0, int(at)),
        )
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise BrokenFrame("not a picture") from error


def _area(box: Sequence[Any]) -> tuple[float, float, float, float]:
    """Four fractions."""
    x0, y0, x1, y1 = map(float, box)
    return x0, y0, x1, y1
