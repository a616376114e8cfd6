"""Static files of the pages, including those of other releases.

Their names contain a hash of their content: browsers cache them forever, and no page mixes
releases. A page opened before an upgrade may request files of its own release long after, and
during a rolling upgrade any node gets requests for files of both. So each release stores its files
in an archive beside the documents, where every node finds what it lacks.
"""

import hashlib
import tempfile
import threading
import time
import zlib
from collections.abc import Awaitable, Iterator, Mapping
from http import HTTPStatus
from typing import Any
from wsgiref.headers import Headers
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

import structlog
from asgiref.sync import iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.core import signing
from django.core.files import File
from django.core.files.storage import default_storage
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.http.response import HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.storage import CompressedManifestStaticFilesStorage

from nura.middleware import GetResponse

logger = structlog.get_logger()

FOLDER = "static"
"""Folder in the storage with one archive per release, named by its digest."""
KEPT_RELEASES = 10
"""Number of archives kept, of 11 MB each."""
INDEX = "index"
"""The entry of an archive that lists the others: {name: SHA-256}, signed with the secret key, so
that write access to the storage is not enough to run scripts in people's browsers."""
SALT = "nura.static-files"
LISTING_SECONDS = 1.0
"""Minimum time between listings of the archives: anybody may request files that do not exist."""
BROKEN = (
    *(OSError, EOFError, BadZipFile, zlib.error, KeyError, ValueError, RuntimeError),
    signing.BadSignature,
)
"""What opening a missing, incomplete or foreign archive may raise."""

Index = Mapping[str, str]


class HashedStaticFiles(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Also rewrites imports of our script modules, so that an old one never loads a new one."""

    support_js_module_import_aggregation = True

    def post_process(self, *args: Any, **options: Any) -> Iterator[tuple[str, str, bool]]:
        """Hash the collected files' names, and archive them for nodes of other releases."""
        yield from super().post_process(*args, **options)
        if not options.get("dry_run"):
            self.archive()

    def archive(self) -> None:
        """Archive the files of the manifest for all nodes, unless that is done.

        A failing storage does not prevent the start: other nodes then cannot serve these files.
        """
        if not self.hashed_files:
            return
        name = f"{FOLDER}/{self.manifest_hash}.zip"
        try:
            if _is_whole(name):
                return
            with tempfile.TemporaryFile() as file:
                self._write_archive(file)
                default_storage.delete(name)
                default_storage.save(name, File(file))
            _remove_old_archives()
        except OSError:
            logger.warning("static_files_not_archived", archive=name, exc_info=True)

    def _write_archive(self, file: Any) -> None:
        index = {}
        with ZipFile(file, "w", ZIP_DEFLATED, compresslevel=1) as archive:
            for name in sorted(set(self.hashed_files.values())):
                with self.open(name) as source:
                    content = source.read()
                index[name] = hashlib.sha256(content).hexdigest()
                archive.writestr(name, content)
            archive.writestr(INDEX, signing.dumps(index, salt=SALT, compress=True))


def archive_collected_files() -> None:
    """Archive what an earlier release collected, before it is removed."""
    try:
        HashedStaticFiles().archive()
    except ValueError as error:  # its manifest is incomplete, so no page was ever served with it
        logger.warning("static_files_not_archived", reason=str(error))


def _is_whole(name: str) -> bool:
    try:
        _read_index(name)
    except BROKEN:
        return False
    return True


def _read_index(name: str) -> Index:
    with default_storage.open(name) as file, ZipFile(file) as archive:
        return signing.loads(archive.read(INDEX).decode(), salt=SALT)  # type: ignore[no-any-return]


def _list_archives() -> list[str]:
    try:
        names = default_storage.listdir(FOLDER)[1]
    except FileNotFoundError:
        return []
    return [f"{FOLDER}/{name}" for name in names if name.endswith(".zip")]


def _remove_old_archives() -> None:
    newest = sorted(_list_archives(), key=default_storage.get_modified_time, reverse=True)
    for name in newest[KEPT_RELEASES:]:
        default_storage.delete(name)


class Archives:
    """Files of all archived releases; thread-safe.

    Names are only looked up in signed indexes, so none can escape an archive.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # one at a time: visitors may ask, too
        self._indexes: dict[str, Index] = {}
        self._listed_at = float("-inf")

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if no archive has it."""
        with self._lock:
            self._list_new_archives()
            for archive, index in self._indexes.items():
                content = _read_file(archive, name, index[name]) if name in index else None
                if content is not None:
                    return content
        return None

    def _list_new_archives(self) -> None:
        if time.monotonic() - self._listed_at < LISTING_SECONDS:
            return
        try:
            archives = _list_archives()
        except OSError:
            logger.warning("static_archives_not_listed", exc_info=True)
            archives = []
        indexes = self._indexes
        self._indexes = {name: indexes[name] for name in archives if name in indexes}
        for name in archives:
            if name not in indexes:
                self._load_index(name)
        self._listed_at = time.monotonic()

    def _load_index(self, name: str) -> None:
        """Load the index of an archive; an incomplete one is tried again."""
        try:
            self._indexes[name] = _read_index(name)
        except BROKEN as error:
            logger.warning("static_archive_unreadable", archive=name, reason=repr(error))
            if isinstance(error, signing.BadSignature):
                self._indexes[name] = {}


def _read_file(archive: str, name: str, sha256: str) -> bytes | None:
    try:
        with default_storage.open(archive) as file, ZipFile(file) as zip_file:
            content = zip_file.read(name)
    except BROKEN as error:
        logger.warning("static_archive_unreadable", archive=archive, reason=repr(error))
        return None
    if hashlib.sha256(content).hexdigest() != sha256:
        logger.warning("static_archive_unreadable", archive=archive, reason=f"{name} is altered")
        return None
    return content


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]
    """WhiteNoise, made async: requests for other than static files need no thread.

    Files it does not know are served from the archives of other releases.
    """

    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        super().__init__(get_response)
        self._archives = Archives()
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """Serve a file, or hand the request on."""
        respond = self.get_response
        if self.autorefresh or request.path_info in self.files:
            respond = super().__call__
        elif request.path_info.startswith(self.static_prefix):
            respond = self._serve_archived
        if self._is_async and respond is not self.get_response:
            respond = sync_to_async(respond)
        return respond(request)  # type: ignore[no-any-return]

    def _serve_archived(self, request: HttpRequest) -> HttpResponseBase:
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(("GET", "HEAD"))
        name = request.path_info.removeprefix(self.static_prefix)
        content = self._archives.read(name)
        if content is None:
            return HttpResponse(status=HTTPStatus.NOT_FOUND)
        headers = Headers([("Cache-Control", f"max-age={self.FOREVER}, public, immutable")])
        self.add_mime_headers(headers, name, request.path_info)
        if self.allow_all_origins:
            headers["Access-Control-Allow-Origin"] = "*"
        return HttpResponse(content, headers=dict(headers.items()))
