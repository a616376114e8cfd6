"""Names of documents that a question may use: issuers, project names and titles."""

from collections.abc import Sequence
from uuid import UUID

from documents.models import Document
from rag.query.names import normalised
from rag.types import Named

FIELDS = ("issuer", "project_name", "title")


def named(document_ids: Sequence[UUID], names: Sequence[str]) -> list[Named]:
    """Documents among these that carry one of the normalised names."""
    wanted = set(names)
    rows = Document.objects.filter(pk__in=document_ids).values_list("pk", "metadata")
    return [
        Named(field, value, normalised(value), pk)
        for pk, metadata in rows
        for field, value in ((field, str(metadata.get(field, ""))) for field in FIELDS)
        if normalised(value) in wanted
    ]
