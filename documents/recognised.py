"""What was recognised of a document before its worker stopped: no page is recognised twice.

Pages are kept as they come and go when the document's index is written (`index.delete_index`), so
that a worker that ends, dies or passes its turn on costs the pages at which it was working.
"""

import zlib
from dataclasses import dataclass
from uuid import UUID

from django.db import IntegrityError

from documents.models import RecognisedPage
from jobs.lease import LeaseLostError


@dataclass(frozen=True, slots=True)
class KeptPages:
    """Pages that need not be recognised again, as `read_document` takes them.

    There are `count`; `reached` is the number of the last one, 0 without any.
    """

    encoded: bytes = b""
    count: int = 0
    reached: int = 0


def load_pages(document_id: UUID, sha256: str) -> KeptPages:
    """What was recognised of the file with this hash; none of another file of the document."""
    rows = RecognisedPage.objects.filter(document_id=document_id, sha256=sha256).order_by("index")
    pages = dict(rows.values_list("index", "found"))
    if not pages:
        return KeptPages()
    encoded = b",".join(b'"%d":' % index + zlib.decompress(pages[index]) for index in pages)
    return KeptPages(b"{%s}" % encoded, len(pages), max(pages) + 1)


def keep_page(document_id: UUID, sha256: str, index: int, found: bytes) -> None:
    """Keep what was recognised of a page, in JSON. Raises `LeaseLostError`."""
    page = RecognisedPage(
        document_id=document_id, sha256=sha256, index=index, found=zlib.compress(found)
    )
    try:
        RecognisedPage.objects.bulk_create([page], ignore_conflicts=True)
    except IntegrityError as error:  # the document was deleted meanwhile
        raise LeaseLostError from error
