"""What all parsers share: limits, the reading context, pictures, errors."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from rag.errors import NuraError
from rag.types import Page


class ParseFailed(NuraError):
    """Base of all errors of reading a file."""

    code = "parse_failed"


class EmptyFile(ParseFailed):
    """The file has 0 bytes."""

    code = "empty_file"


class UnsupportedType(ParseFailed):
    """A kind of file that cannot be read; `found` names it."""

    code = "unsupported_type"


class TypeMismatch(ParseFailed):
    """The content (`found`) is another kind than the name says (`named`)."""

    code = "type_mismatch"


class Encrypted(ParseFailed):
    """The file is locked; `lock` is password, distribution, drm or certificate."""

    code = "encrypted"


class UnsupportedVersion(ParseFailed):
    """A version of the format that cannot be read; `found` names it."""

    code = "unsupported_version"


class Corrupt(ParseFailed):
    """Broken beyond use; `detail` is the name of an exception or of the missing part."""

    code = "corrupt"


class ArchiveBomb(ParseFailed):
    """The archive unpacks to more than the limits allow."""

    code = "archive_bomb"


class XmlUnsafe(ParseFailed):
    """XML with a document type: entities or references to other files."""

    code = "xml_unsafe"


class TooLarge(ParseFailed):
    """More text than `limit` characters."""

    code = "too_large"


class TooManyPages(ParseFailed):
    """`pages` is above `limit`."""

    code = "too_many_pages"


class NoText(ParseFailed):
    """Nothing to read; `kind` says why.

    scan: there is no OCR here; unrecognised: OCR found no text; unreadable: no Unicode map; empty.
    """

    code = "no_text"


class EncodingUnknown(ParseFailed):
    """The encoding of a text cannot be determined."""

    code = "encoding"


class ReaderMissing(ParseFailed):
    """The library chosen to read this format (`name`) is not installed."""

    code = "reader_missing"


class OutOfMemory(ParseFailed):
    """The child process hit its memory limit."""

    code = "memory"


class TimedOut(ParseFailed):
    """The child process hit its time limit (`seconds`)."""

    code = "timeout"


class ParserCrashed(ParseFailed):
    """The child process crashed; one retry may help."""

    code = "parser_crashed"
    retryable = True


class NotConfined(ParseFailed):
    """The kernel cannot confine the reading process, but the settings require it."""

    code = "not_confined"


BY_CODE: dict[str, type[ParseFailed]] = {
    failure.code: failure
    for failure in (
        EmptyFile, UnsupportedType, TypeMismatch, Encrypted, UnsupportedVersion, Corrupt,
        ArchiveBomb, XmlUnsafe, TooLarge, TooManyPages, NoText, EncodingUnknown, OutOfMemory,
        TimedOut, ParserCrashed, ReaderMissing, NotConfined,
    )
}  # fmt: skip
"""Error classes by code, to restore errors of the child process."""


MEGABYTE = 1 << 20
MAX_PICTURES = 5_000
"""Pictures reported per document, kept or not."""


class Confinement(StrEnum):
    """What a reading process does if the kernel cannot confine it."""

    REQUIRED = "required"
    """It refuses the file."""
    BEST = "best"
    """It reads with whatever confinement the kernel offers."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of reading one document. Sizes in bytes, times in seconds, text in characters."""

    memory: int = 2048 * MEGABYTE
    seconds: float = 60.0
    seconds_per_page: float = 0.2
    pages: int = 5_000
    entries: int = 10_000
    inflated: int = 200 * MEGABYTE
    """Maximum unpacked size of one part of an archive."""
    ratio: int = 100
    """Maximum compression ratio of a part that unpacks to more than `ratio_after`."""
    ratio_after: int = 10 * MEGABYTE
    characters: int = 20_000_000
    recognised_pages: int = 200
    """Maximum pages of a document that text recognition (OCR) reads; 0 is none."""
    seconds_per_recognised_page: float = 60.0
    confinement: Confinement = Confinement.REQUIRED


@dataclass(frozen=True, slots=True)
class PictureRules:
    """Which pictures of a document are kept. Brightness runs from 0 (black) to 255 (white)."""

    max_pictures: int = 20
    """Kept of one document; 0: no picture is examined."""
    min_pixels: int = 10_000
    """Width times height."""
    max_ratio: float = 20.0
    """Of the longer to the shorter side."""
    min_variance: float = 30.0
    """Of the greys."""
    min_nonwhite: float = 0.005
    """Share of the pixels that are not nearly white."""
    min_edges: float = 0.5
    """Mean strength of the edges."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as found in a file. `rejected` is why it is not kept; then `data` is empty.

    `width` and `height` in pixels as stored in the file; `data` is PNG or JPEG (`content_type`),
    upright, without metadata, no larger than a vision model needs. `box` are x0, y0, x1, y1 in
    fractions of the page as shown, None without pages; `offset` is the place in the page's text,
    None if unknown. `digest` is equal for pictures that look the same.
    """

    page: int | None
    digest: str
    width: int
    height: int
    box: tuple[float, float, float, float] | None = None
    rejected: str = ""
    content_type: str = ""
    data: bytes = b""
    offset: int | None = None


ALL_PICTURES = PictureRules()


class ReadingContext:
    """The context of one reading: its limits, and the output of everything that is not a page.

    `emit(kind, value)` passes output on; the child process writes it to the pipe at once.
    """

    def __init__(
        self,
        content_type: str,
        limits: Limits,
        emit: Callable[[str, object], None],
        pictures: PictureRules = ALL_PICTURES,
    ) -> None:
        self.content_type = content_type
        self.limits = limits
        self.pictures = pictures
        self.pictures_kept = 0
        self.metadata: dict[str, str] = {}
        self.recognised: Mapping[int, Any] = {}
        """Pages recognised by earlier readings, by index, in the form of `keep_recognised`."""
        self.no_text = "empty"
        self._emit = emit
        self._warned: set[str] = set()

    def announce_page_total(self, count: int) -> None:
        """Report the number of pages as soon as it is known. Raises `TooManyPages`."""
        if count > self.limits.pages:
            raise TooManyPages(pages=count, limit=self.limits.pages)
        self._emit("page_total", count)

    def add_metadata(self, metadata: Mapping[str, str | None]) -> None:
        """Add metadata of the file; earlier values are not replaced."""
        for key, value in metadata.items():
            if value and value.strip() and key not in self.metadata:
                self.metadata[key] = value.strip()[:500]

    def emit_picture(self, picture: Picture) -> None:
        """Report a picture; those of a page come before the page."""
        self._emit("picture", {**asdict(picture), "data": None})
        if not picture.rejected:
            self.pictures_kept += 1
            self._emit("bytes", picture.data)

    def announce_recognition(self) -> None:
        """Report that the next page takes longer because text recognition reads it."""
        self._emit("recognising", None)

    def keep_recognised(self, index: int, values: object) -> None:
        """Report a recognised page, as plain values, for a later reading."""
        self._emit("recognised", [index, values])

    def warn(self, code: str, count: int | None = None) -> None:
        """Report once that something was left out, with a count if it is known."""
        if code not in self._warned:
            self._warned.add(code)
            self._emit("warning", code if count is None else {"code": code, "count": count})


class Parser(Protocol):
    """Reads one format. Raises `ParseFailed`; anything else counts as a broken file."""

    def parse(self, path: Path, context: ReadingContext) -> Iterator[Page]:
        """The pages in order, each as soon as it is read."""
        ...
