"""The pages of documents: the list with its filters, and the page of one document."""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import islice
from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.paginator import Page, Paginator
from django.db.models import Case, Min, Q, QuerySet, Value, When
from django.db.models.fields.json import KeyTextTransform
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from documents import representation
from documents.errors import explain_code
from documents.models import (
    ADDING_ROLES,
    PRIVATE,
    Chunk,
    Document,
    DocumentQuerySet,
    DocumentVersion,
    Library,
    LibraryRole,
)
from documents.parsers import formats
from documents.representation import inspect_document
from documents.search.excerpts import cut_excerpt, find_passages, list_marked_words
from jobs.replica import ReplicaPaginator
from rag.types import Kind, Passage

MAX_QUERY_CHARACTERS = 100
MAX_PASSAGES = 60
"""Passages from which a full-text search takes its documents."""
PERIODS = {"1": _("Last 24 hours"), "7": _("Last 7 days"), "30": _("Last 30 days")}
"""Choices of how many days back uploads are listed."""
MAX_FILTER_VALUES = 200
"""Issuers or projects offered as a filter; the rest can be searched by name."""
FILTER_FIELDS = {"issuer": _("All issuers"), "project_name": _("All projects")}
"""Metadata fields that filter the list, with the choice for no filter."""
ORDERS = {
    "": (_("Newest first"), ("-created_at", "id")),
    "oldest": (_("Oldest first"), ("created_at", "id")),
    "name": (_("By name"), ("name", "id")),
    "largest": (_("Largest first"), ("-size", "id")),
}


def get_query(parameters: Mapping[str, str]) -> str:
    """The search text for names and texts."""
    return parameters.get("q", "").replace("\x00", "").strip()[:MAX_QUERY_CHARACTERS]


def get_library(parameters: Mapping[str, str]) -> str:
    """The id of the chosen library, `private`, or "" for all; invalid ones count as ""."""
    library = parameters.get("library", "")
    try:
        return library if library in {"", PRIVATE} else str(UUID(library))
    except ValueError:
        return ""


def describe_libraries(user: "User", library_id: str) -> dict[str, Any]:
    """The libraries that the page offers, and what the user may do in the chosen one."""
    rows = list(Library.objects.visible_to(user).annotate_for(user))
    library = next((row for row in rows if str(row.pk) == library_id), None)
    return {
        "libraries": rows,
        "library": library,
        "is_private": library_id == PRIVATE,
        "may_add": library is None or library.role in ADDING_ROLES,
        "may_manage": library is not None and library.role == LibraryRole.MANAGER,
    }


def list_library_data(rows: Iterable[Library]) -> list[dict[str, Any]]:
    """The libraries in the form that the page's scripts expect."""
    return [{"id": str(row.pk), "name": row.name, "role": row.role} for row in rows]


def filter_documents(
    documents: DocumentQuerySet, parameters: Mapping[str, str], passages: Mapping[UUID, Passage]
) -> QuerySet[Document]:
    """The documents that match the parameters of the address; invalid ones are ignored.

    `passages` are the best passages for the search text, by document.
    """
    status, kind, days = (parameters.get(name, "") for name in ("status", "type", "since"))
    rows = documents.narrowed(
        status if status in Document.Status.values else "", library=get_library(parameters)
    )
    if kind:
        rows = rows.filter(content_type=kind)
    if days in PERIODS:
        rows = rows.filter(created_at__gte=timezone.now() - timedelta(days=int(days)))
    for field, value in _list_chosen(parameters).items():
        rows = rows.filter(metadata__contains={field: value})
    _label, order = ORDERS.get(parameters.get("sort", ""), ORDERS[""])
    if query := get_query(parameters):
        has_name = Q(name__icontains=unicodedata.normalize("NFC", query))
        rows = rows.filter(has_name | Q(pk__in=passages))
        if not parameters.get("sort"):
            ranks = [When(pk=pk, then=Value(rank)) for rank, pk in enumerate(passages)]
            rank_case = Case(When(has_name, then=Value(-1)), *ranks, default=Value(len(ranks)))
            return rows.annotate(rank=rank_case).order_by("rank", *order)
    return rows.order_by(*order)


def find_best_passages(
    documents: DocumentQuerySet, parameters: Mapping[str, str]
) -> dict[UUID, Passage]:
    """The best passage of each document for the search text, the best document first."""
    if not (query := get_query(parameters)):
        return {}
    ids = documents.searchable().values_list("pk", flat=True)
    passages: dict[UUID, Passage] = {}
    for passage in find_passages(ids, query, MAX_PASSAGES):
        passages.setdefault(passage.document_id, passage)
    return passages


def make_filter_context(
    documents: DocumentQuerySet, parameters: Mapping[str, str]
) -> dict[str, Any]:
    """The choices of the form above the list, and what is chosen.

    Only choices that distinguish the documents at hand are offered.
    """
    chosen = _list_chosen(parameters)
    filters = (
        (name, label, _list_values(documents, name)) for name, label in FILTER_FIELDS.items()
    )
    kinds = documents.order_by("content_type").values_list("content_type", flat=True).distinct()
    oldest = documents.aggregate(at=Min("created_at"))["at"]
    age = timezone.now() - oldest if oldest else timedelta()
    return {
        "query": get_query(parameters),
        "status": parameters.get("status", ""),
        "kind": parameters.get("type", ""),
        "kinds": [(kind, FORMAT_NAMES.get(kind, kind)) for kind in kinds],
        "since": parameters.get("since", ""),
        "periods": [
            (days, label) for days, label in PERIODS.items() if age > timedelta(days=int(days))
        ],
        "statuses": Document.Status.choices,
        "order": parameters.get("sort", ""),
        "orders": [(value, label) for value, (label, _order) in ORDERS.items()],
        "filters": [
            {"field": name, "label": label, "values": values, "chosen": chosen.get(name, "")}
            for name, label, values in filters
            if values
        ],
    }


def is_narrowed(parameters: Mapping[str, str]) -> bool:
    """Whether the list is filtered, so that an empty one means that nothing matches."""
    values = (parameters.get(name) for name in ("status", "type", "since"))
    return bool(get_query(parameters) or any(values) or _list_chosen(parameters))


def _list_chosen(parameters: Mapping[str, str]) -> dict[str, str]:
    values = {name: parameters.get(name, "").replace("\x00", "") for name in FILTER_FIELDS}
    return {name: value for name, value in values.items() if value}


def _list_values(documents: DocumentQuerySet, field: str) -> list[str]:
    """The distinct texts of a metadata field."""
    rows = documents.filter(metadata__has_key=field)
    texts = rows.annotate(held=KeyTextTransform(field, "metadata")).order_by("held")
    values = texts.exclude(held="").values_list("held", flat=True).distinct()[:MAX_FILTER_VALUES]
    return [value for value in values if value[0] not in "[{"]


FORMAT_NAMES = {
    formats.PDF: "PDF",
    formats.DOCX: "DOCX",
    formats.HWP: "HWP",
    formats.HWPX: "HWPX",
    formats.HTML: "HTML",
    formats.MARKDOWN: "Markdown",
    formats.TEXT: _("Text file"),
}
KIND_SIGNS = formats.LABELS | {formats.MARKDOWN: "MD", formats.TEXT: "TXT"}
"""Text of the small badge before a name."""
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
"""Metadata with a label of its own, in the order of the page."""
MAX_FACTS = 50
MAX_FACT_CHARACTERS = 300
"""Longer values of metadata are truncated on the page."""
MAX_PICTURES = 24
KIND_NAMES = {
    Kind.TEXT: _("Text"),
    Kind.TABLE: _("Table"),
    Kind.LIST: _("List"),
    Kind.CODE: _("Code"),
    Kind.PICTURE: _("Picture"),
    Kind.RECOGNISED: _("Text recognition"),
}
REJECTION_NAMES = {
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


def to_failure_reason(document: Document) -> str:
    """Why a document failed, as a sentence; empty unless it did."""
    if not document.error_code:
        return ""
    return explain_code(document.error_code, document.error_params)


def list_warnings(document: Document) -> list[str]:
    """The warnings of a completed document, as sentences."""
    if document.status != Document.Status.COMPLETED:
        return []
    return [representation.to_warning_sentence(warning) for warning in document.warnings]


def list_metadata_rows(document: Document) -> list[dict[str, Any]]:
    """Rows of metadata: name, value, and whether a person entered it."""
    known = {name: document.metadata[name] for name in FACT_NAMES if name in document.metadata}
    rows = (
        {
            "name": FACT_NAMES.get(path, path),
            "value": value[:MAX_FACT_CHARACTERS],
            "stated": path.partition(" · ")[0] in document.stated,
        }
        for path, value in list_facts(known | document.metadata)
    )
    return list(islice(rows, MAX_FACTS))


def list_facts(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Metadata as names and texts: lists joined with commas, nested values with their path."""
    for name, value in metadata.items():
        if isinstance(value, Mapping):
            yield from ((f"{name} · {inner}", text) for inner, text in list_facts(value))
        elif text := _to_fact_text(value):
            yield name, text


def _to_fact_text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(filter(None, map(_to_fact_text, value)))
    if isinstance(value, bool):
        return str(_("Yes") if value else _("No"))
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {text}" for name, text in list_facts(value))
    return str(value).strip() if isinstance(value, str | int | float) else ""


def list_versions(document: Document) -> list[dict[str, Any]]:
    """The versions of a document, newest first; refused ones have no file any more."""
    current = {"state": "current", "file": document, "at": document.received_at, "reason": ""}
    return sorted(
        [current | {"number": document.version}, *map(_to_version_row, document.versions.all())],
        key=lambda row: -row["number"],
    )


def _to_version_row(version: DocumentVersion) -> dict[str, Any]:
    reason = explain_code(version.error_code, version.error_params) if version.error_code else ""
    return {
        "number": version.number,
        "state": version.state,
        "file": version,
        "at": version.created_at,
        "reason": reason,
    }


def describe_index(document: Document) -> dict[str, Any]:
    """Figures of what was read and indexed, in the form that the page shows."""
    figures = inspect_document(document)
    length = figures["chunks"]["length"]
    return {
        "figures": figures,
        "kinds": sort_named_counts(figures["chunks"]["kinds"], KIND_NAMES),
        "dropped": sort_named_counts(figures["pictures"]["dropped"], REJECTION_NAMES),
        "seconds": [
            (name, document.seconds[stage])
            for stage, name in STAGE_NAMES.items()
            if stage in document.seconds
        ],
        "characters": f"{figures['characters']:,}",
        "bars": draw_bars(length["histogram"]) if length else [],
        "lengths_end": f"{length['histogram'][-1]['to']:,}" if length else "",
        "bars_width": BAR_WIDTH * len(length["histogram"]) if length else 0,
        "blank": to_ranges_text(figures["pages_without_text"]),
        "blank_more": figures["pages_without_text_count"] - len(figures["pages_without_text"]),
        "pictures": document.pictures.filter(rejected="").order_by("index")[:MAX_PICTURES],
    }


def sort_named_counts(counts: Mapping[str, int], names: Mapping[Any, Any]) -> list[tuple[str, int]]:
    """Counts under their names, the largest first."""
    rows = [(str(names.get(key, key)), count) for key, count in counts.items()]
    return sorted(rows, key=lambda row: -row[1])


BAR_WIDTH, BAR_HEIGHT = 32, 72
"""Size of a bar in the drawing's units, including the gap beside it."""


def draw_bars(histogram: Sequence[Mapping[str, int]]) -> list[dict[str, int]]:
    """A bar for each bin: the highest is `BAR_HEIGHT`, and none that counts is invisible."""
    max_count = max(row["count"] for row in histogram)
    bars = []
    for position, row in enumerate(histogram):
        height = max(round(BAR_HEIGHT * row["count"] / max_count), 2) if row["count"] else 0
        at = {"x": position * BAR_WIDTH, "y": BAR_HEIGHT - height, "height": height}
        bars.append({"start": row["from"], "last": row["to"] - 1, "count": row["count"], **at})
    return bars


def to_ranges_text(numbers: Sequence[int]) -> str:
    """Rising numbers as ranges: "3, 7–9"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


PAGE_SIZE = 20
CHUNKS_SHOWN = 10


@require_GET
@never_cache
@login_required
def document_list(request: HttpRequest) -> HttpResponse:
    """The table of documents; only the table and the counts of libraries when htmx asks."""
    user = cast("User", request.user)
    readable = Document.objects.visible_to(user)
    parameters = request.GET.dict()
    libraries = describe_libraries(user, get_library(parameters))
    passages, query = find_best_passages(readable, parameters), get_query(parameters)
    rows = filter_documents(readable, parameters, passages)
    pages = ReplicaPaginator(rows.select_related("library", "owner"), PAGE_SIZE)
    documents = pages.get_page(parameters.get("page"))
    ids = [document.pk for document in documents]
    editable_ids = set(
        Document.objects.owned_by(user).filter(pk__in=ids).values_list("pk", flat=True)
    )
    context = libraries | {
        "area": "documents",
        "documents": documents,
        "rows": [
            _to_row(document)
            | _describe_match(passages.get(document.pk), query)
            | {"may_change": document.pk in editable_ids}
            for document in documents
        ],
        "is_waiting": any(item.status == Document.Status.PROCESSING for item in documents),
        "query": query,
        "narrowed": is_narrowed(parameters),
        "page": {
            "upload_limit_mb": settings.MAX_UPLOAD_MB,
            "library": libraries["library"] and _to_library_data(libraries["library"]),
            "libraries": list_library_data(libraries["libraries"]),
        },
    }
    if request.headers.get("HX-Request") == "true":
        return render(request, "panels/document_table.html", context | {"is_part": True})
    return render(request, "documents.html", context | make_filter_context(readable, parameters))


@require_GET
@never_cache
@login_required
def document_detail(request: HttpRequest, document_id: UUID) -> HttpResponse:
    """The page of one document with its chunks; only the chunks when htmx asks."""
    user = cast("User", request.user)
    rows = Document.objects.visible_to(user).select_related("library", "owner")
    document = get_object_or_404(rows, pk=document_id)
    # in an address `?page=` is a page of the document; for htmx it is a page of the chunk list
    is_part = request.headers.get("HX-Request") == "true"
    chunks = _paginate_chunks(document, request.GET.get("page") if is_part else "1")
    context: dict[str, Any] = {"area": "documents", "document": document, "chunks": chunks}
    if is_part:
        return render(request, "panels/document_chunks.html", context)
    context |= _to_row(document) | describe_index(document)
    context |= {
        "metadata": list_metadata_rows(document),
        "versions": list_versions(document),
        "kind": FORMAT_NAMES.get(document.content_type, document.content_type),
        "page": _to_page_data(document)
        | {
            "libraries": list_library_data(Library.objects.visible_to(user).annotate_for(user)),
            "searched_words": list_marked_words(get_query(request.GET.dict())),
        },
        "may_change": Document.objects.owned_by(user).filter(pk=document.pk).exists(),
    }
    return render(request, "document.html", context)


def _to_library_data(library: Library) -> dict[str, Any]:
    fields = {"name": library.name, "description": library.description, "role": library.role}
    return {"id": str(library.pk), **fields}


def _to_row(document: Document) -> dict[str, Any]:
    return {
        "document": document,
        "reason": to_failure_reason(document),
        "warnings": list_warnings(document),
        "sign": KIND_SIGNS.get(document.content_type, "–"),
        "indexed": document.indexed,
    }


def _describe_match(passage: Passage | None, query: str) -> dict[str, Any]:
    """The passage that matches the search text, with an excerpt."""
    if passage is None:
        return {}
    excerpt = cut_excerpt(passage.text, list_marked_words(query))
    return {"passage": passage, "excerpt": excerpt.split()}


def _to_page_data(document: Document) -> dict[str, Any]:
    """The data for the page's scripts."""
    return {
        "upload_limit_mb": settings.MAX_UPLOAD_MB,
        "document": {
            "id": str(document.pk),
            "name": document.name,
            "page_count": document.page_count,
        },
        "metadata": document.metadata,
        "metadata_names": {key: str(name) for key, name in FACT_NAMES.items()},
    }


def _paginate_chunks(document: Document, page: str | None) -> "Page[Chunk]":
    chunks = Chunk.objects.filter(document=document).order_by("index").defer("lexemes")
    return Paginator(chunks, CHUNKS_SHOWN).get_page(page)
