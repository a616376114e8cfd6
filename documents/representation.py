"""Documents as plain JSON values, the same in API, notices, pages and commands.

A warning is stored as a code, or as a code with a count. Old rows, and warnings that are not
counted, have only the code.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, quantiles
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, QuerySet
from django.db.models.functions import Length
from django.utils.timezone import localtime

from documents.errors import explain_code, explain_warning
from documents.models import (
    AnyVersion,
    Chunk,
    ChunkEmbedding,
    Document,
    DocumentVersion,
    EmbeddingSpace,
)
from documents.queue import estimate_document_seconds

StoredWarning = str | Mapping[str, Any]
"""A code, or `{code, count}`."""


def get_warning_code(warning: StoredWarning) -> str:
    """The code of a stored warning."""
    return warning if isinstance(warning, str) else str(warning["code"])


def to_warning_json(warning: StoredWarning) -> dict[str, Any]:
    """The warning as in the API; `count` is None if it was not counted."""
    count = None if isinstance(warning, str) else warning.get("count")
    return {
        "code": get_warning_code(warning),
        "detail": to_warning_sentence(warning),
        "count": count,
    }


def to_warning_sentence(warning: StoredWarning) -> str:
    """The sentence for people, with the count if there is one."""
    params = {} if isinstance(warning, str) else {**warning, "kind": "counted"}
    return explain_warning(get_warning_code(warning), params)


CURRENT_VERSION = "current"
"""The state of a document's current file."""


def get_shown_name(user: User) -> str:
    """The name that others see of an account: the chosen one, else the user name."""
    return user.first_name or user.get_username()


def to_document_json(document: Document) -> dict[str, Any]:
    """The document as in the API; the error in the active language."""
    return {
        "id": str(document.pk),
        "name": document.name,
        "owner": document.owner.get_username(),
        "owner_name": get_shown_name(document.owner),
        "library_id": str(document.library_id) if document.library_id else None,
        "content_type": document.content_type,
        "size": document.size,
        "sha256": document.sha256,
        "status": document.status,
        "stage": document.stage,
        "progress": round(document.progress, 3),
        "pages_done": document.pages_done,
        "seconds_left": estimate_document_seconds(document),
        "indexed": document.indexed,
        "error": to_error_json(document),
        "warnings": [to_warning_json(warning) for warning in document.warnings],
        "page_count": document.page_count,
        "chunk_count": document.chunk_count,
        "metadata": document.metadata,
        "source_id": str(document.source_id) if document.source_id else None,
        "origin": document.origin,
        "version": document.version,
        "created_at": localtime(document.created_at).isoformat(),
        "updated_at": localtime(document.updated_at).isoformat(),
    }


def to_version_json(version: AnyVersion) -> dict[str, Any]:
    """A version as in the API; the document itself is the current one."""
    if isinstance(version, Document):
        number, state, error, received_at = (
            version.version,
            CURRENT_VERSION,
            None,
            version.received_at,
        )
    else:
        number, state, error, received_at = (
            version.number,
            version.state,
            to_error_json(version),
            version.created_at,
        )
    return {
        "number": number,
        "state": state,
        "name": version.name,
        "size": version.size,
        "sha256": version.sha256,
        "page_count": version.page_count,
        "error": error,
        "created_at": localtime(received_at).isoformat(),
    }


def to_error_json(version: AnyVersion) -> dict[str, str] | None:
    """Code and sentence of the error; None if there is none."""
    if not version.error_code:
        return None
    detail = explain_code(version.error_code, version.error_params)
    return {"code": version.error_code, "detail": detail}


def list_headings(version: AnyVersion) -> list[dict[str, Any]]:
    """The headings of a document in order; old versions have none."""
    if isinstance(version, DocumentVersion):
        return []
    pages = version.pages.filter(headings__isnull=False).order_by("number")
    has_pages = version.page_count is not None
    return [
        {
            "title": heading["title"],
            "level": heading["level"],
            "page": number if has_pages else None,
            "start": start + heading["start"],
        }
        for number, start, headings in pages.values_list("number", "start", "headings")
        for heading in headings or ()
    ]


MAX_BINS = 10
"""Bars of a histogram, at most."""
MAX_PAGES_LISTED = 200
"""Pages without text that are listed; `pages_without_text_count` counts all of them."""


@dataclass(frozen=True, slots=True)
class LengthBin:
    """How many texts have a length in `start` <= characters < `end`."""

    start: int
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class LengthStatistics:
    """Statistics of lengths in characters."""

    min: int
    median: float
    mean: float
    p90: float
    max: int
    histogram: tuple[LengthBin, ...]

    @classmethod
    def from_lengths(cls, lengths: Sequence[int]) -> "LengthStatistics | None":
        """None where there is nothing to measure."""
        if not lengths:
            return None
        p90 = quantiles(lengths, n=10, method="inclusive")[-1] if len(lengths) > 1 else lengths[0]
        return cls(
            min(lengths), median(lengths), fmean(lengths), p90, max(lengths), _to_histogram(lengths)
        )


def _to_histogram(lengths: Sequence[int]) -> tuple[LengthBin, ...]:
    """Bars from 0 on, all of the same round width."""
    width = _round_up((max(lengths) + 1) / MAX_BINS)
    counts = Counter(length // width for length in lengths)
    return tuple(LengthBin(i * width, (i + 1) * width, counts[i]) for i in range(max(counts) + 1))


def _round_up(width: float) -> int:
    """The next of 1, 2, 5, 10, 20, 50 ... that is not below `width`."""
    power = 10 ** math.floor(math.log10(max(width, 1.0)))
    return int(next(step * power for step in (1, 2, 5, 10) if step * power >= width))


def measure_chunk_lengths(chunks: QuerySet[Chunk]) -> LengthStatistics | None:
    """Statistics of the texts of these chunks."""
    texts = chunks.order_by().annotate(length=Length("text"))
    return LengthStatistics.from_lengths(list(texts.values_list("length", flat=True)))


def inspect_document(document: Document) -> dict[str, Any]:
    """Figures of what was read and indexed of a document, as plain JSON values."""
    blank_pages = document.pages.filter(text="").order_by("number").values_list("number", flat=True)
    characters = document.pages.annotate(length=Length("text")).values_list("length", flat=True)
    return {
        "document_id": str(document.pk),
        "pages": document.page_count,
        "pages_without_text": list(blank_pages[:MAX_PAGES_LISTED]),
        "pages_without_text_count": blank_pages.count(),
        "characters": sum(characters),
        "chunks": _count_chunks(document),
        "pictures": _count_pictures(document),
        "seconds": document.seconds,
        "warnings": [to_warning_json(warning) for warning in document.warnings],
    }


def _count_chunks(document: Document) -> dict[str, Any]:
    chunks = Chunk.objects.filter(document=document)
    kinds = chunks.order_by().values_list("kind").annotate(Count("pk"))
    space = EmbeddingSpace.objects.filter(active=True).first()
    vectors = ChunkEmbedding.objects.filter(document=document, space=space)
    return {
        "count": chunks.count(),
        "kinds": dict(kinds),
        "embedded": vectors.count(),
        "length": to_lengths_json(measure_chunk_lengths(chunks)),
    }


def to_lengths_json(lengths: LengthStatistics | None) -> dict[str, Any] | None:
    """The statistics as plain JSON values."""
    if lengths is None:
        return None
    return {
        "min": lengths.min,
        "median": round(lengths.median, 1),
        "mean": round(lengths.mean, 1),
        "p90": round(lengths.p90, 1),
        "max": lengths.max,
        "histogram": [
            {"from": bar.start, "to": bar.end, "count": bar.count} for bar in lengths.histogram
        ],
    }


def _count_pictures(document: Document) -> dict[str, Any]:
    pictures = document.pictures.order_by()
    reasons = pictures.exclude(rejected="").values_list("rejected").annotate(Count("pk"))
    kept = pictures.filter(rejected="")
    return {
        "kept": kept.count(),
        "described": kept.exclude(description=None).count(),
        "dropped": dict(reasons),
    }
