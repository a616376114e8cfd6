"""The pages of documents."""

from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.paginator import Page, Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from documents import presentation
from documents.models import Chunk, Document
from documents.parsers import formats

PAGE_SIZE = 20
CHUNKS_SHOWN = 10


@require_GET
@never_cache
@login_required
def document_list(request: HttpRequest) -> HttpResponse:
    """The table of documents; only the table when htmx asks."""
    own = Document.objects.visible_to(cast("User", request.user))
    asked = request.GET.dict()
    documents = Paginator(presentation.filter_documents(own, asked), PAGE_SIZE).get_page(
        asked.get("page")
    )
    context = {
        "area": "documents",
        "documents": documents,
        "rows": [_row(one) for one in documents],
        "narrowed": presentation.is_narrowed(asked),
        "page": {"upload_limit_mb": settings.MAX_UPLOAD_MB},
    }
    if request.headers.get("HX-Request") == "true":
        return render(request, "panels/document_table.html", context)
    return render(request, "documents.html", context | presentation.list_controls(own, asked))


@require_GET
@never_cache
@login_required
def document_detail(request: HttpRequest, document_id: UUID) -> HttpResponse:
    """What is known of one document, and the chunks made of it; these alone when htmx asks."""
    user = cast("User", request.user)
    document = get_object_or_404(Document.objects.visible_to(user), pk=document_id)
    chunks = _chunks(document, request.GET.get("page"))
    context: dict[str, Any] = {"area": "documents", "document": document, "chunks": chunks}
    context["has_pages"] = document.content_type == formats.PDF
    if request.headers.get("HX-Request") == "true":
        return render(request, "panels/document_chunks.html", context)
    context |= _row(document) | presentation.describe_index(document)
    context |= {
        "metadata": presentation.list_metadata_rows(document),
        "versions": presentation.list_versions(document),
        "kind": presentation.FORMAT_NAMES.get(document.content_type, document.content_type),
        "page": _page(document),
    }
    return render(request, "document.html", context)


def _row(document: Document) -> dict[str, Any]:
    return {
        "document": document,
        "reason": presentation.to_failure_reason(document),
        "warnings": presentation.list_warnings(document),
        "indexed": document.indexed,
    }


def _page(document: Document) -> dict[str, Any]:
    """What the scripts of the page need to know."""
    return {
        "upload_limit_mb": settings.MAX_UPLOAD_MB,
        "document": {
            "id": str(document.pk),
            "name": document.name,
            "page_count": document.page_count,
        },
        "metadata": document.metadata,
        "metadata_names": {key: str(name) for key, name in presentation.FACT_NAMES.items()},
    }


def _chunks(document: Document, page: str | None) -> "Page[Chunk]":
    chunks = Chunk.objects.filter(document=document).order_by("index").defer("lexemes")
    return Paginator(chunks, CHUNKS_SHOWN).get_page(page)
