"""One document from file to index. Running it twice gives the same rows; every end has a reason.

An ingest that lost its worker is handed on by `reap_ingests`; so is one that no worker was told of.

Recognition, by OCR or by a vision model, takes seconds a page, and happens elsewhere. A worker that
waits for it reads documents that need none (`_Recognition`), so that scans hold no text up. After a
while it passes its turn on to another owner's document that needs recognition, too; pages that were
recognised are kept for the next turn (`documents.recognised`).
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
    recognised,
    spaces,
    versions,
)
from documents.connected.choice import read_config
from documents.errors import DatabaseFailed, IngestTimeout, Internal, WorkerLost
from documents.gallery import Gallery
from documents.index import ChunkSpool
from documents.models import Document, DocumentVersion
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
"""What no file is to blame for: it passes."""
DEATHS = (ParserCrashed, OutOfMemory, TimedOut)
"""How a file, or a picture in it, ends its reader."""
NO_PICTURES = PictureRules(most=0)
PICTURED = frozenset((formats.PDF, formats.DOCX, formats.HWP, formats.HWPX))
"""Formats whose readers extract pictures."""
PICTURES_SKIPPED = "pictures_skipped"
UNKNOWN_PAGES = 100
"""Progress within formats that do not say how many pages they have creeps towards that many."""
REPROCESS_FAILED = "reprocess_failed"
MEANWHILE_SECONDS = 5.0
"""How long other documents are read before the worker looks for what was recognised meanwhile."""
LOOK_SECONDS = 0.5
"""Between two looks for other documents, where pages come quickly."""

TURN_SECONDS = 5.0
"""How long pages are recognised at the least before the turn is passed on."""
PAUSE_SECONDS = 1.0
"""After so long without a page, those at work have only just begun, and little of them is lost."""
MAX_SHARE_AGAIN = 0.25
"""How much of a turn may go into what was read before, of which only recognised pages are kept."""

logger = structlog.get_logger()


class ChunkAnalysis:
    """Takes chunks as they come and gives them to `keep` in order, in the thread of its user.

    Used within a `with`; `finish` when all have come.
    """

    def __init__(self, keep: Callable[[IndexedChunk], None]) -> None:
        self._keep = keep
        self._analyser = ChunkAnalyser()
        self._batch: list[TextChunk] = []
        self._working: deque[Future[list[IndexedChunk]]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="analysis")

    def add(self, chunks: Sequence[TextChunk]) -> None:
        """The next chunks."""
        self._batch += chunks
        if len(self._batch) >= MAX_CHUNKS_A_BATCH:
            self._submit_batch()

    def finish(self) -> None:
        """Wait for all that is not analysed yet."""
        self._submit_batch()
        while self._working:
            self._keep_results()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)

    def _submit_batch(self) -> None:
        batch, self._batch = self._batch, []
        self._working.append(
            self._thread.submit(lambda: list(self._analyser.analyse_chunks(batch)))
        )
        while len(self._working) > MAX_BATCHES_AHEAD or (self._working and self._working[0].done()):
            self._keep_results()

    def _keep_results(self) -> None:
        for analysed in self._working.popleft().result():
            self._keep(analysed)


def ingest_next_document() -> bool:
    """Process the next document in turn; False if none is waiting."""
    _load_analyser()
    lease = queue.claim_next_document()
    if lease is None:
        return False
    _ingest(lease, meanwhile=False)
    return True


@cache
def _load_analyser() -> None:
    """Load the analyser before a document is claimed.

    It stops all threads for seconds, on a busy machine for longer than a lease lasts unrenewed.
    """
    get_engine(read_config())
    tokenize.count_terms("준비")


class RecognitionNeededError(Exception):
    """A document that is read while another one is recognised needs that, too: put it off."""


class TurnPassedError(Exception):
    """It is the turn of another owner's document, which needs recognition, too."""


class _Recognition:
    """What becomes of the time in which pages or pictures of a document are recognised.

    Documents that need no recognition are read in it, one after another. One that turns out to need
    it (`meanwhile`) is put off, before any page or picture of it is recognised. A document whose
    owner has had more than others passes its turn on, unless the vision model was asked: its
    descriptions are not kept. It does so `PAUSE_SECONDS` after a page: several are begun together,
    and those that are not done are lost.
    """

    def __init__(
        self, lease: Lease[Document], progress: IngestProgress, *, meanwhile: bool
    ) -> None:
        self.progress = progress
        self._lease = lease
        self._meanwhile = meanwhile
        self._is_awaited = False
        self._is_kept = True
        self.pages = 0
        """That were recognised in this turn."""
        self._page_came: float | None = None
        """The last, if the turn was not passed on since."""
        self._began = self._looked = time.monotonic()
        self._turn = 0.0
        self._turn_ends = 0.0

    def begin_page(self) -> None:
        """A page is to be recognised. Raises `RecognitionNeededError`."""
        self._require_turn()
        if not self._turn_ends:
            now = time.monotonic()
            self._turn = max(TURN_SECONDS, (now - self._began) / MAX_SHARE_AGAIN)
            self._turn_ends = now + self._turn

    def begin_picture(self) -> None:
        """A picture is to be described. Raises `RecognitionNeededError`."""
        self._require_turn()
        self._is_kept = False

    def _require_turn(self) -> None:
        if self._meanwhile:
            raise RecognitionNeededError
        self._is_awaited = True

    def keep_page(self, sha256: str, index: int, found: bytes) -> None:
        """A page of the file with this hash was recognised. Raises `LeaseLostError`."""
        self.progress.check()
        recognised.keep_page(self._lease.job_id, sha256, index, found)
        self.pages += 1
        self._page_came = time.monotonic()

    def wait(self) -> None:
        """Nothing came lately. Raises `LeaseLostError`, `TurnPassedError`."""
        self.progress.check()
        if self._page_came and time.monotonic() - self._page_came >= PAUSE_SECONDS:
            self._page_came = None
            self._pass_turn(self._turn_ends)
        self._ingest_others(MEANWHILE_SECONDS)

    def take_turns(self) -> None:
        """A page came: another document is next, if one waits.

        Raises `LeaseLostError`, `TurnPassedError`.
        """
        if time.monotonic() - self._looked >= LOOK_SECONDS:
            self._ingest_others(0.0)
            if self._page_came:  # they come too quickly for a pause
                self._pass_turn(self._turn_ends + self._turn)

    def _pass_turn(self, ends: float) -> None:
        """Raises `TurnPassedError` if the turn has ended and somebody waits for it."""
        is_over = self._is_kept and time.monotonic() >= ends
        if is_over and queue.is_turn_of_another(self._lease):
            self.progress.report()  # its page goes on showing how far it is
            raise TurnPassedError

    def _ingest_others(self, seconds: float) -> None:
        """Documents that need no recognition, as long as some wait; at least one of them."""
        until = time.monotonic() + seconds
        while self._is_awaited and (lease := queue.claim_next_document(queue.QUICK)):
            with self.progress.watch.pause():
                _ingest(lease, meanwhile=True)
            self.progress.check()
            if time.monotonic() >= until:
                break
        self._looked = time.monotonic()


def _ingest(lease: Lease[Document], *, meanwhile: bool) -> None:
    """Work on a document; `meanwhile`, while this worker waits for another one's recognition."""
    try:
        _run_attempt(lease, Stopwatch(), meanwhile=meanwhile)
    except LeaseLostError:
        logger.info("ingest_taken_away", document_id=str(lease.job_id))


def _run_attempt(lease: Lease[Document], watch: Stopwatch, *, meanwhile: bool) -> None:
    """Work, and end the document in any case. Raises `LeaseLostError`."""
    try:
        with HEARTBEAT.hold(lease) as held:
            _process_document(held, watch, meanwhile=meanwhile)
    except (LeavingError, RecognitionNeededError, TurnPassedError) as reason:
        _postpone_document(lease, reason, watch)
    except LeaseLostError:
        raise
    except NuraError as error:
        _handle_failure(lease, error, watch)
    except SoftTimeLimitExceeded:
        if meanwhile:  # it is the other document's time that has run out
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
    """Let the document wait for what is no failure of it, and show that to its owner."""
    if isinstance(reason, TurnPassedError):
        queue.pass_turn(lease, sum(watch.seconds().values()))
    elif isinstance(reason, RecognitionNeededError):
        queue.release_document(lease, Document.Stage.PICTURED)
    else:
        queue.release_document(lease, Document.Stage.QUEUED)
    _notify_owner(lease)
    logger.info("ingest_waits", document_id=str(lease.job_id), reason=type(reason).__name__)


def _to_failure(error: Exception) -> NuraError:
    """What went wrong where a step did not say: the disk, or something nobody foresaw."""
    if isinstance(error, OSError) and error.errno in files.NOT_WRITABLE:
        return files.to_storage_error(error)
    return Internal()


@dataclass(frozen=True, slots=True)
class _IngestAttempt:
    """One attempt at one document: what its steps share. `kept` is whose file is read."""

    lease: Lease[Document]
    document: Document
    version: DocumentVersion | None
    progress: IngestProgress
    recognition: _Recognition
    gallery: Gallery
    draft: index.IndexDraft
    chunks: ChunkSpool
    pictures: PictureRules

    @property
    def kept(self) -> Document | DocumentVersion:
        return self.version or self.document


def _process_document(held: HeldLease[Document], watch: Stopwatch, *, meanwhile: bool) -> None:
    """Process the document; without its pictures where its reader died over the whole file."""
    document = Document.objects.filter(pk=held.lease.job_id).first()
    if document is None:
        raise LeaseLostError
    version = versions.get_pending_version(document.pk)
    recognition = _Recognition(held.lease, IngestProgress(held, watch), meanwhile=meanwhile)
    process = partial(_process_file, held, document, version, recognition)
    try:
        process(settings.PICTURES)
    except DEATHS as death:
        kept = version or document
        if not settings.PICTURES.most or kept.content_type not in PICTURED:
            raise
        logger.warning("ingest_without_pictures", document_id=str(document.pk), code=death.code)
        try:
            process(NO_PICTURES)
        except NoText:  # its pictures may have held some: this is not why it failed
            raise death from None


def _process_file(
    held: HeldLease[Document],
    document: Document,
    version: DocumentVersion | None,
    recognition: _Recognition,
    pictures: PictureRules,
) -> None:
    progress = recognition.progress
    with (
        Gallery(document, recognition.wait, progress.watch, recognition.begin_picture) as gallery,
        index.IndexDraft(document) as draft,
        ChunkSpool() as chunks,
    ):
        job = _IngestAttempt(
            held.lease, document, version, progress, recognition, gallery, draft, chunks, pictures
        )
        found = _read_file(job)
        while not _embed_and_store(job, found):
            logger.info("ingest_embeds_again", document_id=str(document.pk))


def _read_file(job: _IngestAttempt) -> index.IngestFindings:
    """Read the file in a child process; pages and their terms go to disk."""
    kept, progress = job.kept, job.progress
    progress.enter(Document.Stage.PARSING)
    known = recognised.load_pages(job.document.pk, kept.sha256)
    with files.open_local_path(kept) as path:
        reading = read_document(
            path,
            kept.content_type,
            kept.name,
            settings.READING_LIMITS,
            pictures=job.pictures,
            pdf_reader=settings.PDF_READER,
            on_wait=job.recognition.wait,
            on_recognition=job.recognition.begin_page,
            on_recognised=partial(job.recognition.keep_page, kept.sha256),
            recognised=known.encoded,
        )
        with reading, ChunkAnalysis(job.chunks.add) as analysis:
            _split_pages(job, reading, known, analysis)
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
    known: recognised.KeptPages,
    analysis: ChunkAnalysis,
) -> None:
    """Cut the pages as they come; their chunks are analysed meanwhile.

    What is known was read in turns before this one, and is told as done.
    """
    rag, watch = settings.RAG, job.progress.watch
    splitter = chunking.Splitter(size=rag.chunk_size, overlap=rag.chunk_overlap)
    for done, page in enumerate(job.gallery.pages(reading), 1):
        watch.start_stage(Document.Stage.CHUNKING.value)
        if done == 1 and reading.page_total:
            quotas.check_page_quota(job.document.owner_id, job.document.pk, reading.page_total)
        job.draft.add_page(page, splitter.start)
        analysis.add(splitter.add(page))
        watch.start_stage(Document.Stage.PARSING.value)
        total = reading.page_total or done + UNKNOWN_PAGES
        read = max(done, known.reached)
        job.progress.note_recognition((known.count + job.recognition.pages) / read)
        job.progress.move(read, total, pages_done=read - known.reached)
        if done < total:
            job.recognition.take_turns()


def _embed_and_store(job: _IngestAttempt, found: index.IngestFindings) -> bool:
    """Embed with the model in use and store; False when another one took over meanwhile."""
    job.progress.enter(Document.Stage.EMBEDDING)
    space, config = spaces.get_space_for_writing()
    title = metadata.to_title_lines(
        job.kept.name, metadata.merge_metadata(found.metadata, job.document.stated)
    )
    complete = get_engine(config).complete_chunks
    job.draft.index(complete(job.chunks, title, job.progress.move, job.chunks.count), space)
    job.progress.enter(Document.Stage.INDEXING)
    try:
        index.replace_index(job.lease, job.draft, found, space, partial(_write_related_rows, job))
    except spaces.SpaceChangedError:
        return False
    return True


def _write_related_rows(job: _IngestAttempt) -> None:
    """What becomes true together with the new index."""
    quotas.check_page_quota(job.document.owner_id, job.document.pk, job.draft.page_count or 1)
    if job.version:
        versions.promote_version(job.document.pk, job.version)
    job.gallery.write()


def _handle_failure(lease: Lease[Document], error: NuraError, watch: Stopwatch) -> None:
    """Try once more where that may help, else end with the reason. Raises `LeaseLostError`."""
    most = Document.MAX_ATTEMPTS if isinstance(error, OUTAGES) else queue.MAX_FILE_ATTEMPTS
    again = error.retryable and queue.retry_later(lease, most)
    if not again and not give_up_document(lease.rows(), error.code, error.params):
        raise LeaseLostError
    _report_attempt(lease, watch, code=error.code)


def _notify_owner(lease: Lease[Document]) -> Document | None:
    """Show the owner where the document stands; None where it is gone."""
    document = Document.objects.filter(pk=lease.job_id).first()
    if document:
        notices.notify_document_changed(document)
    return document


def _report_attempt(lease: Lease[Document], watch: Stopwatch, code: str = "") -> None:
    """Show the owner where the document stands, and write the one line of this attempt.

    No line holds a name or a text. `outcome` PROCESSING: another attempt follows.
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


def give_up_document(held: QuerySet[Document], code: str, parameters: Mapping[str, object]) -> bool:
    """End badly, with what people will read; a document with an index goes on with that.

    `held` is the document as long as it is the caller's to change, as `Lease.rows` gives it. False:
    it is not.
    """
    return versions.refuse_version(held, code, parameters) or _fail_document(held, code, parameters)


@transaction.atomic
def _fail_document(held: QuerySet[Document], code: str, parameters: Mapping[str, object]) -> bool:
    document = held.select_for_update().first()
    if document is None:
        return False
    if document.indexed:
        changes = queue.to_ended_values(Document.Status.COMPLETED, code, parameters) | {
            "progress": 1.0
        }
        others = [warning for warning in document.warnings if warning != REPROCESS_FAILED]
        changes["warnings"] = [*others, REPROCESS_FAILED]
    else:
        changes = queue.to_ended_values(Document.Status.FAILED, code, parameters)
    Document.objects.filter(pk=document.pk).update(**changes)
    return True


def announce_next_ingest() -> None:
    """Send a message for the next document where all were lost and documents still wait."""
    if queue.count_waiting_messages() == 0:
        waiting = select_waiting_jobs(Document).filter(lease_until=None).order_by("enqueued_at")
        for document_id in waiting.values_list("pk", flat=True)[:1]:
            queue.enqueue_ingest(document_id)


def reap_ingests() -> None:
    """Hand lost ingests on, end those that were lost too often, send waiting ones again."""
    touched = reap_lost_jobs(
        Document,
        announce=queue.enqueue_ingest,
        give_up=_give_up_lost,
        settle=_release_lost,
        limit=queue.MAX_MESSAGES,
    )
    room = max(0, queue.MAX_MESSAGES - queue.count_waiting_messages())
    announce_unclaimed_jobs(Document, announce=queue.enqueue_ingest, patience=PATIENCE, limit=room)
    for document in Document.objects.filter(pk__in=touched):
        notices.notify_document_changed(document)


def _release_lost(lease: Lease[Document]) -> bool:
    """Let the document wait as before its attempt; True where it had all of them and is ended."""
    again = lease.rows().filter(attempts__lt=Document.MAX_ATTEMPTS)
    if again.update(**queue.to_waiting_values()):
        return False
    _give_up_lost(lease)
    return True


def _give_up_lost(lease: Lease[Document]) -> None:
    give_up_document(lease.rows(), WorkerLost.code, {})
    logger.warning("ingest_given_up", document_id=str(lease.job_id), code=WorkerLost.code)
