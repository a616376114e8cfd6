"""The pages of documents."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.paginator import Page, Paginator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from documents.models import Chunk, Document
from documents.parsers import kinds
from documents.wording import sentence

PAGE_SIZE = 20
CHUNKS_SHOWN = 10
NAME_CHARACTERS = 100
KINDS = {
    kinds.PDF: "PDF",
    kinds.DOCX: "DOCX",
    kinds.HWP: "HWP",
    kinds.HWPX: "HWPX",
    kinds.MARKDOWN: "Markdown",
}
FACT_NAMES = {
    "title": _("Title"),
    "project_name": _("Project"),
    "issuer": _("Issuer"),
    "author": _("Author"),
    "date": _("Date"),
    "version": _("Version"),
}
"""Metadata that is known by name, in the order of the page."""
FACTS_SHOWN = 50
FACT_CHARACTERS = 300
"""Longer values of metadata are cut in the page."""


@require_GET
@never_cache
@login_required
def document_list(request: HttpRequest) -> HttpResponse:
    """The table of documents; only the table when htmx asks."""
    found = _found(request)
    documents = Paginator(found, PAGE_SIZE).get_page(request.GET.get("page"))
    context = {
        "area": "documents",
        "documents": documents,
        "rows": [
            {"document": one, "reason": reason(one), "warnings": warnings(one)} for one in documents
        ],
        "query": _query(request),
        "status": request.GET.get("status", ""),
        "statuses": Document.Status.choices,
        "page": {"upload_limit_mb": settings.MAX_UPLOAD_MB},
    }
    panel = request.headers.get("HX-Request") == "true"
    return render(request, "panels/document_table.html" if panel else "documents.html", context)


@require_GET
@never_cache
@login_required
def document_detail(request: HttpRequest, document_id: UUID) -> HttpResponse:
    """What is known of one document, and the chunks made of it."""
    user = cast("User", request.user)
    document = get_object_or_404(Document.objects.visible_to(user), pk=document_id)
    chunks = _chunks(document, request.GET.get("page"))
    context: dict[str, Any] = {"area": "documents", "document": document, "chunks": chunks}
    if request.headers.get("HX-Request") == "true":
        return render(request, "panels/document_chunks.html", context)
    context |= {
        "reason": reason(document),
        "warnings": warnings(document),
        "facts": [
            (FACT_NAMES.get(name, name), value[:FACT_CHARACTERS])
            for name, value in islice(facts(_in_order(document.metadata)), FACTS_SHOWN)
        ],
        "kind": KINDS.get(document.content_type, document.content_type),
        "page": {"document": {"id": str(document.pk), "name": document.name}},
    }
    return render(request, "document.html", context)


def reason(document: Document) -> str:
    """Why a document failed, as a sentence; empty unless it did."""
    if not document.error_code:
        return ""
    return sentence(document.error_code, document.error_params)


def warnings(document: Document) -> list[str]:
    """What a completed document lacks, as sentences."""
    if document.status != Document.Status.COMPLETED:
        return []
    return [sentence(code) for code in document.warnings]


def _in_order(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """What is known by name first."""
    return {name: metadata[name] for name in FACT_NAMES if name in metadata} | dict(metadata)


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


def _query(request: HttpRequest) -> str:
    return request.GET.get("q", "").replace("\x00", "").strip()[:NAME_CHARACTERS]


def _found(request: HttpRequest) -> QuerySet[Document]:
    documents = Document.objects.visible_to(cast("User", request.user))
    if query := _query(request):
        documents = documents.filter(name__icontains=query)
    status = request.GET.get("status", "")
    if status in Document.Status.values:
        documents = documents.filter(status=status)
    return documents


def _chunks(document: Document, page: str | None) -> "Page[Chunk]":
    chunks = Chunk.objects.filter(document=document).order_by("index")
    fields = chunks.only("index", "text", "page", "page_end", "section", "document_id")
    return Paginator(fields, CHUNKS_SHOWN).get_page(page)
