"""What was made of documents, in figures: for the page, the API and the commands alike."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, quantiles
from typing import Any

from django.db.models import Count, QuerySet
from django.db.models.functions import Length

from documents import warned
from documents.models import Chunk, ChunkEmbedding, Document, EmbeddingSpace

BINS = 10
"""Bars of a histogram, at most."""
PAGES_NAMED = 200
"""Pages without text that are listed; `pages_without_text_count` counts all of them."""


@dataclass(frozen=True, slots=True)
class Bin:
    """How many texts have a length in `start` <= characters < `end`."""

    start: int
    end: int
    count: int


@dataclass(frozen=True, slots=True)
class Lengths:
    """Statistics of lengths in characters."""

    least: int
    median: float
    mean: float
    p90: float
    most: int
    histogram: tuple[Bin, ...]

    @classmethod
    def of(cls, lengths: Sequence[int]) -> "Lengths | None":
        """None where there is nothing to measure."""
        if not lengths:
            return None
        p90 = quantiles(lengths, n=10, method="inclusive")[-1] if len(lengths) > 1 else lengths[0]
        return cls(
            min(lengths), median(lengths), fmean(lengths), p90, max(lengths), _histogram(lengths)
        )


def _histogram(lengths: Sequence[int]) -> tuple[Bin, ...]:
    """Bars from 0 on, all of the same round width."""
    width = _round_up((max(lengths) + 1) / BINS)
    counts = Counter(length // width for length in lengths)
    return tuple(Bin(i * width, (i + 1) * width, counts[i]) for i in range(max(counts) + 1))


def _round_up(width: float) -> int:
    """The next of 1, 2, 5, 10, 20, 50 ... that is not below `width`."""
    power = 10 ** math.floor(math.log10(max(width, 1.0)))
    return int(next(step * power for step in (1, 2, 5, 10) if step * power >= width))


def chunk_lengths(chunks: QuerySet[Chunk]) -> Lengths | None:
    """Statistics of the texts of these chunks."""
    texts = chunks.order_by().annotate(length=Length("text"))
    return Lengths.of(list(texts.values_list("length", flat=True)))


def inspection(document: Document) -> dict[str, Any]:
    """What was read and indexed of a document, as plain JSON values."""
    blank = document.pages.filter(text="").order_by("number").values_list("number", flat=True)
    characters = document.pages.annotate(length=Length("text")).values_list("length", flat=True)
    return {
        "document_id": str(document.pk),
        "pages": document.page_count,
        "pages_without_text": list(blank[:PAGES_NAMED]),
        "pages_without_text_count": blank.count(),
        "characters": sum(characters),
        "chunks": _chunks(document),
        "pictures": _pictures(document),
        "seconds": document.seconds,
        "warnings": [warned.warning_json(warning) for warning in document.warnings],
    }


def _chunks(document: Document) -> dict[str, Any]:
    chunks = Chunk.objects.filter(document=document)
    kinds = chunks.order_by().values_list("kind").annotate(Count("pk"))
    space = EmbeddingSpace.objects.filter(active=True).first()
    vectors = ChunkEmbedding.objects.filter(document=document, space=space)
    return {
        "count": chunks.count(),
        "kinds": dict(kinds),
        "embedded": vectors.count(),
        "length": length_json(chunk_lengths(chunks)),
    }


def length_json(lengths: Lengths | None) -> dict[str, Any] | None:
    """The statistics as plain JSON values."""
    if lengths is None:
        return None
    return {
        "min": lengths.least,
        "median": round(lengths.median, 1),
        "mean": round(lengths.mean, 1),
        "p90": round(lengths.p90, 1),
        "max": lengths.most,
        "histogram": [
            {"from": one.start, "to": one.end, "count": one.count} for one in lengths.histogram
        ],
    }


def _pictures(document: Document) -> dict[str, Any]:
    pictures = document.pictures.order_by()
    reasons = pictures.exclude(rejected="").values_list("rejected").annotate(Count("pk"))
    kept = pictures.filter(rejected="")
    return {
        "kept": kept.count(),
        "described": kept.exclude(description=None).count(),
        "dropped": dict(reasons),
    }
