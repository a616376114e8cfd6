"""Scripts, styles, fonts and pictures of the pages, those of other releases among them.

Their names carry their content: browsers keep them for ever, and no page mixes releases. A page
that was opened before an upgrade asks for files of its own release long after it, and while nodes
are upgraded in turn, any node is asked for those of both. So each release leaves its files in an
archive beside the documents, where every node finds what it lacks.
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
"""Of the storage: an archive each release, named by its digest."""
KEPT_RELEASES = 10
"""Archives that stay, of 11 MB each."""
INDEX = "index"
"""The entry of an archive that says what the others are: {name: SHA-256}, signed with the secret
key. Who can write to the storage has not thereby a script in everybody's browser."""
SALT = "nura.static-files"
LISTED_SECONDS = 1.0
"""Between two looks at what archives there are: anybody may ask for a file that nobody has."""
BROKEN = (
    *(OSError, EOFError, BadZipFile, zlib.error, KeyError, ValueError, RuntimeError),
    signing.BadSignature,
)
"""What opening an archive raises that is gone, half written, or not of our making."""

Index = Mapping[str, str]


class HashedStaticFiles(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Rewrites the imports of our script modules too: an old one never loads a new one."""

    support_js_module_import_aggregation = True

    def post_process(self, *args: Any, **options: Any) -> Iterator[tuple[str, str, bool]]:
        """Name the collected files, and leave them to nodes of other releases."""
        yield from super().post_process(*args, **options)
        if not options.get("dry_run"):
            self.archive()

    def archive(self) -> None:
        """Put the files of the manifest where all nodes find them, if they are not there yet.

        A storage that fails is no reason not to start: pages of this release then lack what their
        node has not.
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
                with self.open(name) as one:
                    content = one.read()
                index[name] = hashlib.sha256(content).hexdigest()
                archive.writestr(name, content)
            archive.writestr(INDEX, signing.dumps(index, salt=SALT, compress=True))


def archive_collected_files() -> None:
    """Do so with what an earlier release has collected, before it is removed."""
    try:
        HashedStaticFiles().archive()
    except ValueError as error:  # its manifest was cut off, so no page was ever served with it
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
    """Files of all releases, for any thread.

    Names are looked up in signed indexes and nowhere else, so none leads out of an archive.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # one after the other: strangers may ask, too
        self._indexes: dict[str, Index] = {}
        self._listed = float("-inf")

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
        if time.monotonic() - self._listed < LISTED_SECONDS:
            return
        try:
            archives = _list_archives()
        except OSError:
            logger.warning("static_archives_not_listed", exc_info=True)
            archives = []
        known = self._indexes
        self._indexes = {name: known[name] for name in archives if name in known}
        for name in archives:
            if name not in known:
                self._load_index(name)
        self._listed = time.monotonic()

    def _load_index(self, name: str) -> None:
        """Load the index of an archive; one that is half written is tried again."""
        try:
            self._indexes[name] = _read_index(name)
        except BROKEN as error:
            logger.warning("static_archive_unreadable", archive=name, reason=repr(error))
            if isinstance(error, signing.BadSignature):
                self._indexes[name] = {}


def _read_file(archive: str, name: str, sha256: str) -> bytes | None:
    try:
        with default_storage.open(archive) as file, ZipFile(file) as opened:
            content = opened.read(name)
    except BROKEN as error:
        logger.warning("static_archive_unreadable", archive=archive, reason=repr(error))
        return None
    if hashlib.sha256(content).hexdigest() != sha256:
        logger.warning("static_archive_unreadable", archive=archive, reason=f"{name} is altered")
        return None
    return content


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]
    """WhiteNoise, which is there for threads only; a request for no file takes none.

    Files that it does not know come out of the archives of other releases.
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
        answer = self.get_response
        if self.autorefresh or request.path_info in self.files:
            answer = super().__call__
        elif request.path_info.startswith(self.static_prefix):
            answer = self._serve_archived
        if self._is_async and answer is not self.get_response:
            answer = sync_to_async(answer)
        return answer(request)  # type: ignore[no-any-return]

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
