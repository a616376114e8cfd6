"""Errors of documents, and the table that explains every error code to people.

An error is raised with a code and parameters (`rag.errors.NuraError`) and explained once, where it
leaves the system: in a response, a socket frame, a page. The table has the HTTP status of each code
and its sentence with a next step. Each app adds its own codes (`add_explanations`); those of files,
documents and search are here, because parsers and engine know neither HTTP nor gettext.
"""

from collections.abc import Mapping
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from rag.errors import NuraError

Explanation = tuple[int, "str | Promise"]
"""The HTTP status of a code, and its sentence with placeholders (`%(limit)s`)."""


class DocumentBusy(NuraError):
    """The document is still being processed."""

    code = "document_busy"


class DocumentNotProcessing(NuraError):
    """The document is not being processed, so there is nothing to stop."""

    code = "document_not_processing"


class VersionNotFound(NuraError):
    """The document never had that version, or it was refused and its file is gone."""

    code = "version_not_found"


class QuotaDocuments(NuraError):
    """The user has reached the limit of documents."""

    code = "quota_documents"


class QuotaBytes(NuraError):
    """The user's files, old versions included, would exceed the limit."""

    code = "quota_bytes"


class QuotaLibrary(NuraError):
    """The library would exceed its limit of `kind`: "documents" or "bytes"."""

    code = "quota_library"


class QuotaPages(NuraError):
    """The user's documents would exceed the limit of pages."""

    code = "quota_pages"


class FileTooLarge(NuraError):
    """The file is larger than an upload may be."""

    code = "file_too_large"


class InvalidMetadata(NuraError):
    """The metadata is not a JSON object, or too large."""

    code = "invalid_metadata"


class StorageFull(NuraError):
    """There is no space left for the file."""

    code = "storage_full"


class StorageFailed(NuraError):
    """The file could not be written or read."""

    code = "storage_failed"
    retryable = True


class PictureNotFound(NuraError):
    """The document has no such picture, or it was not kept."""

    code = "picture_not_found"


class PicturesFailed(NuraError):
    """The document consists of pictures, and the vision model failed to read them."""

    code = "pictures_failed"
    retryable = True


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
    """A bug in Nura; details are in the log."""


class PageNotFound(NuraError):
    """The document has no such page."""

    code = "page_not_found"


class NotRenderable(NuraError):
    """Only PDF has pages that can be drawn."""

    code = "not_renderable"


class LibraryNotFound(NuraError):
    """There is no such library, or the user may not read it, or not add documents to it."""

    code = "library_not_found"


class NoSuchMember(NuraError):
    """There is no account or group with that name."""

    code = "no_such_member"


class MemberExists(NuraError):
    """The account or group is a member already."""

    code = "member_exists"


class LastManager(NuraError):
    """Nobody would be left to manage the library."""

    code = "last_manager"


class SourceBusy(NuraError):
    """A run of the source is under way."""

    code = "source_busy"


class SourceEmpty(NuraError):
    """The source lists nothing, though documents of it exist."""

    code = "source_empty"


class SourceOwnerLost(NuraError):
    """Whoever set up the source may no longer do so."""

    code = "source_owner_lost"


class SourceForAdministrators(NuraError):
    """Only administrators may set up a source of this kind."""

    code = "source_for_administrators"


class ManifestInvalid(NuraError):
    """A program's list is malformed, or has duplicates."""

    code = "manifest_invalid"


class FileNotWanted(NuraError):
    """The file was not requested, or differs from the one in the list."""

    code = "file_not_wanted"


class DocumentFromSource(NuraError):
    """The document belongs to a source and can only be changed there."""

    code = "document_from_source"


_EXPLANATIONS: dict[str, Explanation] = {}
_VARIANTS = ("lock", "kind", "phase", "reason")
"""Parameters whose value may select a more specific sentence: `encrypted.password`."""


def add_explanations(table: Mapping[str, Explanation]) -> None:
    """Add sentences for codes. Raises `ValueError` if a code has one already."""
    if duplicates := table.keys() & _EXPLANATIONS.keys():
        raise ValueError(f"explained twice: {', '.join(sorted(duplicates))}")
    _EXPLANATIONS.update(table)


def is_explained(code: str) -> bool:
    """Whether the code has a sentence."""
    return code in _EXPLANATIONS


def explain_code(code: str, params: Mapping[str, Any] | None = None) -> str:
    """The sentence of an error in the reader's language; a general one if the code is unknown.

    A missing parameter is shown as "?".
    """
    values = params or {}
    variants = _list_variants(code, values)
    key = next((name for name in variants if name in _EXPLANATIONS), NuraError.code)
    return str(_EXPLANATIONS[key][1]) % _SafeParameters(values)


def find_status(code: str) -> int:
    """The HTTP status of a code; 500 for an unknown one."""
    return _EXPLANATIONS.get(code, _EXPLANATIONS[NuraError.code])[0]


def _list_variants(code: str, values: Mapping[str, Any]) -> list[str]:
    """The keys under which a code may have a sentence, the most specific first."""
    return [*(f"{code}.{values[name]}" for name in _VARIANTS if values.get(name)), code]


class _SafeParameters(dict[str, Any]):
    """Parameters for a sentence; missing ones become "?"."""

    def __missing__(self, key: str) -> str:
        return "?"


def _to_explanations(
    status: int, sentences: Mapping[str, "str | Promise"]
) -> dict[str, Explanation]:
    """Codes that share an HTTP status."""
    return {code: (status, sentence) for code, sentence in sentences.items()}


FILES: Mapping[str, Explanation] = {
    **_to_explanations(
        422,
        {
            "empty_file": _("The file is empty. Check it on your computer and upload it again."),
            "encrypted": _("The file is locked. Remove the lock and upload it again."),
            "encrypted.password": _(
                "The file is protected by a password. Save a copy without the password and upload that."
            ),
            "encrypted.distribution": _(
                "This is a Hangul distribution document, whose text is locked. Ask its author for an ordinary copy and upload that."
            ),
            "encrypted.drm": _(
                "The file is protected by DRM. Save a copy without the protection and upload that."
            ),
            "encrypted.certificate": _(
                "The file is encrypted for the holder of a certificate. Save a copy without encryption and upload that."
            ),
            "unsupported_version": _(
                "This version of the format cannot be read (%(found)s). Save the file in a current version and upload that."
            ),
            "corrupt": _(
                "The file is damaged and cannot be read. Open it in its original application, save it again and upload the new file."
            ),
            "archive_bomb": _(
                "The file unpacks to far more than allowed. Save it again without embedded content and upload that."
            ),
            "xml_unsafe": _(
                "The file refers to external content, which is not allowed. Save it again in its original application and upload that."
            ),
            "too_large": _(
                "The file contains more text than allowed. Split it and upload the parts one by one."
            ),
            "too_many_pages": _(
                "The file has more pages than allowed (%(limit)s). Split it and upload the parts one by one."
            ),
            "no_text": _(
                "There is no readable text in the file. Upload a version that contains text."
            ),
            "no_text.scan": _(
                "The pages are scans, and text recognition (OCR) is not installed on this server. Run it on the file and upload the result, or tell your administrator."
            ),
            "no_text.unrecognised": _(
                "Text recognition (OCR) found no text on the scanned pages. Scan them again with more contrast and upload that."
            ),
            "no_text.unreadable": _(
                "The text of this file cannot be decoded because of its fonts. Export it again with embedded fonts and upload that."
            ),
            "encoding": _(
                "The text encoding cannot be determined. Save the file as UTF-8 and upload it again."
            ),
            "reader_missing": _(
                "%(name)s, needed to read this kind of file, is not installed. Tell your administrator."
            ),
            "memory": _(
                "Reading the file took more memory than allowed. Split or simplify it and upload it again."
            ),
            "timeout": _(
                "Reading the file took too long. Split or simplify it and upload it again."
            ),
            "parser_crashed": _(
                "The file crashes its reader. Save it again in its original application or in another format, and upload that."
            ),
            "parse_failed": _(
                "The file could not be read. Save it again in its original application and upload that."
            ),
        },
    ),
    **_to_explanations(
        415,
        {
            "unsupported_type": _(
                "This kind of file cannot be read. Upload a PDF, DOCX, HWP, HWPX, HTML, Markdown or text file."
            ),
            "type_mismatch": _(
                "The file's content does not match its name. Save it in the right format and upload that."
            ),
        },
    ),
    **_to_explanations(
        503,
        {
            "not_confined": _(
                "This server cannot confine the programs that read files, so it reads none. Ask your administrator."
            ),
        },
    ),
    **_to_explanations(
        413,
        {
            "file_too_large": _(
                "The file is larger than %(limit_mb)s MB. Make it smaller or split it, and upload it again."
            ),
        },
    ),
}
DOCUMENTS: Mapping[str, Explanation] = {
    **_to_explanations(
        409,
        {
            "document_busy": _(
                "The document is being processed. Wait until it is finished, or cancel it."
            ),
            "document_not_processing": _(
                "The document is not being processed, so there was nothing to stop. Reload the list."
            ),
            "member_exists": _(
                "That account or group is already a member. Change its role instead."
            ),
            "last_manager": _(
                "A library needs at least one manager. Make somebody else a manager first."
            ),
        },
    ),
    **_to_explanations(
        400,
        {
            "no_such_member": _("There is no account or group with that name or address: %(name)s"),
            "invalid_metadata": _(
                "The metadata must be a JSON object of at most %(limit_kb)s kB. Correct it and send it again."
            ),
        },
    ),
    **_to_explanations(
        403,
        {
            "quota_documents": _(
                "You have %(used)s of %(limit)s documents allowed. Delete some you no longer need and upload this one again."
            ),
            "quota_bytes": _(
                "Your files use %(used_mb)s of %(limit_mb)s MB, earlier versions included; this one needs %(need_mb)s MB. Delete some you no longer need and upload this one again."
            ),
            "quota_library": _(
                "The library holds %(used)s of %(limit)s documents allowed. Delete some there, or ask your administrator for more."
            ),
            "quota_library.bytes": _(
                "The files of the library use %(used)s of %(limit)s MB, earlier versions included. Delete some there, or ask your administrator for more."
            ),
            "quota_pages": _(
                "The document has %(pages)s pages, and you already use %(used)s of %(limit)s. Delete some documents you no longer need and process this one again."
            ),
        },
    ),
    **_to_explanations(
        507,
        {
            "storage_full": _("There is no space left for files. Tell your administrator."),
        },
    ),
    **_to_explanations(
        503,
        {
            "storage_failed": _(
                "The file could not be stored or read back. Try again; if it keeps happening, tell your administrator."
            ),
            "embedder_failed": _(
                "The embedding model did not respond. Process the document again later; if it keeps happening, tell your administrator."
            ),
            "pictures_failed": _(
                "The pages are images, and the vision model did not respond. Process the document again later; if it keeps happening, tell your administrator."
            ),
            "retrieval_failed": _("The search did not respond. Try again in a moment."),
            "engine_unavailable": _(
                "Part of the search engine is not installed. Tell your administrator."
            ),
        },
    ),
    **_to_explanations(
        404,
        {
            "version_not_found": _(
                "The document has no such version. Choose another one from its list."
            ),
            "library_not_found": _(
                "There is no such library, or you may not do this in it. Choose another one."
            ),
            "page_not_found": _("The document has no such page. Choose another one."),
            "picture_not_found": _(
                "The document has no such picture, or it was not kept. Choose another one."
            ),
        },
    ),
    **_to_explanations(
        415,
        {
            "not_renderable": _(
                "Only pages of PDF files can be shown as images. Download the file to see it."
            ),
        },
    ),
    **_to_explanations(
        500,
        {
            "worker_lost": _(
                "Processing failed more than once. Process the document again; if it keeps failing, save the file again and upload that."
            ),
            "cancelled": _(
                "The processing was cancelled. Process the document again when you need it."
            ),
            "database_failed": _(
                "The database could not be reached while the document was being processed. Process it again."
            ),
            "internal": _(
                "Something went wrong on our side. Try again; if it keeps happening, tell your administrator."
            ),
        },
    ),
}
SOURCES: Mapping[str, Explanation] = {
    **_to_explanations(
        400,
        {
            "source_setting_invalid": _("A setting of the source cannot be used: %(name)s"),
            "source_setting_invalid.required": _("Fill this in: %(name)s"),
            "source_setting_invalid.folder": _(
                "Enter the full path of a folder, such as /srv/documents."
            ),
            "source_setting_invalid.outside": _(
                "This folder is not below one that this installation allows. Ask whoever runs the server."
            ),
            "source_setting_invalid.address": _(
                "That is not a web address. Enter one such as https://example.com/page."
            ),
            "source_setting_invalid.range": _(
                "%(name)s must be a number from %(minimum)s to %(maximum)s."
            ),
            "source_setting_invalid.unreadable": _(
                "The stored key can no longer be read. Open the source and enter the key again."
            ),
            "address_invalid": _("That is not a web address: %(address)s"),
            "manifest_invalid": _(
                'The list must be JSON of the form {"files": [{"path": …, "sha256": …}]}, each path once, %(limit)s at most.'
            ),
        },
    ),
    **_to_explanations(
        403,
        {
            "address_forbidden": _(
                "%(host)s is inside the internal network, where nothing is fetched. Your administrator can allow it by name."
            ),
            "robots_refused": _(
                "The website does not allow programs to read this page (robots.txt): %(address)s"
            ),
            "source_for_administrators": _(
                "Only administrators can set up this kind of source. Ask yours."
            ),
        },
    ),
    **_to_explanations(
        409,
        {
            "source_busy": _(
                "The source is being compared right now. Wait until that is finished."
            ),
            "source_empty": _(
                "Nothing was found there any more, so nothing was deleted. Check the source; if it really is empty, remove it here."
            ),
            "source_owner_lost": _(
                "%(owner)s, who set up this source, is no longer allowed to. Someone who is has to save it again."
            ),
            "file_not_wanted": _(
                "This file is not on the list of the source, or differs from it. Send the list again."
            ),
            "document_from_source": _(
                "This document comes from a source and follows it. Change it there."
            ),
            "entry_gone": _(
                "It was there a moment ago but is gone now. The next run will sort it out."
            ),
        },
    ),
    **_to_explanations(
        502,
        {
            "source_unreachable": _(
                "The source could not be reached, so nothing was changed. It is tried again at the next run."
            ),
            "source_unreachable.folder": _(
                "The folder cannot be opened; perhaps it is not mounted. Nothing was changed."
            ),
            "source_unreachable.status": _(
                "%(address)s answered with error %(status)s. Nothing was changed; check the address."
            ),
            "source_unreachable.web": _(
                "%(address)s could not be reached. Nothing was changed; check the address."
            ),
            "source_unreachable.permission": _(
                "The storage refused the key. Check the access key and what it may read."
            ),
            "source_unreachable.bucket": _("There is no bucket with this name. Check the name."),
            "source_unreachable.endless": _(
                "The server's list does not end. Nothing was changed; check the address."
            ),
            "source_unreachable.sent": _("The program has not sent a list yet."),
            "address_unreachable": _("%(host)s could not be reached."),
            "answer_too_large": _("%(host)s sent more than %(limit_mb)s MB."),
            "entry_unreadable": _("It could not be read. It is tried again at the next run."),
            "entry_unreadable.permission": _(
                "Nura may not read it. Give the account that Nura runs as permission to."
            ),
            "entry_unreadable.status": _("The website answered with error %(status)s."),
            "entry_unreadable.limit": _(
                "The limit of %(limit)s pages was reached; the rest was left as it is. Raise the limit or narrow the addresses."
            ),
            "entry_unreadable.sent": _("The program has not sent the file yet."),
            "entry_unreadable.page": _("The page is too large or too complex to be read."),
        },
    ),
}
add_explanations(FILES)
add_explanations(SOURCES)
add_explanations(DOCUMENTS)

WARNINGS = {
    "part_skipped": _("Part of the file could not be read and was left out."),
    "page_unreadable": _("One or more pages could not be read and were left out."),
    "no_unicode_map": _("Some pages use fonts that cannot be decoded; they were left out."),
    "reprocess_failed": _(
        "The document could not be processed again, so its previous index stays in use. Check the reason and process it again."
    ),
    "version_refused": _(
        "The new version could not be used, so the previous one stays in use. Check the reason in the version list and upload a corrected file."
    ),
    "pictures_not_described": _(
        "Some pictures could not be read because the vision model did not respond. Process the document again later."
    ),
    "pictures_too_many": _(
        "The document has more pictures than are read per document; the rest were left out. Split the document if they matter."
    ),
    "pictures_uncounted": _(
        "The document has so many pictures that the last ones were not examined. Split the document if they matter."
    ),
    "pictures_skipped": _(
        "The pictures were left out because the file could not be read with them. If they matter, save the file again in its original application and upload that."
    ),
    "scanned_pages": _(
        "Some pages are scans and were left out because text recognition (OCR) is not installed on this server. Run it on the file and upload the result, or tell your administrator."
    ),
    "ocr_skipped": _(
        "Text recognition (OCR) read only the first scanned pages; the others were left out. Split the file and upload its parts one by one."
    ),
    "tables_skipped": _(
        "Some pages have too many lines for tables to be recognised; they were read as plain text."
    ),
    "characters_replaced": _("Some characters could not be read and were replaced."),
    "characters_replaced.counted": _(
        "Characters that could not be read and were replaced: %(count)s."
    ),
}
"""Warnings about a searchable document; shown with it, never as an error response."""


def explain_warning(code: str, params: Mapping[str, Any] | None = None) -> str:
    """The sentence of a warning, in the reader's language."""
    values = params or {}
    for name in _list_variants(code, values):
        if name in WARNINGS:
            return str(WARNINGS[name]) % _SafeParameters(values)
    return explain_code(code, params)
