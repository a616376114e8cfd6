"""One document from file to index. Running it twice gives the same rows; every end has a reason.

`reap_ingests` hands on ingests that lost their worker, and announces those nobody was told of.

Recognition, by OCR or by a vision model, takes seconds a page and happens in other processes. While
a worker waits for it, it reads documents that need none (`_Recognition`), so that scans do not hold
up texts. After a while it passes its turn to another owner's document that needs recognition, too;
pages that were recognised are kept for the next turn (`documents.index`).
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from typing import Self

import structlog
from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.db import InterfaceError, InternalError, OperationalError, connection, transaction
from django.db.models import QuerySet

from documents import (
    files,
    index,
    metadata,
    notices,
    queue,
    quotas,
    spaces,
    versions,
)
from documents.connected.choice import read_config
from documents.errors import DatabaseFailed, IngestTimeout, Internal, WorkerLost
from documents.gallery import Gallery
from documents.index import ChunkSpool, keep_recognised_page
from documents.models import AnyVersion, Document, DocumentVersion
from documents.notices import IngestProgress, Stopwatch
from documents.parsers import formats
from documents.parsers.base import NoText, OutOfMemory, ParserCrashed, PictureRules, TimedOut
from documents.parsers.sandbox.client import DocumentReading, read_document
from jobs.lease import (
    Heartbeat,
    HeldLease,
    Lease,
    LeaseLostError,
    LeavingError,
    announce_unclaimed_jobs,
    reap_lost_jobs,
    select_waiting_jobs,
)
from rag import chunking, tokenize
from rag.errors import EmbedderFailed, NuraError
from rag.factory import get_engine
from rag.indexing import ChunkAnalyser
from rag.types import IndexedChunk, TextChunk

MAX_CHUNKS_A_BATCH = 64
"""Chunks that are analysed together: some tens of milliseconds."""
MAX_BATCHES_AHEAD = 2
"""Batches that may wait before reading pauses."""
HEARTBEAT = Heartbeat(Document)
PATIENCE = timedelta(seconds=30)
"""How long a document waits before a message is sent again."""
OUTAGES = (DatabaseFailed, EmbedderFailed)
"""Failures that pass and are no fault of the file."""
CRASHES = (ParserCrashed, OutOfMemory, TimedOut)
"""Ways in which a file, or a picture in it, ends the process that reads it."""
NO_PICTURES = PictureRules(max_pictures=0)
FORMATS_WITH_PICTURES = frozenset((formats.PDF, formats.DOCX, formats.HWP, formats.HWPX))
"""Formats whose readers extract pictures."""
PICTURES_SKIPPED = "pictures_skipped"
UNKNOWN_PAGES = 100
"""Assumed to follow in formats that do not say how many pages they have, for the progress."""
REPROCESS_FAILED = "reprocess_failed"
MAX_PAUSE_SECONDS = 5.0
"""How long other documents are read before the worker checks for recognised pages."""
MIN_SECONDS_BETWEEN_LOOKS = 0.5
"""Between two checks for other documents, when pages come quickly."""

TURN_SECONDS = 5.0
"""Minimum time of recognition before the turn is passed on."""
SECONDS_AFTER_PAGE = 1.0
"""A turn is passed on this long after a page: those at work have just begun, so little is lost."""
MAX_REPEATED_SHARE = 0.25
"""Maximum share of a turn that repeats what was read before (only recognition is kept)."""

logger = structlog.get_logger()


class ChunkAnalysis:
    """Analyses chunks in a thread and passes them to `store_chunk` in order, in the caller's.

    A context manager; call `finish` after the last `add`.
    """

    def __init__(self, store_chunk: Callable[[IndexedChunk], None]) -> None:
        self._store_chunk = store_chunk
        self._analyser = ChunkAnalyser()
        self._batch: list[TextChunk] = []
        self._futures: deque[Future[list[IndexedChunk]]] = deque()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="analysis")

    def add(self, chunks: Sequence[TextChunk]) -> None:
        """Add the next chunks."""
        self._batch += chunks
        if len(self._batch) >= MAX_CHUNKS_A_BATCH:
            self._submit_batch()

    def finish(self) -> None:
        """Wait for all that is not analysed yet."""
        self._submit_batch()
        while self._futures:
            self._store_results()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.shutdown(cancel_futures=True)

    def _submit_batch(self) -> None:
        batch, self._batch = self._batch, []
        self._futures.append(
            self._executor.submit(lambda: list(self._analyser.analyse_chunks(batch)))
        )
        while len(self._futures) > MAX_BATCHES_AHEAD or (self._futures and self._futures[0].done()):
            self._store_results()

    def _store_results(self) -> None:
        for chunk in self._futures.popleft().result():
            self._store_chunk(chunk)


def ingest_next_document() -> bool:
    """Process the next document in turn; False if none is waiting."""
    _load_analyser()
    lease = queue.claim_next_document()
    if lease is None:
        return False
    _ingest(lease, in_pause=False)
    return True


@cache
def _load_analyser() -> None:
    """Load the analyser before a document is claimed.

    It stops all threads for seconds, on a busy machine for longer than a lease lasts unrenewed.
    """
    get_engine(read_config())
    tokenize.count_terms("준비")


class RecognitionNeededError(Exception):
    """A document read in the pause of another one needs recognition, too: it has to wait."""


class TurnPassedError(Exception):
    """It is the turn of another owner's document, which needs recognition, too."""


class _Recognition:
    """Uses the time in which pages or pictures of a document are being recognised.

    Documents that need no recognition are read in these pauses, one after another. One that turns
    out to need it (`in_pause`) is postponed before any page or picture of it is recognised. A
    document passes its turn on if another owner has had less, unless the vision model was asked:
    its descriptions are not kept. It does so `SECONDS_AFTER_PAGE` after a page, because pages are
    recognised several at a time and unfinished ones are lost.
    """

    def __init__(self, lease: Lease[Document], progress: IngestProgress, *, in_pause: bool) -> None:
        self.progress = progress
        self._lease = lease
        self._is_in_pause = in_pause
        self._needs_recognition = False
        self._may_pass_turn = True
        self.pages = 0
        """Pages recognised in this turn."""
        self._last_page_at: float | None = None
        """When the last page came, unless the turn was offered since."""
        self._started_at = self._last_look_at = time.monotonic()
        self._turn_seconds = 0.0
        self._turn_ends_at = 0.0

    def require_turn_for_page(self) -> None:
        """Before a page is recognised. Raises `RecognitionNeededError` in a pause."""
        self._require_turn()
        if not self._turn_ends_at:
            now = time.monotonic()
            self._turn_seconds = max(TURN_SECONDS, (now - self._started_at) / MAX_REPEATED_SHARE)
            self._turn_ends_at = now + self._turn_seconds

    def require_turn_for_picture(self) -> None:
        """Before a picture is described. Raises `RecognitionNeededError` in a pause."""
        self._require_turn()
        self._may_pass_turn = False

    def _require_turn(self) -> None:
        if self._is_in_pause:
            raise RecognitionNeededError
        self._needs_recognition = True

    def keep_page(self, sha256: str, index: int, data: bytes) -> None:
        """Store a recognised page of the file with this hash. Raises `LeaseLostError`."""
        self.progress.check()
        keep_recognised_page(self._lease.job_id, sha256, index, data)
        self.pages += 1
        self._last_page_at = time.monotonic()

    def use_pause(self) -> None:
        """Called while nothing comes. Raises `LeaseLostError`, `TurnPassedError`."""
        self.progress.check()
        if self._last_page_at and time.monotonic() - self._last_page_at >= SECONDS_AFTER_PAGE:
            self._last_page_at = None
            self._pass_turn(self._turn_ends_at)
        self._ingest_others(MAX_PAUSE_SECONDS)

    def yield_turn(self) -> None:
        """Called after a page: let another document go first, if one waits.

        Raises `LeaseLostError`, `TurnPassedError`.
        """
        if self.yield_to_texts() and self._last_page_at:  # they come too quickly for a pause
            self._pass_turn(self._turn_ends_at + self._turn_seconds)

    def yield_to_texts(self) -> bool:
        """Ingest a waiting document that needs no recognition; False if one was just looked for.

        Raises `LeaseLostError`.
        """
        is_due = time.monotonic() - self._last_look_at >= MIN_SECONDS_BETWEEN_LOOKS
        if is_due:
            self._ingest_others(0.0)
        return is_due

    def _pass_turn(self, ends_at: float) -> None:
        """Raise `TurnPassedError` if the turn has ended and somebody waits for it."""
        has_ended = self._may_pass_turn and time.monotonic() >= ends_at
        if has_ended and queue.is_turn_of_another(self._lease):
            self.progress.report()  # its page goes on showing how far it is
            raise TurnPassedError

    def _ingest_others(self, seconds: float) -> None:
        """Ingest waiting documents that need no recognition, for so long, and at least one."""
        ends_at = time.monotonic() + seconds
        while self._needs_recognition and (lease := queue.claim_next_document(queue.UNTRIED_TEXTS)):
            with self.progress.watch.pause():
                _ingest(lease, in_pause=True)
            self.progress.check()
            if time.monotonic() >= ends_at:
                break
        self._last_look_at = time.monotonic()


def _ingest(lease: Lease[Document], *, in_pause: bool) -> None:
    """Work on a document; `in_pause`: while this worker waits for another one's recognition."""
    try:
        _run_attempt(lease, Stopwatch(), in_pause=in_pause)
    except LeaseLostError:
        logger.info("ingest_taken_away", document_id=str(lease.job_id))


def _run_attempt(lease: Lease[Document], watch: Stopwatch, *, in_pause: bool) -> None:
    """Process the document and end it whatever happens. Raises `LeaseLostError`."""
    try:
        with HEARTBEAT.hold(lease) as held_lease:
            _process_document(held_lease, watch, in_pause=in_pause)
    except (LeavingError, RecognitionNeededError, TurnPassedError) as reason:
        _postpone_document(lease, reason, watch)
    except LeaseLostError:
        raise
    except NuraError as error:
        _handle_failure(lease, error, watch)
    except SoftTimeLimitExceeded:
        if in_pause:  # it is the other document's time that has run out
            _postpone_document(lease, LeavingError(), watch)
            raise
        _handle_failure(lease, IngestTimeout(), watch)
    except (OperationalError, InterfaceError, InternalError) as error:
        connection.close()
        _handle_failure(lease, DatabaseFailed(str(error)), watch)
    except Exception as error:  # whatever it was: the document must end, and its owner must know
        logger.exception("ingest_broke", document_id=str(lease.job_id))
        _handle_failure(lease, _to_failure(error), watch)
    else:
        _report_attempt(lease, watch)


def _postpone_document(lease: Lease[Document], reason: Exception, watch: Stopwatch) -> None:
    """Queue the document again for a reason that is no failure, and notify its owner."""
    if isinstance(reason, TurnPassedError):
        queue.pass_turn(lease, sum(watch.seconds().values()))
    elif isinstance(reason, RecognitionNeededError):
        queue.release_document(lease, Document.Stage.PICTURED)
    else:
        queue.release_document(lease, Document.Stage.QUEUED)
    _notify_owner(lease)
    logger.info("ingest_waits", document_id=str(lease.job_id), reason=type(reason).__name__)


def _to_failure(error: Exception) -> NuraError:
    """The error to report for an unexpected exception: the disk, or an internal error."""
    if isinstance(error, OSError) and error.errno in files.WRITE_ERRORS:
        return files.to_storage_error(error)
    return Internal()


@dataclass(frozen=True, slots=True)
class _IngestAttempt:
    """What the steps of one attempt at a document share; `version` is the one that is read."""

    lease: Lease[Document]
    document: Document
    pending_version: DocumentVersion | None
    progress: IngestProgress
    recognition: _Recognition
    gallery: Gallery
    draft: index.IndexDraft
    chunks: ChunkSpool
    pictures: PictureRules

    @property
    def version(self) -> AnyVersion:
        return self.pending_version or self.document


def _process_document(held_lease: HeldLease[Document], watch: Stopwatch, *, in_pause: bool) -> None:
    """Process the document, without its pictures if they crash the reader."""
    document = Document.objects.filter(pk=held_lease.lease.job_id).first()
    if document is None:
        raise LeaseLostError
    pending_version = versions.get_pending_version(document.pk)
    recognition = _Recognition(
        held_lease.lease, IngestProgress(held_lease, watch), in_pause=in_pause
    )
    process_file = partial(_process_file, held_lease, document, pending_version, recognition)
    try:
        process_file(settings.PICTURES)
    except CRASHES as error:
        version = pending_version or document
        if not settings.PICTURES.max_pictures or version.content_type not in FORMATS_WITH_PICTURES:
            raise
        logger.warning("ingest_without_pictures", document_id=str(document.pk), code=error.code)
        try:
            process_file(NO_PICTURES)
        except NoText:  # its pictures may have held some: this is not why it failed
            raise error from None


def _process_file(
    held_lease: HeldLease[Document],
    document: Document,
    pending_version: DocumentVersion | None,
    recognition: _Recognition,
    pictures: PictureRules,
) -> None:
    progress = recognition.progress
    with (
        Gallery(
            document, recognition.use_pause, progress.watch, recognition.require_turn_for_picture
        ) as gallery,
        index.IndexDraft(document) as draft,
        ChunkSpool() as chunks,
    ):
        job = _IngestAttempt(
            held_lease.lease,
            document,
            pending_version,
            progress,
            recognition,
            gallery,
            draft,
            chunks,
            pictures,
        )
        findings = _read_file(job)
        while not _embed_and_store(job, findings):
            logger.info("ingest_embeds_again", document_id=str(document.pk))


def _read_file(job: _IngestAttempt) -> index.IngestFindings:
    """Read the file in a child process; pages and analysed chunks are spooled to disk."""
    version, progress = job.version, job.progress
    progress.enter(Document.Stage.PARSING)
    recognised_pages = index.load_recognised_pages(job.document.pk, version.sha256)
    with files.open_local_path(version) as path:
        reading = read_document(
            path,
            version.content_type,
            version.name,
            settings.READING_LIMITS,
            pictures=job.pictures,
            pdf_reader=settings.PDF_READER,
            on_wait=job.recognition.use_pause,
            on_recognition=job.recognition.require_turn_for_page,
            on_recognised=partial(job.recognition.keep_page, version.sha256),
            recognised=recognised_pages.encoded,
        )
        with reading, ChunkAnalysis(job.chunks.add) as analysis:
            _split_pages(job, reading, recognised_pages, analysis)
            analysis.finish()
    warnings = [*reading.warnings, *job.gallery.warnings]
    if job.pictures != settings.PICTURES:
        warnings.append(PICTURES_SKIPPED)
    return index.IngestFindings(
        metadata.clean_metadata(reading.metadata), warnings, progress.watch.seconds
    )


def _split_pages(
    job: _IngestAttempt,
    reading: DocumentReading,
    recognised_pages: index.RecognisedPages,
    analysis: ChunkAnalysis,
) -> None:
    """Split the pages as they come; their chunks are analysed in the background.

    Pages that were recognised in earlier turns count as done from the beginning.
    """
    rag, watch = settings.RAG, job.progress.watch
    splitter = chunking.Splitter(size=rag.chunk_size, overlap=rag.chunk_overlap)
    for page_count, page in enumerate(job.gallery.pages(reading), 1):
        watch.start_stage(Document.Stage.CHUNKING.value)
        if page_count == 1 and reading.page_total:
            quotas.check_page_quota(job.document.owner_id, job.document.pk, reading.page_total)
        job.draft.add_page(page, splitter.start)
        analysis.add(splitter.add(page))
        watch.start_stage(Document.Stage.PARSING.value)
        total = reading.page_total or page_count + UNKNOWN_PAGES
        pages_read = max(page_count, recognised_pages.last_page)
        job.progress.note_recognition((recognised_pages.count + job.recognition.pages) / pages_read)
        job.progress.move(pages_read, total, pages_done=pages_read - recognised_pages.last_page)
        if page_count < total:
            job.recognition.yield_turn()


def _embed_and_store(job: _IngestAttempt, findings: index.IngestFindings) -> bool:
    """Embed with the model in use and store. False if another model took over meanwhile."""
    job.progress.enter(Document.Stage.EMBEDDING)
    space, config = spaces.get_space_for_writing()
    title = metadata.to_title_lines(
        job.version.name, metadata.merge_metadata(findings.metadata, job.document.stated)
    )

    def note_embedded(done: int, total: int) -> None:
        job.progress.move(done, total)
        job.recognition.yield_to_texts()

    embed_chunks = get_engine(config).add_vectors
    job.draft.index(embed_chunks(job.chunks, title, note_embedded, job.chunks.count), space)
    job.progress.enter(Document.Stage.INDEXING)
    try:
        index.replace_index(
            job.lease, job.draft, findings, space, partial(_write_related_rows, job)
        )
    except spaces.SpaceChangedError:
        return False
    return True


def _write_related_rows(job: _IngestAttempt) -> None:
    """Write the rows that belong into the transaction of the new index."""
    quotas.check_page_quota(job.document.owner_id, job.document.pk, job.draft.page_count or 1)
    if job.pending_version:
        versions.promote_version(job.document.pk, job.pending_version)
    job.gallery.write()


def _handle_failure(lease: Lease[Document], error: NuraError, watch: Stopwatch) -> None:
    """Retry if that may help, otherwise fail with the reason. Raises `LeaseLostError`."""
    max_attempts = Document.MAX_ATTEMPTS if isinstance(error, OUTAGES) else queue.MAX_FILE_ATTEMPTS
    is_retried = error.retryable and queue.retry_later(lease, max_attempts)
    if not is_retried and not give_up_document(lease.rows(), error.code, error.params):
        raise LeaseLostError
    _report_attempt(lease, watch, code=error.code)


def _notify_owner(lease: Lease[Document]) -> Document | None:
    """Send the document's state to its owner's pages. None if it is gone."""
    document = Document.objects.filter(pk=lease.job_id).first()
    if document:
        notices.notify_document_changed(document)
    return document


def _report_attempt(lease: Lease[Document], watch: Stopwatch, code: str = "") -> None:
    """Notify the owner and log the attempt, without names or text.

    `outcome` PROCESSING: another attempt follows.
    """
    document = _notify_owner(lease)
    if document is None:
        return
    facts = {
        "document_id": str(document.pk),
        "owner_id": document.owner_id,
        "bytes": document.size,
        "pages": document.page_count,
        "chunks": document.chunk_count,
        "attempt": document.attempts,
        "seconds": watch.seconds(),
        "outcome": document.status,
    }
    if code:
        logger.warning("ingest_failed", code=code, **facts)
    else:
        logger.info("ingest_completed", **facts)


def give_up_document(rows: QuerySet[Document], code: str, parameters: Mapping[str, object]) -> bool:
    """Fail with an error that people will read; a document with an index keeps it.

    `rows` holds the document as long as the caller may change it, like `Lease.rows`. False if that
    is over.
    """
    return versions.refuse_version(rows, code, parameters) or _fail_document(rows, code, parameters)


@transaction.atomic
def _fail_document(rows: QuerySet[Document], code: str, parameters: Mapping[str, object]) -> bool:
    document = rows.select_for_update().first()
    if document is None:
        return False
    if document.indexed:
        changes = queue.to_ended_values(Document.Status.COMPLETED, code, parameters) | {
            "progress": 1.0
        }
        other_warnings = [warning for warning in document.warnings if warning != REPROCESS_FAILED]
        changes["warnings"] = [*other_warnings, REPROCESS_FAILED]
    else:
        changes = queue.to_ended_values(Document.Status.FAILED, code, parameters)
    Document.objects.filter(pk=document.pk).update(**changes)
    return True


def announce_next_ingest() -> None:
    """Send a message for the next document if none is left and documents still wait."""
    if queue.count_waiting_messages() == 0:
        waiting = select_waiting_jobs(Document).filter(lease_until=None).order_by("enqueued_at")
        for document_id in waiting.values_list("pk", flat=True)[:1]:
            queue.enqueue_ingest(document_id)


def reap_ingests() -> None:
    """Hand on lost ingests, fail those lost too often, and announce waiting ones again."""
    document_ids = reap_lost_jobs(
        Document,
        announce=queue.enqueue_ingest,
        give_up=_give_up_lost,
        resolve=_release_lost,
        limit=queue.MAX_MESSAGES,
    )
    room = max(0, queue.MAX_MESSAGES - queue.count_waiting_messages())
    announce_unclaimed_jobs(Document, announce=queue.enqueue_ingest, patience=PATIENCE, limit=room)
    for document in Document.objects.filter(pk__in=document_ids):
        notices.notify_document_changed(document)


def _release_lost(lease: Lease[Document]) -> bool:
    """Queue the document again. True if it has used up its attempts and was failed instead."""
    retryable = lease.rows().filter(attempts__lt=Document.MAX_ATTEMPTS)
    if retryable.update(**queue.to_waiting_values()):
        return False
    _give_up_lost(lease)
    return True


def _give_up_lost(lease: Lease[Document]) -> None:
    give_up_document(lease.rows(), WorkerLost.code, {})
    logger.warning("ingest_given_up", document_id=str(lease.job_id), code=WorkerLost.code)
