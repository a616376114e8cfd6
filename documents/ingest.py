"""One document from file to index. Running it twice gives the same rows; every end has a reason."""

import logging
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection

from documents import claims, files, metadata, names, notices, queue, rows, spaces
from documents.claims import Claim
from documents.errors import DatabaseFailed, IngestLost, IngestTimeout, Internal
from documents.models import Document
from documents.parsers import sandbox
from documents.progress import Heartbeat, Progress
from rag import chunking
from rag.errors import NuraError
from rag.factory import engine
from rag.pages import Page

logger = logging.getLogger(__name__)

RETRY_SECONDS = 3.0
UNKNOWN_PAGES = 100
"""Progress within formats that do not say how many pages they have creeps towards that many."""


@dataclass(frozen=True, slots=True)
class _Parsed:
    """What a parser found."""

    pages: list[Page]
    metadata: dict[str, str]
    warnings: list[str]


def ingest(*, document_id: UUID) -> None:
    """Process a document that waits; nothing when it ended, is gone, or is at work elsewhere."""
    claim = claims.take(document_id)
    if claim is None:
        logger.info("document %s is not waiting", document_id)
        return
    try:
        _attempt(claim)
    except IngestLost:
        logger.info("document %s was taken away: stopped", document_id)


def _attempt(claim: Claim) -> None:
    """Work, and end the document in any case. Raises `IngestLost`."""
    try:
        renew = partial(claims.renew, claim)
        with Heartbeat(renew, name=f"document {claim.document_id}") as heartbeat:
            _work(claim, Progress(claim, heartbeat))
    except IngestLost:
        raise
    except NuraError as error:
        _failed(claim, error)
    except SoftTimeLimitExceeded:
        _failed(claim, IngestTimeout())
    except (OperationalError, InterfaceError) as error:
        connection.close()
        _failed(claim, DatabaseFailed(str(error)))
    except Exception:  # whatever it was: the document must end, and its owner must know
        logger.exception("document %s failed for a reason unknown", claim.document_id)
        _failed(claim, Internal())
    else:
        _tell(claim)


def _work(claim: Claim, progress: Progress) -> None:
    document = Document.objects.filter(pk=claim.document_id).first()
    if document is None:
        raise IngestLost
    progress.enter(Document.Stage.PARSING)
    parsed = _read(document, progress)
    progress.enter(Document.Stage.CHUNKING)
    split = chunking.split(
        parsed.pages, size=settings.RAG.chunk_size, overlap=settings.RAG.chunk_overlap
    )
    while not _indexed(claim, document, parsed, split, progress):
        logger.info("document %s: another embedding model took over; again", document.pk)


def _indexed(
    claim: Claim, document: Document, parsed: _Parsed, split: chunking.Split, progress: Progress
) -> bool:
    """Embed with the model in use and store; False when another one took over meanwhile."""
    progress.enter(Document.Stage.EMBEDDING)
    space, config = spaces.for_writing()
    title = names.title(document.name, parsed.metadata | document.metadata)
    chunks = engine(config).index(split.chunks, title, progress.move)
    progress.enter(Document.Stage.INDEXING)
    content = rows.Content(
        parsed.pages, split.page_starts, chunks, parsed.metadata, parsed.warnings
    )
    try:
        rows.replace(claim, content, space)
    except spaces.SpaceChangedError:
        return False
    return True


def _read(document: Document, progress: Progress) -> _Parsed:
    """What stands in the file, read in a child process."""
    pages: list[Page] = []
    with files.local(document) as path:
        reading = sandbox.read(path, document.content_type, document.name, on_wait=progress.check)
        with reading:
            for page in reading:
                pages.append(page)
                progress.move(len(pages), reading.page_total or len(pages) + UNKNOWN_PAGES)
            return _Parsed(pages, metadata.cleaned(reading.metadata), reading.warnings)


def _failed(claim: Claim, error: NuraError) -> None:
    """Try once more where that may help, else end with the reason. Raises `IngestLost`."""
    logger.warning("document %s: %s (%s)", claim.document_id, error.code, error)
    if error.retryable and claims.give_back(claim):
        queue.enqueue(claim.document_id, delay=RETRY_SECONDS)
    else:
        claims.fail(claim, error.code, error.params)
    _tell(claim)


def _tell(claim: Claim) -> None:
    document = Document.objects.filter(pk=claim.document_id).first()
    if document:
        notices.document_changed(document)
