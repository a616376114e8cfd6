"""What turns and memory look like outside."""

from typing import Any

from rest_framework import serializers

from chats.models import Turn
from chats.shapes import CandidateShape, ViewShape


class ReferenceShape(serializers.Serializer[Any]):
    """A document as an answer showed it; `snippet` is the beginning of its best passage."""

    slot = serializers.IntegerField()
    document_id = serializers.UUIDField()
    title = serializers.CharField()
    source = serializers.CharField()  # type: ignore[assignment] # what the contract calls it
    uri = serializers.CharField()
    version = serializers.IntegerField()
    checksum = serializers.CharField()
    chunk_ids = serializers.ListField(child=serializers.CharField())
    snippet = serializers.CharField()
    retrieval_method = serializers.CharField()
    score = serializers.FloatField()


class ShownShape(ReferenceShape):
    """The same with the passages shown, whole, in the order of `chunk_ids`."""

    passages = serializers.ListField(child=serializers.CharField())


class TurnShape(serializers.ModelSerializer[Turn]):
    """A question and its answer as the conversation remembers them."""

    turn_id = serializers.UUIDField(source="id", read_only=True)
    message_id = serializers.UUIDField(read_only=True)
    doc_refs = ReferenceShape(many=True, read_only=True)
    candidates = CandidateShape(many=True, read_only=True)
    view = ViewShape(read_only=True, allow_null=True)

    class Meta:
        """Fields of the contract."""

        model = Turn
        fields = (
            "turn_id",
            "message_id",
            "number",
            "ts",
            "user_text",
            "assistant_text",
            "summary",
            "summary_model",
            "summarised_at",
            "question_type",
            "mode",
            "label",
            "schema_version",
            "doc_refs",
            "candidates",
            "view",
        )
        read_only_fields = fields


class RememberedShape(serializers.Serializer[Any]):
    """A document that the conversation is about."""

    document_id = serializers.UUIDField()
    title = serializers.CharField()
    score = serializers.FloatField()


class MemoryShape(serializers.Serializer[Any]):
    """What a chat is about: see `chats.conversation.Session`. Before the first answer all null."""

    document_ids = serializers.ListField(child=serializers.UUIDField())
    documents = RememberedShape(many=True)
    last_question = serializers.CharField(allow_null=True)
    last_answer = serializers.CharField(allow_null=True)
    last_question_type = serializers.CharField(allow_null=True)
    updated_at = serializers.DateTimeField(allow_null=True)
