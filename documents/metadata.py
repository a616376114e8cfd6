"""Names of documents, their metadata, and their labels.

Names on disk are made by the server. Metadata is a small JSON object, read from the file or entered
by people. Labels are the names that a question may use: issuers, projects, titles, files.
"""

import json
import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from documents.errors import InvalidMetadata
from documents.models import DocumentLabel
from documents.parsers import formats
from rag.types import NamedDocument
from rag.understand.filters import FIELDS, list_names

NAME_CHARACTERS = 255
ORIGINAL_CHARACTERS = 1024
EXTENSION_CHARACTERS = 16
FALLBACK_NAME = "document"
_SEPARATORS = re.compile(r"[/\\]")
_INVISIBLE_MARKS = re.compile("[\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff]")
"""Marks that reorder or hide letters: `\u202efdp.exe` reads as `exe.pdf`. Joiners stay (emoji)."""


def to_display_name(name: str) -> str:
    """NFC, without path and control characters, at most 255 characters with the extension kept."""
    return _cut_name(to_original_name(name), NAME_CHARACTERS)


def to_original_name(name: str) -> str:
    """The sender's name for downloads: like `to_display_name`, but up to 1,024 characters."""
    last = _SEPARATORS.split(name.partition("\0")[0])[-1]
    visible = "".join(character for character in last if not _is_control(character))
    bare = unicodedata.normalize("NFC", _INVISIBLE_MARKS.sub("", visible)).strip().rstrip(". ")
    full_name = f"{FALLBACK_NAME}{bare}" if _is_only_extension(bare) else bare
    return _cut_name(full_name or FALLBACK_NAME, ORIGINAL_CHARACTERS)


def get_extension(name: str) -> str:
    """The extension in lower case with its dot; empty if it is not a plain one."""
    suffix = PurePosixPath(name).suffix.lower()
    return suffix if re.fullmatch(r"\.[a-z0-9]{1,15}", suffix) else ""


def strip_extension(name: str) -> str:
    """The name without its extension."""
    suffix = get_extension(name)
    return name[: -len(suffix)] if suffix else name


def to_title(name: str, metadata: Mapping[str, object]) -> str:
    """The title of a document: from its metadata, else its file name."""
    return to_title_lines(name, metadata).partition("\n")[0]


def to_title_lines(name: str, metadata: Mapping[str, object]) -> str:
    """The titles of a document, one a line: from its metadata, then its file name."""
    own_title = metadata.get("title")
    titles = [own_title.strip() if isinstance(own_title, str) else "", strip_extension(name)]
    return "\n".join(dict.fromkeys(filter(None, titles)))


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}


def _is_only_extension(name: str) -> bool:
    return name.startswith(".") and name[1:].lower() in formats.EXTENSIONS


def _cut_name(name: str, limit: int) -> str:
    if len(name) <= limit:
        return name
    stem, dot, suffix = name.rpartition(".")
    if not dot or len(suffix) >= EXTENSION_CHARACTERS:
        return name[:limit]
    return stem[: limit - len(suffix) - 1].rstrip() + dot + suffix


MAX_METADATA_BYTES = 16 * 1024
MAX_METADATA_DEPTH = 8


def clean_metadata(metadata: object) -> dict[str, Any]:
    """The object with its strings in NFC and without NUL. Raises `InvalidMetadata`."""
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InvalidMetadata("not an object", limit_kb=MAX_METADATA_BYTES // 1024)
    result = {_clean_text(str(key)): _clean_value(value, 1) for key, value in metadata.items()}
    try:
        size = len(json.dumps(result, ensure_ascii=False, allow_nan=False).encode())
    except (ValueError, TypeError) as error:
        raise InvalidMetadata(str(error), limit_kb=MAX_METADATA_BYTES // 1024) from error
    if size > MAX_METADATA_BYTES:
        raise InvalidMetadata("too large", limit_kb=MAX_METADATA_BYTES // 1024)
    return result


def merge_metadata(extracted: Mapping[str, Any], stated: Mapping[str, Any]) -> dict[str, Any]:
    """The effective metadata: stated values win, and keys that people removed stay removed.

    Idempotent, so its result may replace `extracted`.
    """
    return {key: value for key, value in {**extracted, **stated}.items() if value is not None}


def parse_metadata(text: str) -> dict[str, Any]:
    """Metadata from JSON text, cleaned; blank is empty. Raises `InvalidMetadata`."""
    if not text.strip():
        return {}
    try:
        return clean_metadata(json.loads(text))
    except (ValueError, RecursionError) as error:
        raise InvalidMetadata("not JSON", limit_kb=MAX_METADATA_BYTES // 1024) from error


def _clean_value(value: object, depth: int) -> Any:
    if depth > MAX_METADATA_DEPTH:
        raise InvalidMetadata("too deep", limit_kb=MAX_METADATA_BYTES // 1024)
    if isinstance(value, str):
        return _clean_text(value)
    if isinstance(value, Mapping):
        return {
            _clean_text(str(key)): _clean_value(inner, depth + 1) for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_clean_value(inner, depth + 1) for inner in value]
    return value


def _clean_text(text: str) -> str:
    characters = "".join(c for c in text if c != "\0" and unicodedata.category(c) != "Cs")
    return unicodedata.normalize("NFC", characters)


SELECT_LABELS = """
    SELECT field, value, name, document_id FROM (
        SELECT * FROM documents_documentlabel WHERE name = ANY(%s::text[]) LIMIT %s) AS found
     ORDER BY document_id, id
"""
SELECT_LABELS_IN_SCOPE = """
    WITH found AS MATERIALIZED (  -- by name alone: a scope of thousands would be probed one by one
        SELECT field, value, name, document_id, id FROM documents_documentlabel
         WHERE name = ANY(%s::text[]))
    SELECT field, value, name, document_id FROM found
     WHERE document_id = ANY(%s::uuid[]) ORDER BY document_id, id
"""
MAX_NAMESAKES = 500
"""With more matching labels than this, the database filters them by the scope."""


def rewrite_labels(document_id: UUID, file_name: str, metadata: Mapping[str, Any]) -> None:
    """Replace the labels of a document. The caller holds the row."""
    with transaction.atomic():
        DocumentLabel.objects.filter(document_id=document_id).delete()
        DocumentLabel.objects.bulk_create(
            DocumentLabel(document_id=document_id, field=field, value=value, name=name)
            for (field, name), value in list_labels(file_name, metadata).items()
        )


def list_labels(file_name: str, metadata: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Field and name as compared -> name as shown. The file's name counts as a title."""
    labels: dict[tuple[str, str], str] = {}
    for field, text in [*_list_name_texts(metadata), ("title", strip_extension(file_name))]:
        for name, label in list_names(field, text).items():
            labels.setdefault((field, name), label)
    return labels


def find_named_documents(
    document_ids: Collection[UUID], names: Sequence[str]
) -> list[NamedDocument]:
    """Which of these documents have one of the names (`filters.to_name_key`) as a label.

    `document_ids` should be a set if there are many.
    """
    with connection.cursor() as cursor:
        cursor.execute(SELECT_LABELS, (list(names), MAX_NAMESAKES + 1))
        matches = [NamedDocument(*row) for row in cursor.fetchall()]
        if len(matches) > MAX_NAMESAKES:
            cursor.execute(SELECT_LABELS_IN_SCOPE, (list(names), _to_uuid_array(document_ids)))
            matches = [NamedDocument(*row) for row in cursor.fetchall()]
    return [match for match in matches if match.document_id in document_ids]


def _to_uuid_array(ids: Collection[UUID]) -> str:
    """The text form of an array, without hyphens: there may be tens of thousands."""
    return "{" + ",".join([pk.hex for pk in ids]) + "}"


def _list_name_texts(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Field and text of each value that names the document; a list has several."""
    for field in FIELDS:
        value = metadata.get(field)
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):
                yield field, text
