"""What comes in and goes out, validated and described for the schema."""

import unicodedata
from collections.abc import Mapping
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from documents.metadata import ORIGINAL_CHARACTERS
from documents.models import Chunk, Document, DocumentVersion
from documents.representation import CURRENT, document_json, version_json
from rag.pages import Kind

QUERY_CHARACTERS = 200
METADATA_CHARACTERS = 64 * 1024
METADATA_PREFIX = "metadata."
MOST_FILTERS = 20
LARGEST_NUMBER = 2**31 - 1
VERSION_STATES = [CURRENT, *DocumentVersion.State.values]


class DocumentErrorShape(serializers.Serializer[Any]):
    """Why a document failed."""

    code = serializers.CharField()
    detail = serializers.CharField()


class WarningShape(DocumentErrorShape):
    """What was left out or changed, and how often where that was counted."""

    count = serializers.IntegerField(allow_null=True)


class DocumentShape(serializers.Serializer[Document]):
    """A document; the fields describe what `documents.representation` makes."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    content_type = serializers.CharField()
    size = serializers.IntegerField()
    sha256 = serializers.CharField()
    status = serializers.ChoiceField(choices=Document.Status.choices)
    stage = serializers.ChoiceField(choices=Document.Stage.choices)
    progress = serializers.FloatField(min_value=0, max_value=1)
    pages_done = serializers.IntegerField()
    seconds_left = serializers.FloatField(allow_null=True)
    indexed = serializers.BooleanField(help_text="An index serves, also while it is read again")
    error = DocumentErrorShape(allow_null=True)
    warnings = WarningShape(many=True)
    page_count = serializers.IntegerField(allow_null=True)
    chunk_count = serializers.IntegerField()
    metadata = serializers.DictField()
    version = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()

    def to_representation(self, instance: Document) -> dict[str, Any]:
        """The same values as in the notices."""
        return document_json(instance)


class UnchangedShape(DocumentShape):
    """The document that holds the bytes which were sent."""

    duplicate = serializers.BooleanField()

    def to_representation(self, instance: Document) -> dict[str, Any]:
        """The document, marked."""
        return super().to_representation(instance) | {"duplicate": True}


class VersionShape(serializers.Serializer[Any]):
    """One file of a document; the fields describe what `documents.representation` makes."""

    number = serializers.IntegerField()
    state = serializers.ChoiceField(choices=VERSION_STATES)
    name = serializers.CharField()
    size = serializers.IntegerField()
    sha256 = serializers.CharField()
    page_count = serializers.IntegerField(allow_null=True)
    error = DocumentErrorShape(allow_null=True)
    created_at = serializers.DateTimeField()

    def to_representation(self, instance: Document | DocumentVersion) -> dict[str, Any]:
        """Alike for the current one and the others."""
        return version_json(instance)


class ChunkBoxShape(serializers.Serializer[Any]):
    """A rectangle on a page, in fractions of the page as shown; origin at the top left."""

    page = serializers.IntegerField()
    x0 = serializers.FloatField()
    y0 = serializers.FloatField()
    x1 = serializers.FloatField()
    y1 = serializers.FloatField()


class ChunkShape(serializers.Serializer[Chunk]):
    """A chunk as stored."""

    chunk_id = serializers.CharField(source="public_id")
    index = serializers.IntegerField()
    page = serializers.IntegerField(allow_null=True)
    page_end = serializers.IntegerField(allow_null=True)
    section = serializers.CharField()
    kind = serializers.ChoiceField(choices=[one.value for one in Kind])
    header = serializers.CharField(help_text="Header rows of the table that the text goes on with")
    text = serializers.CharField()
    boxes = ChunkBoxShape(many=True)
    vlm_image_text_present = serializers.SerializerMethodField()
    vlm_image_text = serializers.SerializerMethodField()

    def get_vlm_image_text_present(self, chunk: Chunk) -> bool:
        """Whether a vision model wrote the text."""
        return bool(chunk.kind == Kind.PICTURE)

    def get_vlm_image_text(self, chunk: Chunk) -> str | None:
        """What a vision model read in the picture that the chunk is of."""
        return chunk.text if chunk.kind == Kind.PICTURE else None


@extend_schema_field(OpenApiTypes.BINARY)
class BinaryField(serializers.FileField):
    """A file in a form, described as one in the schema."""


class FileRequest(serializers.Serializer[Any]):
    """A new file for a document."""

    file = BinaryField(allow_empty_file=True)


class UploadRequest(FileRequest):
    """A new document."""

    metadata = serializers.CharField(
        required=False,
        allow_blank=True,
        default="",
        max_length=METADATA_CHARACTERS,
        help_text="A JSON object",
    )


class DocumentRequest(serializers.Serializer[Any]):
    """Changes to a document."""

    name = serializers.CharField(max_length=ORIGINAL_CHARACTERS, required=False)
    metadata = serializers.DictField(required=False)


class ListQuery(serializers.Serializer[Any]):
    """What narrows the list."""

    status = serializers.ChoiceField(choices=Document.Status.choices, required=False)
    q = serializers.CharField(
        required=False, allow_blank=True, max_length=QUERY_CHARACTERS, help_text="Part of the name"
    )


class VersionQuery(serializers.Serializer[Any]):
    """Which file of a document."""

    version = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=LARGEST_NUMBER,
        help_text="Number of an old version; without it the current one",
    )


def metadata_query(params: Mapping[str, str]) -> dict[str, str]:
    """Key -> value of the filters on metadata. Raises `ValidationError`."""
    named = {name: value for name, value in params.items() if name.startswith(METADATA_PREFIX)}
    if len(named) > MOST_FILTERS:
        raise serializers.ValidationError({METADATA_PREFIX: [f"> {MOST_FILTERS}"]})
    words = {name.removeprefix(METADATA_PREFIX): value for name, value in named.items()}
    return {_word(key): _word(value) for key, value in words.items()}


def _word(text: str) -> str:
    known = serializers.CharField(max_length=QUERY_CHARACTERS).run_validation(text)
    return unicodedata.normalize("NFC", known)
