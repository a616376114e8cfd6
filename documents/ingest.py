"""One document from file to index. Running it twice gives the same rows; every end has a reason."""

import logging
from dataclasses import dataclass
from functools import cache, partial

from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import InterfaceError, OperationalError, connection

from documents import (
    claims,
    ending,
    files,
    index,
    metadata,
    notices,
    queue,
    quotas,
    spaces,
    versions,
)
from documents.analysis import Analysis
from documents.claims import Claim
from documents.errors import DatabaseFailed, IngestLost, IngestTimeout, Internal
from documents.gallery import Gallery
from documents.index import ChunkSpool
from documents.models import Document, DocumentVersion
from documents.parsers import formats
from documents.parsers.base import PictureRules
from documents.parsers.errors import NoText, OutOfMemory, ParserCrashed, TimedOut
from documents.parsers.sandbox.client import DocumentReading, read_document
from documents.progress import Heartbeat, Progress
from rag import chunking, tokenize
from rag.errors import EmbedderFailed, NuraError
from rag.factory import engine

logger = logging.getLogger(__name__)

DELIVERY_SECONDS = 0.5
"""A message about a second attempt comes that much after the pause has ended."""
OUTAGES = (DatabaseFailed, EmbedderFailed)
"""What no file is to blame for: it passes."""
DEATHS = (ParserCrashed, OutOfMemory, TimedOut)
"""How a file, or a picture in it, ends its reader."""
NO_PICTURES = PictureRules(most=0)
PICTURED = frozenset((formats.PDF, formats.DOCX, formats.HWP, formats.HWPX))
"""Formats whose readers look at pictures."""
PICTURES_SKIPPED = "pictures_skipped"
UNKNOWN_PAGES = 100
"""Progress within formats that do not say how many pages they have creeps towards that many."""


def ingest() -> bool:
    """Process the document whose turn it is; False when none waits."""
    _load()
    claim = claims.take()
    if claim is None:
        return False
    try:
        _attempt(claim)
    except IngestLost:
        logger.info("document %s was taken away: stopped", claim.document_id)
    return True


@cache
def _load() -> None:
    """Load the analyser before a document is claimed.

    It stops all threads for seconds, on a busy machine for longer than a lease lasts unrenewed.
    """
    engine(settings.RAG)
    tokenize.terms("준비")


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


@dataclass(frozen=True, slots=True)
class _Job:
    """One attempt at one document: what its steps share. `kept` is whose file is read."""

    claim: Claim
    document: Document
    version: DocumentVersion | None
    progress: Progress
    gallery: Gallery
    draft: index.IndexDraft
    chunks: ChunkSpool
    pictures: PictureRules

    @property
    def kept(self) -> Document | DocumentVersion:
        return self.version or self.document


def _work(claim: Claim, progress: Progress) -> None:
    """Process the document; without its pictures where its reader died over the whole file."""
    document = Document.objects.filter(pk=claim.document_id).first()
    if document is None:
        raise IngestLost
    version = versions.get_pending_version(document.pk)
    process = partial(_process, claim, document, version, progress)
    try:
        process(settings.PICTURES)
    except DEATHS as death:
        kept = version or document
        if not settings.PICTURES.most or kept.content_type not in PICTURED:
            raise
        logger.warning("document %s: %s; again without pictures", document.pk, death.code)
        try:
            process(NO_PICTURES)
        except NoText:  # its pictures may have held some: this is not why it failed
            raise death from None


def _process(
    claim: Claim,
    document: Document,
    version: DocumentVersion | None,
    progress: Progress,
    pictures: PictureRules,
) -> None:
    with (
        Gallery(document, progress.check, progress.watch) as gallery,
        index.IndexDraft(document) as draft,
        ChunkSpool() as chunks,
    ):
        job = _Job(claim, document, version, progress, gallery, draft, chunks, pictures)
        found = _read(job)
        while not _indexed(job, found):
            logger.info("document %s: another embedding model took over; again", document.pk)


def _read(job: _Job) -> index.IngestFindings:
    """What stands in the file, read in a child process: pages and their terms go to disk."""
    kept, progress = job.kept, job.progress
    progress.enter(Document.Stage.PARSING)
    with files.open_local_path(kept) as path:
        reading = read_document(
            path,
            kept.content_type,
            kept.name,
            settings.READING_LIMITS,
            pictures=job.pictures,
            pdf_reader=settings.PDF_READER,
            on_wait=progress.check,
        )
        with reading, Analysis(job.chunks.add) as analysis:
            _split(job, reading, analysis)
            analysis.finish()
    warnings = [*reading.warnings, *job.gallery.warnings]
    if job.pictures != settings.PICTURES:
        warnings.append(PICTURES_SKIPPED)
    return index.IngestFindings(
        metadata.clean_metadata(reading.metadata), warnings, progress.watch.seconds
    )


def _split(job: _Job, reading: DocumentReading, analysis: Analysis) -> None:
    """Cut the pages as they come; their chunks are analysed meanwhile."""
    rag, watch = settings.RAG, job.progress.watch
    splitter = chunking.Splitter(size=rag.chunk_size, overlap=rag.chunk_overlap)
    for done, page in enumerate(job.gallery.pages(reading), 1):
        watch.enter(Document.Stage.CHUNKING.value)
        if done == 1 and reading.page_total:
            quotas.check_page_quota(job.document.owner_id, job.document.pk, reading.page_total)
        job.draft.add_page(page, splitter.start)
        analysis.add(splitter.add(page))
        watch.enter(Document.Stage.PARSING.value)
        job.progress.move(done, reading.page_total or done + UNKNOWN_PAGES, pages_done=done)


def _indexed(job: _Job, found: index.IngestFindings) -> bool:
    """Embed with the model in use and store; False when another one took over meanwhile."""
    job.progress.enter(Document.Stage.EMBEDDING)
    space, config = spaces.get_space_for_writing()
    title = metadata.to_title_lines(
        job.kept.name, metadata.merge_metadata(found.metadata, job.document.stated)
    )
    complete = engine(config).completed
    job.draft.index(complete(job.chunks, title, job.progress.move, job.chunks.count), space)
    job.progress.enter(Document.Stage.INDEXING)
    try:
        index.replace_index(job.claim, job.draft, found, space, partial(_beside, job))
    except spaces.SpaceChangedError:
        return False
    return True


def _beside(job: _Job) -> None:
    """What becomes true together with the new index."""
    quotas.check_page_quota(job.document.owner_id, job.document.pk, job.draft.page_count or 1)
    if job.version:
        versions.promote_version(job.document.pk, job.version)
    job.gallery.write()


def _failed(claim: Claim, error: NuraError) -> None:
    """Try once more where that may help, else end with the reason. Raises `IngestLost`."""
    logger.warning("document %s: %s (%s)", claim.document_id, error.code, error)
    most = claims.MAX_ATTEMPTS if isinstance(error, OUTAGES) else claims.MAX_TRIES
    if error.retryable and claims.give_back(claim, most):
        queue.enqueue(claim.document_id, delay=claims.RETRY.total_seconds() + DELIVERY_SECONDS)
    elif not ending.give_up(claim.held(), error.code, error.params):
        raise IngestLost
    _tell(claim)


def _tell(claim: Claim) -> None:
    document = Document.objects.filter(pk=claim.document_id).first()
    if document:
        notices.document_changed(document)
