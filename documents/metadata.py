"""What is known about a document: read in its file, or said by people. A modest JSON object."""

import json
import unicodedata
from collections.abc import Mapping
from typing import Any

from documents.errors import InvalidMetadata

MOST_BYTES = 16 * 1024
DEEPEST = 8


def cleaned(metadata: object) -> dict[str, Any]:
    """The object with its strings in NFC and without NUL. Raises `InvalidMetadata`."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidMetadata("not an object", limit_kb=MOST_BYTES // 1024)
    result = {_text(str(key)): _value(value, 1) for key, value in metadata.items()}
    try:
        size = len(json.dumps(result, ensure_ascii=False, allow_nan=False).encode())
    except (ValueError, TypeError) as error:
        raise InvalidMetadata(str(error), limit_kb=MOST_BYTES // 1024) from error
    if size > MOST_BYTES:
        raise InvalidMetadata("too large", limit_kb=MOST_BYTES // 1024)
    return result


def shown(read: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    """What holds: people know better than the reader, and a key that they took away stays away.

    Idempotent, so what is shown may take the place of what was read.
    """
    return {key: value for key, value in {**read, **stated}.items() if value is not None}


def parsed(text: str) -> dict[str, Any]:
    """The same from JSON text; blank counts as absent."""
    if not text.strip():
        return {}
    try:
        return cleaned(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise InvalidMetadata("not JSON", limit_kb=MOST_BYTES // 1024) from error


def _value(value: object, depth: int) -> Any:
    if depth > DEEPEST:
        raise InvalidMetadata("too deep", limit_kb=MOST_BYTES // 1024)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return {_text(str(key)): _value(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_value(inner, depth + 1) for inner in value]
    return value


def _text(text: str) -> str:
    kept = "".join(c for c in text if c != "\0" and unicodedata.category(c) != "Cs")
    return unicodedata.normalize("NFC", kept)
