"""What can go wrong with documents besides what their parsers say."""

from rag.errors import NuraError


class DocumentBusy(NuraError):
    """The document is being processed; it must end first."""

    code = "document_busy"
    status = 409


class DocumentNotProcessing(NuraError):
    """There is nothing to stop: the document has ended already."""

    code = "document_not_processing"
    status = 409


class VersionNotFound(NuraError):
    """The document never had that version, or it was refused and its file is gone."""

    code = "version_not_found"
    status = 404


class QuotaDocuments(NuraError):
    """The user keeps as many documents as he may."""

    code = "quota_documents"
    status = 403


class QuotaBytes(NuraError):
    """The user's files, old versions included, would take more room than they may."""

    code = "quota_bytes"
    status = 403


class QuotaPages(NuraError):
    """The user's documents would have more pages than they may."""

    code = "quota_pages"
    status = 403


class FileTooLarge(NuraError):
    """The file is larger than an upload may be."""

    code = "file_too_large"
    status = 413


class InvalidMetadata(NuraError):
    """The metadata is no JSON object, or too large."""

    code = "invalid_metadata"
    status = 400


class StorageFull(NuraError):
    """There is no room for the file."""

    code = "storage_full"
    status = 507


class StorageFailed(NuraError):
    """The file could not be written or read."""

    code = "storage_failed"
    retryable = True
    status = 503


class PictureNotFound(NuraError):
    """The document has no such picture, or did not keep it."""

    code = "picture_not_found"
    status = 404


class PicturesFailed(NuraError):
    """All that the document says stands in pictures, and the vision model did not read them."""

    code = "pictures_failed"
    retryable = True
    status = 503


class IngestLost(NuraError):
    """The document was deleted, cancelled or claimed by another worker: stop quietly."""

    code = "ingest_lost"


class WorkerLost(NuraError):
    """The worker died on this document, more than once."""

    code = "worker_lost"


class Cancelled(NuraError):
    """The owner stopped the processing."""

    code = "cancelled"


class IngestTimeout(NuraError):
    """The ingest as a whole took longer than its limit."""

    code = "timeout"


class DatabaseFailed(NuraError):
    """The database went away during an ingest."""

    code = "database_failed"
    retryable = True


class Internal(NuraError):
    """A defect of ours; the log has it."""


class PageNotFound(NuraError):
    """The document has no such page."""

    code = "page_not_found"
    status = 404


class NotRenderable(NuraError):
    """Only PDF has pages that can be drawn."""

    code = "not_renderable"
    status = 415
