"""First questions on an empty page: what this installation can answer from one's own documents."""

import re
from collections.abc import Iterable
from itertools import chain, zip_longest
from uuid import UUID

from django.utils.translation import gettext as _

from documents import metadata
from documents.models import Chunk, Document

MAX_EXAMPLES = 4
READ_CHUNKS = 60
"""Chunks of a document that are looked through for headings."""
MAX_NAME_CHARACTERS = 40
MAX_HEADING_CHARACTERS = 30
_NUMBER = re.compile(
    r"^(?:제\s?\d+\s?[편장절관조항]\s*|\d+(?:[.-]\d+)*[.)]?\s+|(?:[가나다라마바사아자차카타파하]|[IVX]+)[.)]\s*)"
)
_HEADING = re.compile(r"[^\W\d_].*\w")


def suggest_questions(documents: Iterable[Document], *, has_model: bool) -> list[str]:
    """At most `MAX_EXAMPLES` questions about these documents.

    Without a language model only such as finding a passage answers: what stands under a heading.
    """
    known = list(documents)[:MAX_EXAMPLES]
    found = [*(_written(known) if has_model else ()), *_looked_up(known)]
    return found[:MAX_EXAMPLES]


def _written(documents: list[Document]) -> list[str]:
    """What takes a model: it writes a text of its own."""
    spoken = [_spoken_name(document) for document in documents]
    found = [_("Summarise the key points of “{name}”").format(name=name) for name in spoken[:1]]
    if len(spoken) > 1:
        found.append(_("Compare “{name}” with “{other}”").format(name=spoken[0], other=spoken[1]))
    return found


def _looked_up(documents: list[Document]) -> list[str]:
    """A heading of each document, then the next of each; dates and amounts where it has none."""
    headings = _headings(documents)
    columns = []
    for document in documents:
        name = _spoken_name(document)
        asked = [
            _("Find what “{name}” says about “{heading}”").format(name=name, heading=heading)
            for heading in headings.get(document.pk, ())
        ]
        columns.append(asked or [_("Find the dates and amounts in “{name}”").format(name=name)])
    return [question for question in chain(*zip_longest(*columns)) if question]


def _headings(documents: list[Document]) -> dict[UUID, list[str]]:
    """The headings of each document, each once, in order, without their numbers."""
    rows = (
        Chunk.objects.filter(document__in=documents, index__lt=READ_CHUNKS)
        .exclude(section="")
        .order_by("document_id", "index")
        .values_list("document_id", "section")
    )
    titles = {
        one.pk: {_spoken_name(one), metadata.to_title(one.name, one.metadata)} for one in documents
    }
    found: dict[UUID, dict[str, None]] = {}
    for document_id, section in rows:
        heading = _NUMBER.sub("", section.rpartition(" > ")[2]).strip(" ()[]【】")
        says_something = heading not in titles[document_id] and _HEADING.fullmatch(heading)
        if says_something and len(heading) <= MAX_HEADING_CHARACTERS:
            found.setdefault(document_id, {})[heading] = None
    return {document_id: list(headings) for document_id, headings in found.items()}


def _spoken_name(document: Document) -> str:
    name = document.name.rpartition(".")[0] or document.name
    return name if len(name) <= MAX_NAME_CHARACTERS else name[: MAX_NAME_CHARACTERS - 1] + "…"
