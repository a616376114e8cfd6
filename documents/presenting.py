"""What the pages say of a document: sentences, metadata as lines, versions, figures as bars."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from django.utils.translation import gettext_lazy as _

from documents import warned
from documents.inspection import inspection
from documents.models import Document, DocumentVersion
from documents.parsers import kinds
from documents.wording import sentence
from rag.pages import Kind

KINDS = {
    kinds.PDF: "PDF",
    kinds.DOCX: "DOCX",
    kinds.HWP: "HWP",
    kinds.HWPX: "HWPX",
    kinds.HTML: "HTML",
    kinds.MARKDOWN: "Markdown",
}
FACT_NAMES = {
    "title": _("Title"),
    "project_name": _("Project"),
    "issuer": _("Issuer"),
    "number": _("Notice number"),
    "author": _("Author"),
    "department": _("Department"),
    "date": _("Date"),
    "version": _("Version"),
}
"""Metadata that is known by name, in the order of the page."""
FACTS_SHOWN = 50
FACT_CHARACTERS = 300
"""Longer values of metadata are cut in the page."""
PICTURES_SHOWN = 24
KIND_NAMES = {
    Kind.TEXT: _("Text"),
    Kind.TABLE: _("Table"),
    Kind.LIST: _("List"),
    Kind.CODE: _("Code"),
    Kind.PICTURE: _("Picture"),
    Kind.RECOGNISED: _("Text recognition"),
}
REASONS = {
    "too_small": _("Too small"),
    "too_large": _("Too large"),
    "thin": _("Line or bar"),
    "flat": _("One colour"),
    "blank": _("Almost blank"),
    "smooth": _("No detail"),
    "duplicate": _("Duplicate"),
    "too_many": _("Over the limit"),
    "background": _("Behind the text"),
    "hidden": _("Not visible"),
    "broken": _("Damaged"),
}
"""Why pictures were not kept: the reasons of `documents.parsers.pictures`."""
STAGE_NAMES = {
    "parsing": _("Reading time"),
    "describing": _("Picture description time"),
    "chunking": _("Splitting time"),
    "embedding": _("Embedding time"),
    "indexing": _("Indexing time"),
}


def reason(document: Document) -> str:
    """Why a document failed, as a sentence; empty unless it did."""
    if not document.error_code:
        return ""
    return sentence(document.error_code, document.error_params)


def warnings(document: Document) -> list[str]:
    """What a completed document lacks, as sentences."""
    if document.status != Document.Status.COMPLETED:
        return []
    return [warned.spoken(warning) for warning in document.warnings]


def metadata_rows(document: Document) -> list[dict[str, Any]]:
    """Lines of metadata: key, name, value, and whether a person said it."""
    known = {name: document.metadata[name] for name in FACT_NAMES if name in document.metadata}
    rows = (
        {
            "name": FACT_NAMES.get(path, path),
            "value": value[:FACT_CHARACTERS],
            "stated": path.partition(" · ")[0] in document.stated,
        }
        for path, value in facts(known | document.metadata)
    )
    return list(islice(rows, FACTS_SHOWN))


def facts(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Metadata as lines of text: lists with commas, what is nested with its path."""
    for name, value in metadata.items():
        if isinstance(value, Mapping):
            yield from ((f"{name} · {inner}", text) for inner, text in facts(value))
        elif text := _spoken(value):
            yield name, text


def _spoken(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(filter(None, map(_spoken, value)))
    if isinstance(value, bool):
        return str(_("Yes") if value else _("No"))
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {text}" for name, text in facts(value))
    return str(value).strip() if isinstance(value, str | int | float) else ""


def versions(document: Document) -> list[dict[str, Any]]:
    """The files of a document, newest first; one that was refused has no file any more."""
    current = {"state": "current", "file": document, "at": document.received_at, "reason": ""}
    return sorted(
        [current | {"number": document.version}, *map(_version, document.versions.all())],
        key=lambda row: -row["number"],
    )


def _version(version: DocumentVersion) -> dict[str, Any]:
    why = sentence(version.error_code, version.error_params) if version.error_code else ""
    return {
        "number": version.number,
        "state": version.state,
        "file": version,
        "at": version.created_at,
        "reason": why,
    }


def made(document: Document) -> dict[str, Any]:
    """What was read and indexed, as the page draws it: figures, bars, ranges of pages."""
    figures = inspection(document)
    length = figures["chunks"]["length"]
    return {
        "figures": figures,
        "kinds": named(figures["chunks"]["kinds"], KIND_NAMES),
        "dropped": named(figures["pictures"]["dropped"], REASONS),
        "seconds": [
            (name, document.seconds[stage])
            for stage, name in STAGE_NAMES.items()
            if stage in document.seconds
        ],
        "characters": f"{figures['characters']:,}",
        "bars": bars(length["histogram"]) if length else [],
        "lengths_end": f"{length['histogram'][-1]['to']:,}" if length else "",
        "bars_width": BAR * len(length["histogram"]) if length else 0,
        "blank": ranges(figures["pages_without_text"]),
        "blank_more": figures["pages_without_text_count"] - len(figures["pages_without_text"]),
        "pictures": document.pictures.filter(rejected="").order_by("index")[:PICTURES_SHOWN],
    }


def named(counts: Mapping[str, int], names: Mapping[Any, Any]) -> list[tuple[str, int]]:
    """Counts under their names, the largest first."""
    rows = [(str(names.get(key, key)), count) for key, count in counts.items()]
    return sorted(rows, key=lambda row: -row[1])


BAR, HEIGHT = 32, 72
"""Room of a bar in the drawing, with the gap beside it, in its own units."""


def bars(histogram: Sequence[Mapping[str, int]]) -> list[dict[str, int]]:
    """A bar for each `from`, `to`, `count`: the highest is `HEIGHT`, the lowest can be seen."""
    most = max(one["count"] for one in histogram)
    drawn = []
    for place, one in enumerate(histogram):
        height = max(round(HEIGHT * one["count"] / most), 2) if one["count"] else 0
        at = {"x": place * BAR, "y": HEIGHT - height, "height": height}
        drawn.append({"start": one["from"], "last": one["to"] - 1, "count": one["count"], **at})
    return drawn


def ranges(numbers: Sequence[int]) -> str:
    """Rising numbers in short: "3, 7-9", with a dash as in print."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
