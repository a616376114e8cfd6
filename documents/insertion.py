"""Puts what a picture says into its page; all offsets of the page stay true."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from rag.pages import Box, Heading, Kind, Line, Page, Region

SEPARATOR = "\n\n"
Part = TypeVar("Part", Heading, Line, Region)


@dataclass(frozen=True, slots=True)
class Described:
    """What a picture says, where it stands on the page, and where in the page's text if known."""

    text: str
    box: Box | None = None
    at: int | None = None


def inserted(page: Page, pictures: Iterable[Described]) -> Page:
    """The page with these in their order, each a region; behind its text where no place is known.

    No table or list is torn apart: what stands in one follows it.
    """
    known = list[tuple[int, Described]]()
    for picture in pictures:
        place = _place(page, picture.at)
        if place is None:
            page = _behind(page, picture)
        else:
            known.append((place, picture))
    known.sort(key=lambda one: one[0])
    for place, picture in reversed(known):  # what comes before a place stays where it is
        page = _before(page, place, picture)
    return page


def _place(page: Page, at: int | None) -> int | None:
    """Where a block of the page begins, at this offset or next to it; None: behind all."""
    if at is None:
        return None
    for region in page.regions:
        if region.start < at < region.end:
            at = region.end
    if at > 0 and not page.text.startswith(SEPARATOR, at - len(SEPARATOR)):
        found = page.text.find(SEPARATOR, at)
        at = found + len(SEPARATOR) if found >= 0 else len(page.text)
    return at if at < len(page.text) else None


def _behind(page: Page, picture: Described) -> Page:
    text = page.text + SEPARATOR if page.text else ""
    return replace(
        page,
        text=text + picture.text,
        regions=(*page.regions, _region(len(text), picture)),
    )


def _before(page: Page, at: int, picture: Described) -> Page:
    """In front of the block that begins at `at`."""
    by = len(picture.text) + len(SEPARATOR)
    regions = (*_moved(page.regions, at, by), _region(at, picture))
    return replace(
        page,
        text=page.text[:at] + picture.text + SEPARATOR + page.text[at:],
        headings=_moved(page.headings, at, by),
        lines=_moved(page.lines, at, by),
        regions=tuple(sorted(regions, key=lambda region: region.start)),
    )


def _region(start: int, picture: Described) -> Region:
    return Region(start, start + len(picture.text), Kind.PICTURE, box=picture.box)


def _moved(parts: tuple[Part, ...], at: int, by: int) -> tuple[Part, ...]:
    """Those from `at` on, `by` characters further."""
    return tuple(_shifted(part, by) if part.start >= at else part for part in parts)


def _shifted(part: Part, by: int) -> Part:
    if isinstance(part, Heading):
        return replace(part, start=part.start + by)
    if isinstance(part, Line):
        return replace(part, start=part.start + by, end=part.end + by)
    header_end = part.header_end + by if part.header_end else 0
    return replace(part, start=part.start + by, end=part.end + by, header_end=header_end)
