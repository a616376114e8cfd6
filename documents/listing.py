"""What the list of documents shows: narrowed by name, state and metadata, in a chosen order."""

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.db.models.fields.json import KeyTextTransform
from django.utils.translation import gettext_lazy as _

from documents.models import Document
from documents.models.document import DocumentQuerySet

NAME_CHARACTERS = 100
VALUES_OFFERED = 200
"""Issuers and projects to choose from; who has more of them searches by name."""
FIELDS = {"issuer": _("All issuers"), "project_name": _("All projects")}
"""Metadata that narrows the list, and what is chosen when it does not."""
ORDERS = {
    "": (_("Newest first"), ("-created_at", "id")),
    "oldest": (_("Oldest first"), ("created_at", "id")),
    "name": (_("By name"), ("name", "id")),
    "largest": (_("Largest first"), ("-size", "id")),
}


def query(asked: Mapping[str, str]) -> str:
    """The part of a name that is looked for."""
    return asked.get("q", "").replace("\x00", "").strip()[:NAME_CHARACTERS]


def found(documents: DocumentQuerySet, asked: Mapping[str, str]) -> QuerySet[Document]:
    """The documents that the parameters of the address ask for; odd ones narrow nothing."""
    status = asked.get("status", "")
    rows = documents.narrowed(status if status in Document.Status.values else "", query(asked))
    for field, value in _chosen(asked).items():
        rows = rows.filter(metadata__contains={field: value})
    _label, order = ORDERS.get(asked.get("sort", ""), ORDERS[""])
    return rows.order_by(*order)


def controls(documents: DocumentQuerySet, asked: Mapping[str, str]) -> dict[str, Any]:
    """What the form above the list offers, and what is chosen in it."""
    chosen = _chosen(asked)
    offered = ((name, label, _values(documents, name)) for name, label in FIELDS.items())
    return {
        "query": query(asked),
        "status": asked.get("status", ""),
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
    return bool(query(asked) or asked.get("status") or _chosen(asked))


def _chosen(asked: Mapping[str, str]) -> dict[str, str]:
    values = {name: asked.get(name, "").replace("\x00", "") for name in FIELDS}
    return {name: value for name, value in values.items() if value}


def _values(documents: DocumentQuerySet, field: str) -> list[str]:
    """The texts that the documents hold under the key, each once."""
    holding = documents.filter(metadata__has_key=field)
    texts = holding.annotate(held=KeyTextTransform(field, "metadata")).order_by("held")
    values = texts.exclude(held="").values_list("held", flat=True).distinct()[:VALUES_OFFERED]
    return [value for value in values if value[0] not in "[{"]
