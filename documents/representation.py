"""The document as outside programs see it: the API, the notices and the page show the same."""

from typing import Any

from django.utils.timezone import localtime

from documents import warned
from documents.models import Document, DocumentVersion
from documents.wording import sentence

LEAST_SHARE, LEAST_SECONDS = 0.02, 1.0
"""How much must be done before the rest is estimated."""
CURRENT = "current"
"""The state of the file that a document stands for."""


def document_json(document: Document) -> dict[str, Any]:
    """Plain JSON values, as in the contract; the error in the language that is active."""
    return {
        "id": str(document.pk),
        "name": document.name,
        "content_type": document.content_type,
        "size": document.size,
        "sha256": document.sha256,
        "status": document.status,
        "stage": document.stage,
        "progress": round(document.progress, 3),
        "pages_done": document.pages_done,
        "seconds_left": seconds_left(document),
        "indexed": document.indexed,
        "error": error_json(document),
        "warnings": [warned.warning_json(warning) for warning in document.warnings],
        "page_count": document.page_count,
        "chunk_count": document.chunk_count,
        "metadata": document.metadata,
        "version": document.version,
        "created_at": localtime(document.created_at).isoformat(),
        "updated_at": localtime(document.updated_at).isoformat(),
    }


def seconds_left(document: Document) -> float | None:
    """How long the processing may still take, judged by how long it took so far.

    None where there is nothing to go by.
    """
    if document.claim is None or document.started_at is None or document.progress < LEAST_SHARE:
        return None
    passed = (document.updated_at - document.started_at).total_seconds()
    if passed < LEAST_SECONDS:
        return None
    return round(passed * (1 - document.progress) / document.progress, 1)


def version_json(kept: Document | DocumentVersion) -> dict[str, Any]:
    """One of a document's files; the document itself is the current one."""
    if isinstance(kept, Document):
        number, state, error, came = kept.version, CURRENT, None, kept.received_at
    else:
        number, state, error, came = kept.number, kept.state, error_json(kept), kept.created_at
    return {
        "number": number,
        "state": state,
        "name": kept.name,
        "size": kept.size,
        "sha256": kept.sha256,
        "page_count": kept.page_count,
        "error": error,
        "created_at": localtime(came).isoformat(),
    }


def error_json(failed: Document | DocumentVersion) -> dict[str, str] | None:
    """Code and sentence of what went wrong."""
    if not failed.error_code:
        return None
    detail = sentence(failed.error_code, failed.error_params)
    return {"code": failed.error_code, "detail": detail}
