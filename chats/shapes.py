"""What conversations look like outside: the same JSON for REST, sockets and the log of a run."""

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from django.conf import settings
from django.utils.translation import override
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from chats.errors import explain_notice
from chats.models import Category, Chat, Message, Run
from chats.runs import log
from documents.errors import explain_code
from rag.types import Source, Topic
from rag.verify.label import Verdict


class CategoryShape(serializers.ModelSerializer[Category]):
    """A category."""

    class Meta:
        """Fields of the contract."""

        model = Category
        fields = ("id", "name")


class ChatShape(serializers.ModelSerializer[Chat]):
    """A chat. `history_pairs` is the number in force."""

    category_id = serializers.UUIDField(read_only=True, allow_null=True)
    history_pairs = serializers.SerializerMethodField()
    document_ids = serializers.SerializerMethodField()
    documents_gone = serializers.SerializerMethodField()
    answering = serializers.BooleanField(read_only=True, default=False)

    class Meta:
        """Fields of the contract; `answering` tells a list that an answer is being written."""

        model = Chat
        fields = (
            "id",
            "title",
            "category_id",
            "history_pairs",
            "document_ids",
            "documents_gone",
            "answering",
            "created_at",
            "updated_at",
        )

    def get_history_pairs(self, chat: Chat) -> int:
        """The chat's own number, else everybody's."""
        return settings.RAG.history_pairs if chat.history_pairs is None else chat.history_pairs

    @extend_schema_field(serializers.ListField(child=serializers.UUIDField()))
    def get_document_ids(self, chat: Chat) -> list[str]:
        """Ids of the chat's documents, in the order in which they were linked."""
        links = sorted(chat.document_links.all(), key=lambda link: link.pk)
        return [str(link.document_id) for link in links if link.document_id]

    def get_documents_gone(self, chat: Chat) -> int:
        """How many of the chat's documents have been deleted since."""
        return sum(link.document_id is None for link in chat.document_links.all())


class ErrorShape(serializers.Serializer[Any]):
    """Why an answer failed."""

    code = serializers.CharField()
    detail = serializers.CharField()


class BoxShape(serializers.Serializer[Any]):
    """A rectangle on a page, in page fractions from the top left."""

    page = serializers.IntegerField()
    x0 = serializers.FloatField()
    y0 = serializers.FloatField()
    x1 = serializers.FloatField()
    y1 = serializers.FloatField()


class SpanShape(serializers.Serializer[Any]):
    """A sentence or row of a document that an answer rests on; offsets are in its text."""

    start = serializers.IntegerField()
    end = serializers.IntegerField()
    page = serializers.IntegerField(allow_null=True)
    text = serializers.CharField()
    boxes = BoxShape(many=True)


class SourceShape(serializers.Serializer[Any]):
    """One passage under an answer, of the `version` of its document that was searched."""

    slot = serializers.IntegerField()
    document_id = serializers.UUIDField()
    document_name = serializers.CharField()
    chunk_id = serializers.CharField()
    page = serializers.IntegerField(allow_null=True)
    similarity = serializers.FloatField()
    content_preview = serializers.CharField()
    section = serializers.CharField()
    cited = serializers.BooleanField()
    boxes = BoxShape(many=True)
    version = serializers.IntegerField(default=1)
    spans = SpanShape(many=True, default=list)


class WholeSourceShape(SourceShape):
    """The same with its passage as it was shown, whole."""

    text = serializers.CharField()


def to_sources_json(sources: Iterable[Source]) -> list[dict[str, Any]]:
    """Sources as a message keeps and shows them: their whole passages stand in the turn store."""
    shown = [asdict(replace(source, text="")) for source in sources]
    for one in shown:
        del one["text"]
    return log.to_plain(shown)  # type: ignore[no-any-return]


class ScopeShape(serializers.Serializer[Any]):
    """The documents an answer could read, and why these.

    `follows`: bound to the conversation, and searched as `standalone_query`; `widened`: answered
    from beyond the remembered documents. `topic` is what the user said of it. `filters` are names
    that the question gave, field -> names, and that narrowed the search; `dropped_filters` those
    within which nothing was found.
    """

    document_ids = serializers.ListField(child=serializers.UUIDField())
    reason = serializers.CharField()
    topic = serializers.CharField(default=Topic.AUTO)
    follows = serializers.BooleanField(default=False)
    widened = serializers.BooleanField(default=False)
    standalone_query = serializers.CharField(default="")
    filters = serializers.DictField(child=serializers.CharField(), default=dict)
    dropped_filters = serializers.DictField(child=serializers.CharField(), default=dict)


class CandidateShape(serializers.Serializer[Any]):
    """A document that a clarifying question offers."""

    slot = serializers.IntegerField()
    document_id = serializers.UUIDField()
    title = serializers.CharField()


class ViewShape(serializers.Serializer[Any]):
    """The stretch of a whole document that is shown: part `part` of `parts`, from 1."""

    document_id = serializers.UUIDField()
    part = serializers.IntegerField()
    parts = serializers.IntegerField()


class CheckedShape(serializers.Serializer[Any]):
    """A sentence of the answer against its evidence; offsets count code points of `content`."""

    start = serializers.IntegerField()
    end = serializers.IntegerField()
    verdict = serializers.ChoiceField(choices=[verdict.value for verdict in Verdict])
    slots = serializers.ListField(child=serializers.IntegerField())
    reasons = serializers.ListField(child=serializers.CharField())


class FeedbackShape(serializers.Serializer[Any]):
    """A verdict on an answer: 1 or -1."""

    value = serializers.IntegerField()
    reason = serializers.CharField(allow_blank=True)


class MessageShape(serializers.ModelSerializer[Message]):
    """A message. `run_id` is there while an answer is being written."""

    chat_id = serializers.UUIDField(read_only=True)
    parent_id = serializers.UUIDField(read_only=True, allow_null=True)
    mode = serializers.SerializerMethodField()
    label = serializers.SerializerMethodField()  # type: ignore[assignment] # of the contract
    error = serializers.SerializerMethodField()
    run_id = serializers.SerializerMethodField()
    document_ids = serializers.SerializerMethodField()
    feedback = serializers.SerializerMethodField()
    sources = SourceShape(many=True, read_only=True, allow_null=True)
    scope = ScopeShape(read_only=True, allow_null=True)
    candidates = CandidateShape(many=True, read_only=True, allow_null=True)
    view = ViewShape(read_only=True, allow_null=True)
    grounding = CheckedShape(many=True, read_only=True, allow_null=True)
    notices = serializers.SerializerMethodField()

    class Meta:
        """Fields of the contract."""

        model = Message
        fields = (
            "id",
            "chat_id",
            "role",
            "content",
            "status",
            "mode",
            "label",
            "sources",
            "error",
            "parent_id",
            "question_type",
            "scope",
            "candidates",
            "view",
            "usage",
            "reasoning",
            "grounding",
            "notices",
            "document_ids",
            "feedback",
            "run_id",
            "created_at",
        )

    @extend_schema_field(serializers.ChoiceField(choices=Message.Mode.choices, allow_null=True))
    def get_mode(self, message: Message) -> str | None:
        """How the answer came about; null for a user's message and before the end."""
        return message.mode or None

    @extend_schema_field(serializers.ChoiceField(choices=Message.Label.choices, allow_null=True))
    def get_label(self, message: Message) -> str | None:
        """What the answer rests on; null where that is not known."""
        return message.label or None

    @extend_schema_field(ErrorShape(allow_null=True))
    def get_error(self, message: Message) -> dict[str, str] | None:
        """Code and sentence, or null."""
        if not message.error_code:
            return None
        detail = explain_code(message.error_code, message.error_params)
        return {"code": message.error_code, "detail": detail}

    @extend_schema_field(ErrorShape(many=True))
    def get_notices(self, message: Message) -> list[dict[str, str]]:
        """What the reader should know of the answer, code and sentence each."""
        return [{"code": code, "detail": explain_notice(code)} for code in message.notices]

    @extend_schema_field(serializers.UUIDField(allow_null=True))
    def get_run_id(self, message: Message) -> str | None:
        """The run that is writing the answer."""
        if message.status != Message.Status.STREAMING:
            return None
        return str(message.run.pk)

    @extend_schema_field(FeedbackShape(allow_null=True))
    def get_feedback(self, message: Message) -> dict[str, Any] | None:
        """What the owner of the chat said of the answer."""
        if message.role == Message.Role.USER:
            return None
        given = next(iter(message.feedback.all()), None)
        return None if given is None else {"value": given.value, "reason": given.reason}

    @extend_schema_field(serializers.ListField(child=serializers.UUIDField()))
    def get_document_ids(self, message: Message) -> list[str]:
        """Documents that the user named for this message."""
        if message.role == Message.Role.ASSISTANT:
            return []
        return [str(link.document_id) for link in message.document_links.all() if link.document_id]


def started_data(run: Run) -> dict[str, Any]:
    """Data of `run.started`."""
    with override(run.language):
        return {
            "user_message": MessageShape(run.message.parent).data,
            "assistant_message": MessageShape(run.message).data,
        }


def terminal_event(run: Run) -> tuple[str, dict[str, Any]]:
    """Type and data of the last event of a run that has ended."""
    with override(run.language):
        message = MessageShape(run.message).data
    if run.message.status == Message.Status.COMPLETED:
        return log.COMPLETED, {"message": message}
    if run.message.status == Message.Status.STOPPED:
        return log.STOPPED, {"message": message}
    return log.ERROR, {**message["error"], "message": message}


def envelope(kind: str, data: Any, **ids: Any) -> dict[str, Any]:
    """A frame of the socket protocol; `ids` are chat_id, run_id and seq where they apply."""
    return {"v": 1, "type": kind, "chat_id": None, "run_id": None, "seq": None, "data": data} | ids
