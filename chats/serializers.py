"""Requests and responses as JSON, shared by REST, sockets and run logs.

Requests are validated here and passed on as plain values.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.utils.timezone import localtime
from django.utils.translation import override
from rest_framework import serializers

from chats.errors import explain_notice
from chats.models import Category, Chat, ChatDocument, Feedback, Message, Run, Turn
from chats.models.tool import ToolState
from chats.runs import log
from chats.services import speech
from chats.services.erasure import hide_closed, hide_closed_in_turns
from chats.services.tools import MAX_SERVERS
from documents.api.serializers import ChunkBoxShape
from documents.connected.choice import MainModel
from documents.connected.models import SLUG_CHARACTERS
from documents.errors import explain_code
from rag.context.budget import find_known_context_length
from rag.types import AnswerSource, Kind, StrategyName, Topic, Verdict

MAX_CONTENT_CHARACTERS = 20_000
MAX_DOCUMENTS = 1_000
MAX_LIBRARIES = 200
MAX_CHATS = 1_000
MAX_SUMMARY_CHARACTERS = 4_000
MAX_FIND_CHARACTERS = 100
"""Nobody types longer searches, and they are expensive."""


class DocumentIdsField(serializers.ListField):
    """Ids of documents, each once."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=serializers.UUIDField(), max_length=MAX_DOCUMENTS, **kwargs)


class LibraryIdsField(serializers.ListField):
    """Libraries that the user may read."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=serializers.UUIDField(), max_length=MAX_LIBRARIES, **kwargs)


class TopicField(serializers.ChoiceField):
    """How a question relates to the conversation, as chosen by the user."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(choices=[topic.value for topic in Topic], default=Topic.AUTO, **kwargs)


class ModelField(serializers.CharField):
    """The id of a language model, as in `GET /models`; empty: the default."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(max_length=SLUG_CHARACTERS, allow_blank=True, default="", **kwargs)


class ToolIdsField(serializers.ListField):
    """Ids of tool servers, as in `GET /tools`."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=serializers.UUIDField(), max_length=MAX_SERVERS, **kwargs)


class ToolUseSerializer(serializers.Serializer[Any]):
    """A tool call. One whose `state` is `asks` waits to be confirmed."""

    server = serializers.CharField()
    server_id = serializers.CharField()
    tool = serializers.CharField()
    arguments = serializers.DictField()
    state = serializers.ChoiceField(choices=ToolState.choices)
    writes = serializers.BooleanField()
    characters = serializers.IntegerField()
    cut = serializers.BooleanField()


class ToolShape(serializers.Serializer[Any]):
    """What a tool does."""

    name = serializers.CharField()
    description = serializers.CharField()
    writes = serializers.BooleanField()


class ToolServerSerializer(serializers.Serializer[Any]):
    """A tool server that may be switched on for a chat."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    tools = ToolShape(many=True)


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
    library_ids = LibraryIdsField(required=False, allow_null=True, default=None)
    category_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    client_id = serializers.CharField(required=False, allow_blank=True, default="", max_length=100)
    topic = TopicField(required=False)
    model = ModelField(required=False)
    assistant_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    tool_ids = ToolIdsField(required=False, default=list)


class RegenerateRequest(serializers.Serializer[Any]):
    """Another answer to the same question; `confirm_call`: with this tool call confirmed."""

    topic = TopicField(required=False)
    model = ModelField(required=False)
    confirm_call = serializers.IntegerField(
        min_value=0, max_value=100, required=False, allow_null=True, default=None
    )


class EditRequest(serializers.Serializer[Any]):
    """A reworded question; `save_only` stores it in place without asking again."""

    content = serializers.CharField(max_length=MAX_CONTENT_CHARACTERS, allow_blank=True)
    save_only = serializers.BooleanField(required=False, default=False)


class ForkRequest(serializers.Serializer[Any]):
    """The last message of the branch that is copied."""

    message_id = serializers.UUIDField()


class ChatRequest(serializers.Serializer[Any]):
    """A new chat."""

    title = serializers.CharField(max_length=200, required=False)
    category_id = serializers.UUIDField(required=False, allow_null=True)
    history_pairs = serializers.IntegerField(
        min_value=0, max_value=100, required=False, allow_null=True
    )
    document_ids = DocumentIdsField(required=False)
    library_ids = LibraryIdsField(required=False)
    use_memory = serializers.BooleanField(required=False)
    temporary = serializers.BooleanField(required=False)
    assistant_id = serializers.UUIDField(required=False, allow_null=True)
    model = serializers.CharField(
        max_length=SLUG_CHARACTERS, required=False, allow_null=True, allow_blank=True
    )
    tool_ids = ToolIdsField(required=False)


class ChatChange(ChatRequest):
    """Changes to a chat."""

    pinned = serializers.BooleanField(required=False)
    archived = serializers.BooleanField(required=False)
    unread = serializers.BooleanField(required=False)


class ChatsRequest(serializers.Serializer[Any]):
    """Changes to several chats, or their deletion: all or none."""

    chat_ids = serializers.ListField(
        child=serializers.UUIDField(), default=list, max_length=MAX_CHATS
    )
    category_id = serializers.UUIDField(required=False, allow_null=True)
    pinned = serializers.BooleanField(required=False)
    archived = serializers.BooleanField(required=False)
    unread = serializers.BooleanField(required=False)
    deleted = serializers.BooleanField(required=False, default=False)


class ChatListQuery(serializers.Serializer[Any]):
    """Filters of the list of chats."""

    q = serializers.CharField(required=False, allow_blank=True, default="", max_length=1000)
    archived = serializers.BooleanField(required=False, allow_null=True, default=None)
    category_id = serializers.UUIDField(required=False, allow_null=True, default=None)


class FindQuery(serializers.Serializer[Any]):
    """A search in everything of the user."""

    q = serializers.CharField(default="", allow_blank=True, max_length=MAX_FIND_CHARACTERS)


class FoundExcerpt(serializers.Serializer[Any]):
    """An excerpt; `marks` are the start and end of each hit in it, in code points."""

    excerpt = serializers.CharField()
    marks = serializers.ListField(
        child=serializers.ListField(child=serializers.IntegerField(), min_length=2, max_length=2)
    )


class FoundChat(FoundExcerpt):
    """A chat found by its title."""

    chat_id = serializers.UUIDField()


class FoundMessage(FoundExcerpt):
    """A message found by its text."""

    chat_id = serializers.UUIDField()
    message_id = serializers.UUIDField()
    chat_title = serializers.CharField()
    role = serializers.ChoiceField(choices=Message.Role.choices)
    created_at = serializers.DateTimeField()


class FoundDocument(FoundExcerpt):
    """A document found by its name."""

    document_id = serializers.UUIDField()


class FoundPassage(FoundExcerpt):
    """A passage found by its text."""

    document_id = serializers.UUIDField()
    document_name = serializers.CharField()
    chunk_id = serializers.CharField()
    page = serializers.IntegerField(allow_null=True)
    section = serializers.CharField()


class FindResult(serializers.Serializer[Any]):
    """What was found, each kind with its best first."""

    chats = FoundChat(many=True)
    messages = FoundMessage(many=True)
    documents = FoundDocument(many=True)
    passages = FoundPassage(many=True)


class CategoryRequest(serializers.Serializer[Any]):
    """A category's name."""

    name = serializers.CharField(max_length=100)


class FeedbackRequest(serializers.Serializer[Any]):
    """A verdict on an answer."""

    value = serializers.ChoiceField(choices=(1, -1))
    reason = serializers.CharField(max_length=1000, required=False, allow_blank=True, default="")


class HistoryItem(serializers.Serializer[Any]):
    """One earlier message sent along by the client."""

    role = serializers.ChoiceField(choices=("user", "assistant"))
    content = serializers.CharField(max_length=MAX_CONTENT_CHARACTERS, allow_blank=True)


class SearchRequest(serializers.Serializer[Any]):
    """`POST /search`."""

    query = serializers.CharField(max_length=MAX_CONTENT_CHARACTERS)
    chat_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    history = HistoryItem(many=True, required=False, allow_null=True, default=None)
    document_ids = DocumentIdsField(required=False, allow_null=True, default=None)
    library_ids = LibraryIdsField(required=False, allow_null=True, default=None)
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
    """Voice and format. No voice: the configured one. Long answers come as WAV only."""

    voice = serializers.CharField(max_length=100, required=False, allow_blank=True, default="")
    format = serializers.ChoiceField(choices=list(speech.SOUND_TYPES), default=speech.WAV)


class CategorySerializer(serializers.ModelSerializer[Category]):
    """A category."""

    class Meta:
        """Fields of the contract."""

        model = Category
        fields = ("id", "name")


def to_time_json(moment: datetime) -> str:
    """A time as the API shows it, in the installation's time zone."""
    return localtime(moment).isoformat().replace("+00:00", "Z")


def to_chat_json(chat: Chat, links: Collection[ChatDocument] | None = None) -> dict[str, Any]:
    """A chat as the API shows it. Its links are passed, or should be prefetched."""
    links = chat.document_links.all() if links is None else links
    links = sorted(links, key=lambda link: link.pk)
    pairs = settings.RAG.history_pairs if chat.history_pairs is None else chat.history_pairs
    return {
        "id": str(chat.pk),
        "title": chat.title,
        "category_id": chat.category_id and str(chat.category_id),
        "history_pairs": pairs,
        "document_ids": [str(link.document_id) for link in links if link.document_id],
        "documents_gone": sum(link.document_id is None for link in links),
        "library_ids": [str(pk) for pk in chat.library_ids or ()],
        "answering": getattr(chat, "answering", False),
        "pinned": chat.pinned,
        "archived": chat.archived,
        "unread": chat.unread,
        "use_memory": chat.use_memory,
        "temporary": chat.temporary,
        "model": chat.model or None,
        "assistant_id": chat.assistant_id and str(chat.assistant_id),
        "tool_ids": [str(tool_id) for tool_id in chat.tool_ids],
        "created_at": to_time_json(chat.created_at),
        "updated_at": to_time_json(chat.updated_at),
    }


class ChatSerializer(serializers.Serializer[Any]):
    """A chat. `history_pairs` is the number in force; `answering`: an answer is being written."""

    id = serializers.UUIDField(read_only=True)
    title = serializers.CharField(read_only=True)
    category_id = serializers.UUIDField(read_only=True, allow_null=True)
    history_pairs = serializers.IntegerField(read_only=True)
    document_ids = serializers.ListField(child=serializers.UUIDField(), read_only=True)
    documents_gone = serializers.IntegerField(
        read_only=True, help_text="How many of the chat's documents have been deleted since"
    )
    library_ids = serializers.ListField(child=serializers.UUIDField(), read_only=True)
    answering = serializers.BooleanField(read_only=True)
    pinned = serializers.BooleanField(read_only=True)
    archived = serializers.BooleanField(read_only=True)
    unread = serializers.BooleanField(
        read_only=True, help_text="An answer ended since the chat was last seen"
    )
    use_memory = serializers.BooleanField(
        read_only=True, help_text="What is remembered of the user is used and added to"
    )
    temporary = serializers.BooleanField(
        read_only=True, help_text="It stands in no list, and goes for good soon"
    )
    assistant_id = serializers.UUIDField(read_only=True, allow_null=True)
    model = serializers.CharField(
        read_only=True,
        allow_null=True,
        help_text="The language model chosen for it; null: the usual one",
    )
    tool_ids = serializers.ListField(child=serializers.UUIDField(), read_only=True)
    created_at = serializers.DateTimeField(read_only=True)
    updated_at = serializers.DateTimeField(read_only=True)

    def to_representation(self, chat: Chat) -> dict[str, Any]:
        """As `to_chat_json`."""
        return to_chat_json(chat)


class LanguageModelSerializer(serializers.Serializer[Any]):
    """A language model that may be chosen. `default` is the one that answers without a choice."""

    id = serializers.CharField()
    name = serializers.CharField()
    context_tokens = serializers.IntegerField(allow_null=True)
    default = serializers.BooleanField()


def to_models_json(models: Sequence[MainModel]) -> list[dict[str, Any]]:
    """Models that may be chosen, as the API shows them; the default comes first."""
    return [
        {
            "id": model.id,
            "name": model.name,
            "context_tokens": model.context_tokens
            or find_known_context_length(model.endpoint.model),
            "default": index == 0,
        }
        for index, model in enumerate(models)
    ]


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
    """One passage under an answer, of the `version` of its document that was searched.

    `deleted`: the document is gone; once it is erased, `content_preview` is empty. `unreadable`: it
    is in a library that is closed to the user now; its passage is not shown.
    """

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
    start = serializers.IntegerField(
        default=None, allow_null=True, help_text="Offset of the passage in the document's text"
    )
    end = serializers.IntegerField(default=None, allow_null=True)
    deleted = serializers.BooleanField(default=False)
    unreadable = serializers.BooleanField(default=False)


class WholeSourceSerializer(SourceSerializer):
    """The same with its passage as it was shown, whole."""

    text = serializers.CharField()


SOURCE_FIELDS = [field.name for field in fields(AnswerSource) if field.name != "text"]
"""What a message stores of a source; its full passage is in the turn store."""


def to_sources_json(sources: Iterable[AnswerSource]) -> list[dict[str, Any]]:
    """Sources as a message stores and shows them."""
    return [_to_source_json(source) for source in sources]


def _to_source_json(source: AnswerSource) -> dict[str, Any]:
    data: dict[str, Any] = {name: getattr(source, name) for name in SOURCE_FIELDS}
    data["document_id"] = str(source.document_id)
    data["boxes"] = [asdict(box) for box in source.boxes]
    data["spans"] = [
        asdict(span) | {"boxes": [asdict(box) for box in span.boxes]} for span in source.spans
    ]
    return data


class AskedAssistantSerializer(serializers.Serializer[Any]):
    """The assistant that was asked, by the name that it had then."""

    id = serializers.UUIDField()
    name = serializers.CharField()


class ScopeSerializer(serializers.Serializer[Any]):
    """The documents an answer could read, and why these.

    `follows`: bound to the conversation, and searched as `standalone_query`; `widened`: answered
    from beyond the remembered documents. `topic` is what the user said of it. `filters` are names
    that the question gave, field -> names, and that narrowed the search; `dropped_filters` those
    within which nothing was found.
    """

    document_ids = serializers.ListField(child=serializers.UUIDField())
    library_ids = serializers.ListField(
        child=serializers.UUIDField(), help_text="Libraries that were chosen"
    )
    reason = serializers.CharField()
    topic = serializers.CharField(default=Topic.AUTO)
    follows = serializers.BooleanField(default=False)
    widened = serializers.BooleanField(default=False)
    standalone_query = serializers.CharField(default="")
    filters = serializers.DictField(child=serializers.CharField(), default=dict)
    dropped_filters = serializers.DictField(child=serializers.CharField(), default=dict)
    assistant = AskedAssistantSerializer(allow_null=True, default=None)


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


class CitationSerializer(serializers.Serializer[Any]):
    """What the marker at `offset`, in code points of `content`, stands for.

    Several may stand for one marker: passages of one document share their slot. `spans` are places
    in the `spans` of that source.
    """

    offset = serializers.IntegerField()
    slot = serializers.IntegerField()
    chunk_id = serializers.CharField()
    spans = serializers.ListField(child=serializers.IntegerField())


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


class MessageSerializer(serializers.Serializer[Any]):
    """A message. `run_id` is there while an answer is being written."""

    id = serializers.UUIDField(read_only=True)
    chat_id = serializers.UUIDField(read_only=True)
    role = serializers.ChoiceField(choices=Message.Role.choices, read_only=True)
    content = serializers.CharField(read_only=True)
    status = serializers.ChoiceField(choices=Message.Status.choices, read_only=True)
    mode = serializers.ChoiceField(choices=Message.Mode.choices, read_only=True, allow_null=True)
    label = serializers.ChoiceField(  # type: ignore[assignment] # of the contract
        choices=Message.Label.choices, read_only=True, allow_null=True
    )
    sources = SourceSerializer(many=True, read_only=True, allow_null=True)
    error = AnswerErrorSerializer(read_only=True, allow_null=True)
    parent_id = serializers.UUIDField(read_only=True, allow_null=True)
    question_type = serializers.CharField(read_only=True)
    scope = ScopeSerializer(read_only=True, allow_null=True)
    candidates = CandidateSerializer(many=True, read_only=True, allow_null=True)
    view = DocumentViewSerializer(read_only=True, allow_null=True)
    usage = serializers.JSONField(read_only=True, allow_null=True)
    model = serializers.CharField(
        read_only=True, allow_null=True, help_text="Id of the language model that is asked"
    )
    tool_calls = ToolUseSerializer(many=True, read_only=True, allow_null=True)
    reasoning = serializers.CharField(read_only=True)
    grounding = CheckedSentenceSerializer(many=True, read_only=True, allow_null=True)
    citations = CitationSerializer(many=True, read_only=True, allow_null=True)
    notices = AnswerErrorSerializer(many=True, read_only=True)
    document_ids = serializers.ListField(child=serializers.UUIDField(), read_only=True)
    library_ids = serializers.ListField(child=serializers.UUIDField(), read_only=True)
    feedback = FeedbackSerializer(read_only=True, allow_null=True)
    run_id = serializers.UUIDField(read_only=True, allow_null=True)
    made_at = serializers.DateTimeField(
        read_only=True,
        allow_null=True,
        help_text="When the answer was made, where it is one that was kept from before",
    )
    follow_ups = serializers.ListField(
        child=serializers.CharField(),
        read_only=True,
        help_text="Questions that may come next, by the light model; a moment after the answer",
    )
    created_at = serializers.DateTimeField(read_only=True)

    def to_representation(self, message: Message) -> dict[str, Any]:
        """As `to_message_json`."""
        return to_message_json(message)


SCOPE_DEFAULTS: Mapping[str, Any] = {
    "document_ids": [],
    "library_ids": [],
    "reason": "",
    "topic": Topic.AUTO,
    "follows": False,
    "widened": False,
    "standalone_query": "",
    "filters": {},
    "dropped_filters": {},
    "assistant": None,
}


def to_message_json(
    message: Message, document_ids: Collection[UUID] | None = None
) -> dict[str, Any]:
    """A message as the contract shows it, in the language in force.

    A question's links, an answer's feedback, and the run of an answer being written should be
    loaded. For a message just stored, `document_ids` are those it names and nothing is looked up.
    Every answer passes through here several times, so it does without a serializer.
    """
    message = hide_closed(message)
    is_question = message.role == Message.Role.USER
    is_streaming = message.status == Message.Status.STREAMING
    scope, code = message.scope, message.error_code
    verdict: Feedback | None = None
    if document_ids is None and is_question:
        links = message.document_links.all()
        document_ids = [link.document_id for link in links if link.document_id]
    elif document_ids is None:
        verdict = next(iter(message.feedback.all()), None)
    return {
        "id": str(message.pk),
        "chat_id": str(message.chat_id),
        "role": message.role,
        "content": message.content,
        "status": message.status,
        "mode": message.mode or None,
        "label": message.label or None,
        "sources": _to_json_rows(SourceSerializer, message.sources),
        "error": {"code": code, "detail": explain_code(code, message.error_params)}
        if code
        else None,
        "parent_id": message.parent_id and str(message.parent_id),
        "question_type": message.question_type,
        "scope": scope and {key: scope.get(key, SCOPE_DEFAULTS[key]) for key in SCOPE_DEFAULTS},
        "candidates": _to_json_rows(CandidateSerializer, message.candidates),
        "view": message.view and DocumentViewSerializer(message.view).data,
        "usage": message.usage,
        "model": message.model or None,
        "tool_calls": message.tool_calls,
        "reasoning": message.reasoning,
        "grounding": _to_json_rows(CheckedSentenceSerializer, message.grounding),
        "citations": _to_json_rows(CitationSerializer, message.citations),
        "notices": [{"code": item, "detail": explain_notice(item)} for item in message.notices],
        "document_ids": [str(item) for item in document_ids or ()],
        "library_ids": [str(item) for item in message.library_ids or ()],
        "feedback": verdict and {"value": verdict.value, "reason": verdict.reason},
        "run_id": str(message.run.pk) if is_streaming else None,
        "made_at": message.made_at and to_time_json(message.made_at),
        "follow_ups": message.follow_ups or [],
        "created_at": to_time_json(message.created_at),
    }


def _to_json_rows(serializer_class: type[serializers.Serializer[Any]], rows: Any) -> Any:
    """Stored rows, possibly of another version, in the current shape; most messages have none."""
    return serializer_class(rows, many=True).data if rows else rows


def to_started_data(run: Run, document_ids: Collection[UUID] | None = None) -> dict[str, Any]:
    """Data of `run.started`; `document_ids` are those named by a question just stored."""
    question = run.message.parent
    with override(run.language):
        return {
            "user_message": question and to_message_json(question, document_ids),
            "assistant_message": to_message_json(run.message, None if document_ids is None else ()),
        }


def to_terminal_event(run: Run) -> tuple[str, dict[str, Any]]:
    """Type and data of the last event of an ended run."""
    with override(run.language):
        message = to_message_json(run.message)
    if run.message.status == Message.Status.COMPLETED:
        return log.COMPLETED, {"message": message}
    if run.message.status == Message.Status.STOPPED:
        return log.STOPPED, {"message": message}
    return log.ERROR, {**message["error"], "message": message}


def to_frame(kind: str, data: Any, **ids: Any) -> dict[str, Any]:
    """A frame of the socket protocol; `ids` are chat_id, run_id and seq, where they apply."""
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
    deleted = serializers.BooleanField(default=False)
    unreadable = serializers.BooleanField(default=False)


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

    def to_representation(self, instance: Turn) -> dict[str, Any]:
        """The turn without what its reader may no longer read."""
        (turn,) = hide_closed_in_turns([instance], user_id=instance.chat.owner_id)
        data: dict[str, Any] = super().to_representation(turn)
        return data


class RememberedDocumentSerializer(serializers.Serializer[Any]):
    """A document that the conversation is about."""

    document_id = serializers.UUIDField()
    title = serializers.CharField()
    name = serializers.CharField()
    score = serializers.FloatField()


class MemorySerializer(serializers.Serializer[Any]):
    """What a chat is about: see `chats.history.ChatMemory`. Before the first answer all null."""

    document_ids = serializers.ListField(child=serializers.UUIDField())
    documents = RememberedDocumentSerializer(many=True)
    last_question = serializers.CharField(allow_null=True)
    last_answer = serializers.CharField(allow_null=True)
    last_question_type = serializers.CharField(allow_null=True)
    updated_at = serializers.DateTimeField(allow_null=True)


class ContextTurnSerializer(serializers.ModelSerializer[Turn]):
    """A turn as the next question is told of it, in short."""

    turn_id = serializers.UUIDField(source="id", read_only=True)
    message_id = serializers.UUIDField(read_only=True)

    class Meta:
        """Fields of the contract."""

        model = Turn
        fields = ("turn_id", "message_id", "number", "ts", "user_text", "summary")
        read_only_fields = fields


class RunningSummarySerializer(serializers.Serializer[Any]):
    """What the turns up to `through` said. `model`: who wrote it, "user" for a person."""

    text = serializers.CharField()
    through = serializers.IntegerField()
    model = serializers.CharField()


class ContextSerializer(serializers.Serializer[Any]):
    """What the next question is told of its conversation: see `chats.history.ChatContext`."""

    documents = RememberedDocumentSerializer(many=True)
    profile = serializers.ListField(child=serializers.DictField())
    recent_turns = ContextTurnSerializer(many=True, source="recent")
    running_summary = RunningSummarySerializer(source="summary", allow_null=True)
    recalled = ContextTurnSerializer(many=True)


class ContextChange(serializers.Serializer[Any]):
    """Other words for the running summary; `through` as it was read."""

    running_summary = serializers.CharField(
        max_length=MAX_SUMMARY_CHARACTERS, allow_blank=True, trim_whitespace=True
    )
    through = serializers.IntegerField(required=False, allow_null=True, default=None)


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
    """The result of `chats.services.search`."""

    plan = serializers.DictField()
    relevant = serializers.BooleanField()
    gate = GateSerializer()
    hits = HitSerializer(many=True)
    timings_ms = serializers.DictField(child=serializers.FloatField())
