"""The pages of documents: the list as it was asked for, and what is known of one document."""

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
MAX_PASSAGES_SEEN = 60
"""Passages whose documents a search in texts lists."""
PERIODS = {"1": _("Last 24 hours"), "7": _("Last 7 days"), "30": _("Last 30 days")}
"""Days back to which uploads are listed."""
MAX_VALUES_OFFERED = 200
"""Issuers and projects to choose from; who has more of them searches by name."""
FILTER_FIELDS = {"issuer": _("All issuers"), "project_name": _("All projects")}
"""Metadata that narrows the list, and what is chosen when it does not."""
ORDERS = {
    "": (_("Newest first"), ("-created_at", "id")),
    "oldest": (_("Oldest first"), ("created_at", "id")),
    "name": (_("By name"), ("name", "id")),
    "largest": (_("Largest first"), ("-size", "id")),
}


def get_query(asked: Mapping[str, str]) -> str:
    """What is looked for in names and texts."""
    return asked.get("q", "").replace("\x00", "").strip()[:MAX_QUERY_CHARACTERS]


def get_library(asked: Mapping[str, str]) -> str:
    """The id of the library that is shown, `private`, or nothing for all; odd ones are nothing."""
    named = asked.get("library", "")
    try:
        return named if named in {"", PRIVATE} else str(UUID(named))
    except ValueError:
        return ""


def describe_libraries(user: "User", chosen: str) -> dict[str, Any]:
    """The libraries that the page offers, and what may be done in the one that is chosen."""
    rows = list(Library.objects.visible_to(user).annotate_for(user))
    shown = next((one for one in rows if str(one.pk) == chosen), None)
    return {
        "libraries": rows,
        "library": shown,
        "is_private": chosen == PRIVATE,
        "may_add": shown is None or shown.role in ADDING_ROLES,
        "may_manage": shown is not None and shown.role == LibraryRole.MANAGER,
    }


def list_library_data(rows: Iterable[Library]) -> list[dict[str, Any]]:
    """The libraries as the scripts of the page know them."""
    return [{"id": str(one.pk), "name": one.name, "role": one.role} for one in rows]


def filter_documents(
    documents: DocumentQuerySet, asked: Mapping[str, str], said: Mapping[UUID, Passage]
) -> QuerySet[Document]:
    """The documents that the parameters of the address ask for; odd ones narrow nothing.

    `said` are the best passages on what is looked for, by their documents.
    """
    status, kind, days = (asked.get(name, "") for name in ("status", "type", "since"))
    rows = documents.narrowed(
        status if status in Document.Status.values else "", library=get_library(asked)
    )
    if kind:
        rows = rows.filter(content_type=kind)
    if days in PERIODS:
        rows = rows.filter(created_at__gte=timezone.now() - timedelta(days=int(days)))
    for field, value in _list_chosen(asked).items():
        rows = rows.filter(metadata__contains={field: value})
    _label, order = ORDERS.get(asked.get("sort", ""), ORDERS[""])
    if query := get_query(asked):
        named = Q(name__icontains=unicodedata.normalize("NFC", query))
        rows = rows.filter(named | Q(pk__in=said))
        if not asked.get("sort"):
            ranks = [When(pk=pk, then=Value(rank)) for rank, pk in enumerate(said)]
            best = Case(When(named, then=Value(-1)), *ranks, default=Value(len(ranks)))
            return rows.annotate(rank=best).order_by("rank", *order)
    return rows.order_by(*order)


def find_best_passages(
    documents: DocumentQuerySet, asked: Mapping[str, str]
) -> dict[UUID, Passage]:
    """The best passage of each document on what is looked for, the best document first."""
    if not (query := get_query(asked)):
        return {}
    ids = documents.searchable().values_list("pk", flat=True)
    found: dict[UUID, Passage] = {}
    for passage in find_passages(ids, query, MAX_PASSAGES_SEEN):
        found.setdefault(passage.document_id, passage)
    return found


def list_controls(documents: DocumentQuerySet, asked: Mapping[str, str]) -> dict[str, Any]:
    """What the form above the list offers, and what is chosen in it.

    Only what tells the documents at hand apart is offered.
    """
    chosen = _list_chosen(asked)
    offered = (
        (name, label, _list_values(documents, name)) for name, label in FILTER_FIELDS.items()
    )
    kinds = documents.order_by("content_type").values_list("content_type", flat=True).distinct()
    oldest = documents.aggregate(at=Min("created_at"))["at"]
    age = timezone.now() - oldest if oldest else timedelta()
    return {
        "query": get_query(asked),
        "status": asked.get("status", ""),
        "kind": asked.get("type", ""),
        "kinds": [(kind, FORMAT_NAMES.get(kind, kind)) for kind in kinds],
        "since": asked.get("since", ""),
        "periods": [
            (days, label) for days, label in PERIODS.items() if age > timedelta(days=int(days))
        ],
        "statuses": Document.Status.choices,
        "order": asked.get("sort", ""),
        "orders": [(value, label) for value, (label, _order) in ORDERS.items()],
        "filters": [
            {"field": name, "label": label, "values": values, "chosen": chosen.get(name, "")}
            for name, label, values in offered
            if values
        ],
    }


def is_narrowed(asked: Mapping[str, str]) -> bool:
    """Whether an empty list means that nothing matches."""
    given = (asked.get(name) for name in ("status", "type", "since"))
    return bool(get_query(asked) or any(given) or _list_chosen(asked))


def _list_chosen(asked: Mapping[str, str]) -> dict[str, str]:
    values = {name: asked.get(name, "").replace("\x00", "") for name in FILTER_FIELDS}
    return {name: value for name, value in values.items() if value}


def _list_values(documents: DocumentQuerySet, field: str) -> list[str]:
    """The texts that the documents hold under the key, each once."""
    holding = documents.filter(metadata__has_key=field)
    texts = holding.annotate(held=KeyTextTransform(field, "metadata")).order_by("held")
    values = texts.exclude(held="").values_list("held", flat=True).distinct()[:MAX_VALUES_OFFERED]
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
"""What stands on the small sign before a name."""
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
MAX_FACTS = 50
MAX_FACT_CHARACTERS = 300
"""Longer values of metadata are cut in the page."""
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
    """What a completed document lacks, as sentences."""
    if document.status != Document.Status.COMPLETED:
        return []
    return [representation.to_warning_sentence(warning) for warning in document.warnings]


def list_metadata_rows(document: Document) -> list[dict[str, Any]]:
    """Lines of metadata: key, name, value, and whether a person said it."""
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
    """Metadata as lines of text: lists with commas, what is nested with its path."""
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
    """The files of a document, newest first; one that was refused has no file any more."""
    current = {"state": "current", "file": document, "at": document.received_at, "reason": ""}
    return sorted(
        [current | {"number": document.version}, *map(_to_version_row, document.versions.all())],
        key=lambda row: -row["number"],
    )


def _to_version_row(version: DocumentVersion) -> dict[str, Any]:
    why = explain_code(version.error_code, version.error_params) if version.error_code else ""
    return {
        "number": version.number,
        "state": version.state,
        "file": version,
        "at": version.created_at,
        "reason": why,
    }


def describe_index(document: Document) -> dict[str, Any]:
    """What was read and indexed, as the page draws it: figures, bars, ranges of pages."""
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
"""Room of a bar in the drawing, with the gap beside it, in its own units."""


def draw_bars(histogram: Sequence[Mapping[str, int]]) -> list[dict[str, int]]:
    """A bar for each `from`, `to`, `count`: the highest is `HEIGHT`, the lowest can be seen."""
    most = max(one["count"] for one in histogram)
    drawn = []
    for place, one in enumerate(histogram):
        height = max(round(BAR_HEIGHT * one["count"] / most), 2) if one["count"] else 0
        at = {"x": place * BAR_WIDTH, "y": BAR_HEIGHT - height, "height": height}
        drawn.append({"start": one["from"], "last": one["to"] - 1, "count": one["count"], **at})
    return drawn


def to_ranges_text(numbers: Sequence[int]) -> str:
    """Rising numbers in short: "3, 7-9", with a dash as in print."""
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
    """The table of documents; only the table when htmx asks."""
    user = cast("User", request.user)
    own = Document.objects.visible_to(user)
    asked = request.GET.dict()
    chosen = describe_libraries(user, get_library(asked))
    said, query = find_best_passages(own, asked), get_query(asked)
    rows = filter_documents(own, asked, said)
    pages = ReplicaPaginator(rows.select_related("library", "owner"), PAGE_SIZE)
    documents = pages.get_page(asked.get("page"))
    shown = [one.pk for one in documents]
    own_ids = set(Document.objects.owned_by(user).filter(pk__in=shown).values_list("pk", flat=True))
    context = chosen | {
        "area": "documents",
        "documents": documents,
        "rows": [
            _to_row(one)
            | _describe_match(said.get(one.pk), query)
            | {"may_change": one.pk in own_ids}
            for one in documents
        ],
        "query": query,
        "narrowed": is_narrowed(asked),
        "page": {
            "upload_limit_mb": settings.MAX_UPLOAD_MB,
            "library": chosen["library"] and _to_library_data(chosen["library"]),
            "libraries": list_library_data(chosen["libraries"]),
        },
    }
    if request.headers.get("HX-Request") == "true":
        return render(request, "panels/document_table.html", context)
    return render(request, "documents.html", context | list_controls(own, asked))


@require_GET
@never_cache
@login_required
def document_detail(request: HttpRequest, document_id: UUID) -> HttpResponse:
    """What is known of one document, and the chunks made of it; these alone when htmx asks."""
    user = cast("User", request.user)
    rows = Document.objects.visible_to(user).select_related("library", "owner")
    document = get_object_or_404(rows, pk=document_id)
    # `?page=` of an address is a page of the document; of a list that htmx asks for, one of that
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
    """Where the text of a document holds what is looked for."""
    if passage is None:
        return {}
    excerpt = cut_excerpt(passage.text, list_marked_words(query))
    return {"passage": passage, "excerpt": excerpt.split()}


def _to_page_data(document: Document) -> dict[str, Any]:
    """What the scripts of the page need to know."""
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
