"""How long what waits may still take: by what the files took that were read last, of any owner.

Owners take turns (`documents.claims`): until one's files are done, every other owner gets as much
of the workers as he, or as little as he needs.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean, linear_regression

from django.db.models import Count, F, Sum
from django.utils import timezone

from documents.models import Document

LEARNT_FROM = 200
"""Files that were read last."""
SPREAD = 2.0
"""The largest file to the smallest: files more alike than that do not tell what a byte costs."""
QUIET = timedelta(seconds=30)
"""Where nothing is at work and nothing ended since then, nobody knows when it goes on."""
ANY = ""
"""Stands for all types together: the pace of types that were not read lately."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What a file takes: `each` seconds, and `per_byte` seconds a byte."""

    each: float
    per_byte: float

    @classmethod
    def of(cls, sizes: Sequence[int], seconds: Sequence[float]) -> "Pace":
        """By the files that took so long; neither part is below 0."""
        if max(sizes) < SPREAD * min(sizes):
            return cls(0.0, sum(seconds) / max(sum(sizes), 1))
        per_byte, each = linear_regression(sizes, seconds)
        if per_byte < 0:
            return cls(fmean(seconds), 0.0)
        if each < 0:
            return cls(0.0, sum(seconds) / sum(sizes))
        return cls(each, per_byte)

    def seconds(self, files: float, size: float) -> float:
        """What that many files take that have `size` bytes together."""
        return self.each * files + self.per_byte * size


@dataclass(frozen=True, slots=True)
class _Left:
    """What is not done of one owner's files of one type; `working` of them are at work."""

    owner_id: int
    content_type: str
    files: float
    size: float
    working: int


def seconds_left(owner_id: int) -> float | None:
    """Until all files of the owner are read; None where there is nothing to judge it by."""
    all_left = _left()
    if not any(one.owner_id == owner_id for one in all_left):
        return 0.0
    paces, last = _learnt()
    working = sum(one.working for one in all_left)
    if last is None or not (working or timezone.now() - last < QUIET):
        return None
    needs: defaultdict[int, float] = defaultdict(float)
    for one in all_left:
        pace = paces.get(one.content_type, paces[ANY])
        needs[one.owner_id] += pace.seconds(one.files, one.size)
    shared = sum(min(need, needs[owner_id]) for need in needs.values())
    return round(shared / max(working, 1), 1)


def _left() -> list[_Left]:
    rest = 1 - F("progress")
    rows = Document.objects.processing().exclude(stage=Document.Stage.PAUSED).order_by()
    sums = rows.values_list("owner_id", "content_type").annotate(
        files=Sum(rest), bytes=Sum(F("size") * rest), working=Count("claim")
    )
    return [_Left(*row) for row in sums]


def _learnt() -> tuple[dict[str, Pace], datetime | None]:
    """The pace of each type and of all together, and when the last file was done."""
    rows = Document.objects.filter(
        status=Document.Status.COMPLETED, indexed_at__gt=F("started_at"), size__gt=0
    )
    done = rows.order_by("-indexed_at").values_list(
        "content_type", "size", F("indexed_at") - F("started_at"), "indexed_at"
    )[:LEARNT_FROM]
    took: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for kind, size, passed, _ended in done:
        for name in (kind, ANY):
            took[name].append((size, passed.total_seconds()))
    paces = {name: Pace.of(*zip(*files, strict=True)) for name, files in took.items()}
    return paces, done[0][3] if done else None
