"""How the processing of a document ends when it does not end well."""

from collections.abc import Mapping

from django.db import transaction
from django.db.models import QuerySet

from documents import claims, versions
from documents.models import Document

WARNING = "reprocess_failed"


def give_up(held: QuerySet[Document], code: str, parameters: Mapping[str, object]) -> bool:
    """End badly, with what people will read; a document with an index goes on with that.

    `held` is the document as long as it is the caller's to change, as `Claim.held` gives it. False:
    it is not.
    """
    return versions.refuse_version(held, code, parameters) or _end(held, code, parameters)


@transaction.atomic
def _end(held: QuerySet[Document], code: str, parameters: Mapping[str, object]) -> bool:
    document = held.select_for_update().first()
    if document is None:
        return False
    if document.indexed:
        changes = claims.ended(Document.Status.COMPLETED, code, parameters) | {"progress": 1.0}
        others = [warning for warning in document.warnings if warning != WARNING]
        changes["warnings"] = [*others, WARNING]
    else:
        changes = claims.ended(Document.Status.FAILED, code, parameters)
    Document.objects.filter(pk=document.pk).update(**changes)
    return True
