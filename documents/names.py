"""Names of files as people see them. What stands on disk is named by the server."""

import re
import unicodedata
from collections.abc import Mapping
from pathlib import PurePosixPath

NAME_CHARACTERS = 255
ORIGINAL_CHARACTERS = 1024
EXTENSION_CHARACTERS = 16
FALLBACK = "document"

_SEPARATORS = re.compile(r"[/\\]")
_DIRECTIONS = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
"""Marks that turn or hide letters: `\u202efdp.exe` reads as `exe.pdf`. Joiners stay for emoji."""


def shown(name: str) -> str:
    """NFC, without path and control characters, at most 255 characters with the extension kept."""
    return _cut(original(name), NAME_CHARACTERS)


def original(name: str) -> str:
    """The sender's name, as a download gets it back: like `shown`, but up to 1,024 characters."""
    last = _SEPARATORS.split(name.partition("\0")[0])[-1]
    kept = "".join(character for character in last if not _is_control(character))
    bare = unicodedata.normalize("NFC", _DIRECTIONS.sub("", kept)).strip().rstrip(". ")
    named = f"{FALLBACK}{bare}" if _is_only_extension(bare) else bare
    return _cut(named or FALLBACK, ORIGINAL_CHARACTERS)


def extension(name: str) -> str:
    """The extension in small letters with its dot, or nothing where it is no plain one."""
    suffix = PurePosixPath(name).suffix.lower()
    return suffix if re.fullmatch(r"\.[a-z0-9]{1,15}", suffix) else ""


def stem(name: str) -> str:
    """The name without its extension: what a document is called."""
    suffix = extension(name)
    return name[: -len(suffix)] if suffix else name


def called(name: str, metadata: Mapping[str, object]) -> str:
    """What a document is called first of all."""
    return title(name, metadata).partition("\n")[0]


def title(name: str, metadata: Mapping[str, object]) -> str:
    """What a document is called, one way a line: by itself, then by its file's name."""
    own = metadata.get("title")
    called = [own.strip() if isinstance(own, str) else "", stem(name)]
    return "\n".join(dict.fromkeys(filter(None, called)))


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}


def _is_only_extension(name: str) -> bool:
    return re.fullmatch(r"\.(pdf|docx|hwpx?|md|txt)", name.lower()) is not None


def _cut(name: str, limit: int) -> str:
    if len(name) <= limit:
        return name
    stem, dot, suffix = name.rpartition(".")
    if not dot or len(suffix) >= EXTENSION_CHARACTERS:
        return name[:limit]
    return stem[: limit - len(suffix) - 1].rstrip() + dot + suffix
