"""What comes in and what goes out, as JSON: the same for REST, sockets and the log of a run.

Requests are validated here and handed on as plain values.
"""

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

from django.conf import settings
from django.utils.translation import override
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from chats.errors import explain_notice
from chats.models import Category, Chat, Message, Run, Turn
from chats.runs import log
from chats.services import speech
from documents.api.serializers import ChunkBoxShape
from documents.errors import explain_code
from rag.pages import Kind
from rag.types import Source, StrategyName, Topic, Verdict

MAX_CONTENT_CHARACTERS = 20_000
MAX_DOCUMENTS = 1_000


class DocumentIdsField(serializers.ListField):
    """Ids of documents, each once."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=serializers.UUIDField(), max_length=MAX_DOCUMENTS, **kwargs)


class TopicField(serializers.ChoiceField):
    """What the user says of a question's bond to the conversation."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(choices=[topic.value for topic in Topic], default=Topic.AUTO, **kwargs)


class SendRequest(serializers.Serializer[Any]):
    """A question: `POST /messages` and the socket's `send`.

    `parent_id` is the message of the chat that it follows; without it, the newest.
    """

    content = serializers.CharField(
        max_length=MAX_CONTENT_CHARACTERS, allow_blank=True, trim_whitespace=False
    )
    chat_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    parent_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    document_ids = DocumentIdsField(required=False, allow_null=True, default=None)
    category_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    client_id = serializers.CharField(required=False, allow_blank=True, default="", max_length=100)
    topic = TopicField(required=False)


class RegenerateRequest(serializers.Serializer[Any]):
    """Another answer to the same question."""

    topic = TopicField(required=False)


class EditRequest(serializers.Serializer[Any]):
    """Other words for a question."""

    content = serializers.CharField(max_length=MAX_CONTENT_CHARACTERS, allow_blank=True)


class ChatRequest(serializers.Serializer[Any]):
    """A new chat, or changes to one."""

    title = serializers.CharField(max_length=200, required=False)
    category_id = serializers.UUIDField(required=False, allow_null=True)
    history_pairs = serializers.IntegerField(
        min_value=0, max_value=100, required=False, allow_null=True
    )
    document_ids = DocumentIdsField(required=False)


class CategoryRequest(serializers.Serializer[Any]):
    """A category's name."""

    name = serializers.CharField(max_length=100)


class FeedbackRequest(serializers.Serializer[Any]):
    """A verdict on an answer."""

    value = serializers.ChoiceField(choices=(1, -1))
    reason = serializers.CharField(max_length=1000, required=False, allow_blank=True, default="")


class HistoryItem(serializers.Serializer[Any]):
    """One earlier message that a caller brings along."""

    role = serializers.ChoiceField(choices=("user", "assistant"))
    content = serializers.CharField(max_length=MAX_CONTENT_CHARACTERS, allow_blank=True)


class SearchRequest(serializers.Serializer[Any]):
    """`POST /search`."""

    query = serializers.CharField(max_length=MAX_CONTENT_CHARACTERS)
    chat_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    history = HistoryItem(many=True, required=False, allow_null=True, default=None)
    document_ids = DocumentIdsField(required=False, allow_null=True, default=None)
    strategy = serializers.ChoiceField(
        choices=[name.value for name in StrategyName], required=False, default="auto"
    )
    rerank = serializers.BooleanField(required=False, default=True)
    top_k = serializers.IntegerField(
        min_value=1, max_value=100, required=False, allow_null=True, default=None
    )
    filters = serializers.DictField(
        child=serializers.CharField(max_length=500), required=False, allow_null=True, default=None
    )


class BranchRequest(serializers.Serializer[Any]):
    """Which branch of a chat is meant."""

    message_id = serializers.UUIDField(required=False, allow_null=True, default=None)


class SpeechRequest(serializers.Serializer[Any]):
    """How to say it. No voice: the configured one. Long answers come as WAV only."""

    voice = serializers.CharField(max_length=100, required=False, allow_blank=True, default="")
    format = serializers.ChoiceField(choices=list(speech.SOUND_TYPES), default=speech.WAV)


class CategorySerializer(serializers.ModelSerializer[Category]):
    """A category."""

    class Meta:
        """Fields of the contract."""

        model = Category
        fields = ("id", "name")


class ChatSerializer(serializers.ModelSerializer[Chat]):
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


class AnswerErrorSerializer(serializers.Serializer[Any]):
    """Why an answer failed."""

    code = serializers.CharField()
    detail = serializers.CharField()


class BoxSerializer(serializers.Serializer[Any]):
    """A rectangle on a page, in page fractions from the top left."""

    page = serializers.IntegerField()
    x0 = serializers.FloatField()
    y0 = serializers.FloatField()
    x1 = serializers.FloatField()
    y1 = serializers.FloatField()


class SpanSerializer(serializers.Serializer[Any]):
    """A sentence or row of a document that an answer rests on; offsets are in its text."""

    start = serializers.IntegerField()
    end = serializers.IntegerField()
    page = serializers.IntegerField(allow_null=True)
    text = serializers.CharField()
    boxes = BoxSerializer(many=True)


class SourceSerializer(serializers.Serializer[Any]):
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
    boxes = BoxSerializer(many=True)
    version = serializers.IntegerField(default=1)
    spans = SpanSerializer(many=True, default=list)


class WholeSourceSerializer(SourceSerializer):
    """The same with its passage as it was shown, whole."""

    text = serializers.CharField()


def to_sources_json(sources: Iterable[Source]) -> list[dict[str, Any]]:
    """Sources as a message keeps and shows them: their whole passages stand in the turn store."""
    shown = [asdict(replace(source, text="")) for source in sources]
    for one in shown:
        del one["text"]
    return log.to_plain(shown)  # type: ignore[no-any-return]


class ScopeSerializer(serializers.Serializer[Any]):
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


class CandidateSerializer(serializers.Serializer[Any]):
    """A document that a clarifying question offers."""

    slot = serializers.IntegerField()
    document_id = serializers.UUIDField()
    title = serializers.CharField()


class DocumentViewSerializer(serializers.Serializer[Any]):
    """The stretch of a whole document that is shown: part `part` of `parts`, from 1."""

    document_id = serializers.UUIDField()
    part = serializers.IntegerField()
    parts = serializers.IntegerField()


class CheckedSentenceSerializer(serializers.Serializer[Any]):
    """A sentence of the answer against its evidence; offsets count code points of `content`."""

    start = serializers.IntegerField()
    end = serializers.IntegerField()
    verdict = serializers.ChoiceField(choices=[verdict.value for verdict in Verdict])
    slots = serializers.ListField(child=serializers.IntegerField())
    reasons = serializers.ListField(child=serializers.CharField())


class FeedbackSerializer(serializers.Serializer[Any]):
    """A verdict on an answer: 1 or -1."""

    value = serializers.IntegerField()
    reason = serializers.CharField(allow_blank=True)


class MessageSerializer(serializers.ModelSerializer[Message]):
    """A message. `run_id` is there while an answer is being written."""

    chat_id = serializers.UUIDField(read_only=True)
    parent_id = serializers.UUIDField(read_only=True, allow_null=True)
    mode = serializers.SerializerMethodField()
    label = serializers.SerializerMethodField()  # type: ignore[assignment] # of the contract
    error = serializers.SerializerMethodField()
    run_id = serializers.SerializerMethodField()
    document_ids = serializers.SerializerMethodField()
    feedback = serializers.SerializerMethodField()
    sources = SourceSerializer(many=True, read_only=True, allow_null=True)
    scope = ScopeSerializer(read_only=True, allow_null=True)
    candidates = CandidateSerializer(many=True, read_only=True, allow_null=True)
    view = DocumentViewSerializer(read_only=True, allow_null=True)
    grounding = CheckedSentenceSerializer(many=True, read_only=True, allow_null=True)
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

    @extend_schema_field(AnswerErrorSerializer(allow_null=True))
    def get_error(self, message: Message) -> dict[str, str] | None:
        """Code and sentence, or null."""
        if not message.error_code:
            return None
        detail = explain_code(message.error_code, message.error_params)
        return {"code": message.error_code, "detail": detail}

    @extend_schema_field(AnswerErrorSerializer(many=True))
    def get_notices(self, message: Message) -> list[dict[str, str]]:
        """What the reader should know of the answer, code and sentence each."""
        return [{"code": code, "detail": explain_notice(code)} for code in message.notices]

    @extend_schema_field(serializers.UUIDField(allow_null=True))
    def get_run_id(self, message: Message) -> str | None:
        """The run that is writing the answer."""
        if message.status != Message.Status.STREAMING:
            return None
        return str(message.run.pk)

    @extend_schema_field(FeedbackSerializer(allow_null=True))
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
            "user_message": MessageSerializer(run.message.parent).data,
            "assistant_message": MessageSerializer(run.message).data,
        }


def terminal_event(run: Run) -> tuple[str, dict[str, Any]]:
    """Type and data of the last event of a run that has ended."""
    with override(run.language):
        message = MessageSerializer(run.message).data
    if run.message.status == Message.Status.COMPLETED:
        return log.COMPLETED, {"message": message}
    if run.message.status == Message.Status.STOPPED:
        return log.STOPPED, {"message": message}
    return log.ERROR, {**message["error"], "message": message}


def envelope(kind: str, data: Any, **ids: Any) -> dict[str, Any]:
    """A frame of the socket protocol; `ids` are chat_id, run_id and seq where they apply."""
    return {"v": 1, "type": kind, "chat_id": None, "run_id": None, "seq": None, "data": data} | ids


class DocumentReferenceSerializer(serializers.Serializer[Any]):
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


class ShownDocumentSerializer(DocumentReferenceSerializer):
    """The same with the passages shown, whole, in the order of `chunk_ids`."""

    passages = serializers.ListField(child=serializers.CharField())


class TurnSerializer(serializers.ModelSerializer[Turn]):
    """A question and its answer as the conversation remembers them."""

    turn_id = serializers.UUIDField(source="id", read_only=True)
    message_id = serializers.UUIDField(read_only=True)
    doc_refs = DocumentReferenceSerializer(many=True, read_only=True)
    candidates = CandidateSerializer(many=True, read_only=True)
    view = DocumentViewSerializer(read_only=True, allow_null=True)

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


class RememberedDocumentSerializer(serializers.Serializer[Any]):
    """A document that the conversation is about."""

    document_id = serializers.UUIDField()
    title = serializers.CharField()
    score = serializers.FloatField()


class MemorySerializer(serializers.Serializer[Any]):
    """What a chat is about: see `chats.history.ChatMemory`. Before the first answer all null."""

    document_ids = serializers.ListField(child=serializers.UUIDField())
    documents = RememberedDocumentSerializer(many=True)
    last_question = serializers.CharField(allow_null=True)
    last_answer = serializers.CharField(allow_null=True)
    last_question_type = serializers.CharField(allow_null=True)
    updated_at = serializers.DateTimeField(allow_null=True)


class HitSerializer(serializers.Serializer[Any]):
    """A passage that was found."""

    chunk_id = serializers.CharField()
    document_id = serializers.UUIDField()
    document_name = serializers.CharField()
    page = serializers.IntegerField(allow_null=True)
    section = serializers.CharField()
    kind = serializers.ChoiceField(choices=[one.value for one in Kind])
    header = serializers.CharField(help_text="Header rows of the table that the text goes on with")
    text = serializers.CharField()
    score = serializers.FloatField()
    scores = serializers.DictField(child=serializers.FloatField())
    boxes = ChunkBoxShape(many=True)


class GateSerializer(serializers.Serializer[Any]):
    """Whether what was found bears on the query: `score` against `threshold`."""

    score = serializers.FloatField()
    threshold = serializers.FloatField()


class SearchResultSerializer(serializers.Serializer[Any]):
    """The fields describe what `chats.services.search` makes."""

    plan = serializers.DictField()
    relevant = serializers.BooleanField()
    gate = GateSerializer()
    hits = HitSerializer(many=True)
    timings_ms = serializers.DictField(child=serializers.FloatField())
