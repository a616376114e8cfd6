"""Why a file cannot be read. Codes are stable; `params` fill the sentence that people read."""

from rag.errors import NuraError


class ParseFailed(NuraError):
    """Base of what can go wrong between a file and its text."""

    code = "parse_failed"


class EmptyFile(ParseFailed):
    """0 bytes."""

    code = "empty_file"


class UnsupportedType(ParseFailed):
    """A kind of file that is not taken; `found` names it."""

    code = "unsupported_type"


class TypeMismatch(ParseFailed):
    """The content (`found`) is another kind than the name says (`named`)."""

    code = "type_mismatch"


class Encrypted(ParseFailed):
    """Locked; `lock` is password, distribution, drm or certificate."""

    code = "encrypted"


class UnsupportedVersion(ParseFailed):
    """The right family in a version that cannot be read; `found` names it."""

    code = "unsupported_version"


class Corrupt(ParseFailed):
    """Broken beyond use; `detail` is the name of an exception or of the missing part."""

    code = "corrupt"


class ArchiveBomb(ParseFailed):
    """Unpacks to more than the limits allow."""

    code = "archive_bomb"


class XmlUnsafe(ParseFailed):
    """XML with a document type: entities or references to other files."""

    code = "xml_unsafe"


class TooLarge(ParseFailed):
    """More text than the limit (`limit`, in characters)."""

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
    """The encoding of a text cannot be told."""

    code = "encoding"


class ReaderMissing(ParseFailed):
    """The program that was chosen to read this format (`name`) is not installed."""

    code = "reader_missing"


class OutOfMemory(ParseFailed):
    """The child process hit its memory limit."""

    code = "memory"


class TimedOut(ParseFailed):
    """The child process hit its time limit (`seconds`)."""

    code = "timeout"


class ParserCrashed(ParseFailed):
    """The child process died by itself; once more may help, twice will not."""

    code = "parser_crashed"
    retryable = True


BY_CODE: dict[str, type[ParseFailed]] = {
    failure.code: failure
    for failure in (
        EmptyFile, UnsupportedType, TypeMismatch, Encrypted, UnsupportedVersion, Corrupt,
        ArchiveBomb, XmlUnsafe, TooLarge, TooManyPages, NoText, EncodingUnknown, OutOfMemory,
        TimedOut, ParserCrashed, ReaderMissing,
    )
}  # fmt: skip
"""How an error comes back to life on the other side of the pipe."""
