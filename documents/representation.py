"""The document as outside programs see it: the API, the notices and the page show the same."""

from typing import Any

from django.utils.timezone import localtime

from documents.models import Document
from documents.wording import sentence


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
        "error": error_json(document),
        "warnings": [{"code": code, "detail": sentence(code)} for code in document.warnings],
        "page_count": document.page_count,
        "chunk_count": document.chunk_count,
        "metadata": document.metadata,
        "version": document.version,
        "created_at": localtime(document.created_at).isoformat(),
        "updated_at": localtime(document.updated_at).isoformat(),
    }


def error_json(document: Document) -> dict[str, str] | None:
    """Code and sentence of what went wrong."""
    if not document.error_code:
        return None
    detail = sentence(document.error_code, document.error_params)
    return {"code": document.error_code, "detail": detail}
