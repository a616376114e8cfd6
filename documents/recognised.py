"""Recognised pages of documents that are not finished: no page is recognised twice.

Pages are stored as they come and deleted when the document's index is written
(`index.delete_index`). A worker that stops, dies or passes its turn on loses only the pages it was
working on.
"""

import zlib
from dataclasses import dataclass
from uuid import UUID

from django.db import IntegrityError

from documents.models import RecognisedPage
from jobs.lease import LeaseLostError


@dataclass(frozen=True, slots=True)
class RecognisedPages:
    """`count` pages that need not be recognised again, encoded as `read_document` takes them.

    `last_page` is the number of the last one, 0 if there is none.
    """

    encoded: bytes = b""
    count: int = 0
    last_page: int = 0


def load_pages(document_id: UUID, sha256: str) -> RecognisedPages:
    """The recognised pages of the file with this hash, not those of other files of the document."""
    rows = RecognisedPage.objects.filter(document_id=document_id, sha256=sha256).order_by("index")
    data_by_index = dict(rows.values_list("index", "found"))
    if not data_by_index:
        return RecognisedPages()
    encoded = b",".join(
        b'"%d":' % index + zlib.decompress(data_by_index[index]) for index in data_by_index
    )
    return RecognisedPages(b"{%s}" % encoded, len(data_by_index), max(data_by_index) + 1)


def keep_page(document_id: UUID, sha256: str, index: int, data: bytes) -> None:
    """Store a recognised page; `data` is JSON. Raises `LeaseLostError`."""
    page = RecognisedPage(
        document_id=document_id, sha256=sha256, index=index, found=zlib.compress(data)
    )
    try:
        RecognisedPage.objects.bulk_create([page], ignore_conflicts=True)
    except IntegrityError as error:  # the document was deleted meanwhile
        raise LeaseLostError from error
