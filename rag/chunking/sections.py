"""The sections of a document, page by page: a heading with what follows it up to the next."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rag.pages import Heading, Page


@dataclass(frozen=True, slots=True)
class Section:
    """What of a section stands on one page; the text before the first heading has no path."""

    start: int
    level: int
    path: tuple[str, ...]
    body: bool
    """Whether it holds more than its heading."""


class Outline:
    """Knows the headings that a page stands under; takes the pages in order."""

    def __init__(self, shortest: int) -> None:
        self._shortest = shortest
        self._open: list[Heading] = []
        self._level = 0
        self._begun: int | None = None
        """Where in the whole text the sections began that are cut together with the last one."""

    def read(self, page: Page, offset: int) -> tuple[list[Section], list[int]]:
        """The sections of a page in order, without gaps, and the places where groups begin.

        A group is cut as one. `offset` is where the page begins in the whole text.
        """
        headings = sorted(page.headings, key=lambda heading: heading.start)
        ends = [*(heading.start for heading in headings), len(page.text)]
        sections: list[Section] = []
        groups = [0]
        if ends[0]:
            sections.append(Section(0, self._level, self._path(), body=True))
            self._begun = offset if self._begun is None else self._begun
        for heading, end in zip(headings, ends[1:], strict=True):
            self._open = [above for above in self._open if above.level < heading.level]
            self._open.append(heading)
            if heading.start == end and end < len(page.text):  # another one begins at once
                continue
            if not self._takes_in(heading.level, offset + heading.start):
                self._begun = offset + heading.start
                groups.append(heading.start)
            self._level = heading.level
            body = _holds_more(heading, page.text[heading.start : end])
            sections.append(Section(heading.start, heading.level, self._path(), body))
        return sections, groups

    def _path(self) -> tuple[str, ...]:
        return tuple(" ".join(heading.title.split()) for heading in self._open)

    def _takes_in(self, level: int, start: int) -> bool:
        """Whether the sections before are too short to stand alone, and none stands below this."""
        return (
            self._begun is not None
            and level >= self._level
            and start - self._begun < self._shortest
        )


def shared_path(sections: Sequence[Section], start: int, end: int) -> tuple[str, ...]:
    """The headings that all of a stretch stands under; bare headings do not count."""
    starts = [section.start for section in sections]
    inside = sections[max(bisect_right(starts, start) - 1, 0) : bisect_right(starts, end - 1)]
    paths = [section.path for section in inside if section.body] or [inside[-1].path]
    shared = paths[0]
    for path in paths[1:]:
        shared = shared[: sum(1 for _ in _while_equal(shared, path))]
    return shared


def _holds_more(heading: Heading, text: str) -> bool:
    words = len("".join(text.split()).strip("#*="))
    return words > len("".join(heading.title.split()))


def _while_equal(left: Sequence[str], right: Sequence[str]) -> Iterator[str]:
    """The common beginning of two paths."""
    for one, other in zip(left, right, strict=False):
        if one != other:
            return
        yield one
