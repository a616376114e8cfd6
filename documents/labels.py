"""Names of documents that a question may use: issuers, project names, titles and file names."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.db import connection, models, transaction

from documents.names import stem
from rag.types import Named
from rag.understand.filters import ALTERNATIVES, FIELDS, list_names, to_name_key

FOUND = """
    WITH found AS MATERIALIZED (  -- by name alone: a scope of thousands would be probed one by one
        SELECT field, value, name, document_id, id FROM documents_documentlabel
         WHERE name = ANY(%s::text[]))
    SELECT field, value, name, document_id FROM found
     WHERE document_id = ANY(%s::uuid[]) ORDER BY document_id, id
"""


class DocumentLabel(models.Model):
    """One name of a document: `name` as it is compared, `value` as it is shown."""

    document = models.ForeignKey("documents.Document", models.CASCADE, related_name="labels")
    field = models.CharField(max_length=20)
    value = models.CharField(max_length=200)
    name = models.CharField(max_length=200, db_index=True)

    class Meta:
        """One row a name and field."""

        app_label = "documents"
        constraints = (
            models.UniqueConstraint(fields=("document", "field", "name"), name="one_row_a_label"),
        )

    def __str__(self) -> str:
        return f"{self.field}: {self.value}"


def bearing(field: str, value: str) -> models.Q:
    """Documents that bear one of the names; `value` holds several as a filter writes them."""
    names = [to_name_key(name) for name in value.split(ALTERNATIVES)]
    rows = DocumentLabel.objects.filter(field=field, name__in=names)
    return models.Q(pk__in=rows.values("document_id"))


def rewrite(document_id: UUID, file_name: str, metadata: Mapping[str, Any]) -> None:
    """Put the labels of a document in place of its old ones. The caller holds the row."""
    with transaction.atomic():
        DocumentLabel.objects.filter(document_id=document_id).delete()
        DocumentLabel.objects.bulk_create(
            DocumentLabel(document_id=document_id, field=field, value=value, name=name)
            for (field, name), value in of(file_name, metadata).items()
        )


def of(file_name: str, metadata: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Field and name as compared -> name as shown. The file's name counts as a title."""
    found: dict[tuple[str, str], str] = {}
    for field, text in [*_named(metadata), ("title", stem(file_name))]:
        for name, shown in list_names(field, text).items():
            found.setdefault((field, name), shown)
    return found


def named(document_ids: Sequence[UUID], names: Sequence[str]) -> list[Named]:
    """Documents among these that carry one of the names, as `filters.to_name_key` writes them."""
    with connection.cursor() as cursor:
        scope = "{" + ",".join(map(str, document_ids)) + "}"  # one text: the driver adapts no list
        cursor.execute(FOUND, (list(names), scope))
        return [Named(*row) for row in cursor.fetchall()]


def _named(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each text that names the document; a list holds several."""
    for field in FIELDS:
        value = metadata.get(field)
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):
                yield field, text
