"""Requests and responses of documents, validated and described for the schema."""

import unicodedata
from collections.abc import Mapping
from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import (
    extend_schema_field,
)
from rest_framework import serializers

from documents.metadata import ORIGINAL_CHARACTERS
from documents.models import (
    PRIVATE,
    AnyVersion,
    Chunk,
    Document,
    DocumentPicture,
    VersionState,
)
from documents.representation import (
    CURRENT_VERSION,
    to_document_json,
    to_version_json,
)
from rag.types import Kind

MAX_QUERY_CHARACTERS = 200
MAX_METADATA_CHARACTERS = 64 * 1024
METADATA_PREFIX = "metadata."
MAX_FILTERS = 20
MAX_DELETED_AT_ONCE = 100
LARGEST_NUMBER = 2**31 - 1
VERSION_STATES = [CURRENT_VERSION, *VersionState.values]


class DocumentErrorShape(serializers.Serializer[Any]):
    """The error of a document."""

    code = serializers.CharField()
    detail = serializers.CharField()


class WarningShape(DocumentErrorShape):
    """What was left out or changed, and how often where that was counted."""

    count = serializers.IntegerField(allow_null=True)


class DocumentShape(serializers.Serializer[Document]):
    """A document; the fields describe what `documents.representation` makes."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    owner = serializers.CharField(help_text="Name of the account that it belongs to")
    owner_name = serializers.CharField(help_text="The name that others see")
    library_id = serializers.UUIDField(
        allow_null=True, help_text="The library that it is in; null: its owner's private one"
    )
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
    source_id = serializers.UUIDField(
        allow_null=True, help_text="The source that brought it, where alone it is changed"
    )
    origin = serializers.CharField(
        allow_null=True,
        help_text="Where that source has it: the address, the path in the folder, or the key",
    )
    version = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()

    def to_representation(self, instance: Document) -> dict[str, Any]:
        """The same values as in the notices."""
        return to_document_json(instance)


class UnchangedShape(DocumentShape):
    """The existing document with the same bytes."""

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

    def to_representation(self, instance: AnyVersion) -> dict[str, Any]:
        """The same form for the current version and the others."""
        return to_version_json(instance)


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
    start = serializers.IntegerField(help_text="Offset in the document's text")
    end = serializers.IntegerField()
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
        max_length=MAX_METADATA_CHARACTERS,
        help_text="A JSON object",
    )
    library_id = serializers.UUIDField(
        required=False, allow_null=True, default=None, help_text="Where it goes; null: private"
    )


class DocumentRequest(serializers.Serializer[Any]):
    """Changes to a document."""

    name = serializers.CharField(max_length=ORIGINAL_CHARACTERS, required=False)
    metadata = serializers.DictField(required=False)
    library_id = serializers.UUIDField(
        required=False, allow_null=True, help_text="Where it moves; null: private to its owner"
    )


class ListQuery(serializers.Serializer[Any]):
    """Filters of the list."""

    status = serializers.ChoiceField(choices=Document.Status.choices, required=False)
    q = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=MAX_QUERY_CHARACTERS,
        help_text="Part of the name",
    )
    library = serializers.CharField(
        required=False, allow_blank=True, help_text="Id of a library, or `private`"
    )

    def validate_library(self, value: str) -> str:
        """An id or the word."""
        if value in {"", PRIVATE}:
            return value
        return str(serializers.UUIDField().run_validation(value))


class EraseQuery(serializers.Serializer[Any]):
    """Whether the passages in old answers go at once, instead of after their retention."""

    erase = serializers.BooleanField(required=False, default=False)


class DeletionRequest(EraseQuery):
    """Several documents to delete: all or none."""

    document_ids = serializers.ListField(
        child=serializers.UUIDField(), min_length=1, max_length=MAX_DELETED_AT_ONCE
    )


class VersionQuery(serializers.Serializer[Any]):
    """Which file of a document."""

    version = serializers.IntegerField(
        required=False,
        min_value=1,
        max_value=LARGEST_NUMBER,
        help_text="Number of an old version; without it the current one",
    )


def parse_metadata_filters(params: Mapping[str, str]) -> dict[str, str]:
    """Key -> value of the filters on metadata. Raises `ValidationError`."""
    filters = {name: value for name, value in params.items() if name.startswith(METADATA_PREFIX)}
    if len(filters) > MAX_FILTERS:
        raise serializers.ValidationError({METADATA_PREFIX: [f"> {MAX_FILTERS}"]})
    by_key = {name.removeprefix(METADATA_PREFIX): value for name, value in filters.items()}
    return {_clean_word(key): _clean_word(value) for key, value in by_key.items()}


def _clean_word(text: str) -> str:
    value = serializers.CharField(max_length=MAX_QUERY_CHARACTERS).run_validation(text)
    return unicodedata.normalize("NFC", value)


class BinShape(serializers.Serializer[Any]):
    """How many chunks have a length in `from` <= characters < `to`."""

    to = serializers.IntegerField()
    count = serializers.IntegerField()

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """`from` is a word of the language."""
        return {"from": serializers.IntegerField()} | super().get_fields()


class LengthShape(serializers.Serializer[Any]):
    """Statistics of the chunks' lengths in characters."""

    min = serializers.IntegerField()
    median = serializers.FloatField()
    mean = serializers.FloatField()
    p90 = serializers.FloatField()
    max = serializers.IntegerField()
    histogram = BinShape(many=True)


class ChunksShape(serializers.Serializer[Any]):
    """The chunks: how many in all, of each kind, and with a vector of the active space."""

    count = serializers.IntegerField()
    kinds = serializers.DictField(child=serializers.IntegerField())
    embedded = serializers.IntegerField()
    length = LengthShape(allow_null=True)


class PicturesShape(serializers.Serializer[Any]):
    """The pictures; `dropped` counts by reason."""

    kept = serializers.IntegerField()
    described = serializers.IntegerField()
    dropped = serializers.DictField(child=serializers.IntegerField())


class InspectionShape(serializers.Serializer[Any]):
    """The fields describe what `documents.representation` makes."""

    document_id = serializers.UUIDField()
    pages = serializers.IntegerField(allow_null=True)
    pages_without_text = serializers.ListField(child=serializers.IntegerField())
    pages_without_text_count = serializers.IntegerField()
    characters = serializers.IntegerField()
    chunks = ChunksShape()
    pictures = PicturesShape()
    seconds = serializers.DictField(child=serializers.FloatField())
    warnings = WarningShape(many=True)


class PictureShape(serializers.ModelSerializer[DocumentPicture]):
    """A picture; `box` is x0, y0, x1, y1 in fractions of its page.

    It stands in front of the offset `start` of the document's text, null where that is not known.
    `rejected` is why it was not kept. `description` is what `model` read in it, null until then.
    """

    box = serializers.ListField(child=serializers.FloatField(), allow_null=True)

    class Meta:
        """The fields shown."""

        model = DocumentPicture
        fields = (
            "index",
            "page",
            "width",
            "height",
            "box",
            "start",
            "rejected",
            "description",
            "model",
        )


class HeadingShape(serializers.Serializer[Any]):
    """A heading of a document; `start` is its offset in the whole text, `level` counts from 1."""

    title = serializers.CharField()
    level = serializers.IntegerField()
    page = serializers.IntegerField(allow_null=True)
    start = serializers.IntegerField()


class QueueShape(serializers.Serializer[Any]):
    """The user's documents that have not ended; see `documents.queue.QueueStatus`."""

    waiting = serializers.IntegerField()
    working = serializers.IntegerField()
    paused = serializers.IntegerField()
    pages_per_second = serializers.FloatField(help_text="Over the last minutes")
    seconds_left = serializers.FloatField(allow_null=True, help_text="An estimate")


class CountShape(serializers.Serializer[Any]):
    """How many documents changed."""

    count = serializers.IntegerField()
