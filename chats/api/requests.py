"""What comes in: validated shapes of requests, the same for REST and sockets."""

from typing import Any

from rest_framework import serializers

from rag.types import StrategyName, Topic

CONTENT_CHARACTERS = 20_000
DOCUMENTS = 1_000


class DocumentIds(serializers.ListField):
    """Ids of documents, each once."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(child=serializers.UUIDField(), max_length=DOCUMENTS, **kwargs)


class TopicField(serializers.ChoiceField):
    """What the user says of a question's bond to the conversation."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(choices=[topic.value for topic in Topic], default=Topic.AUTO, **kwargs)


class SendRequest(serializers.Serializer[Any]):
    """A question: `POST /messages` and the socket's `send`.

    `parent_id` is the message of the chat that it follows; without it, the newest.
    """

    content = serializers.CharField(
        max_length=CONTENT_CHARACTERS, allow_blank=True, trim_whitespace=False
    )
    chat_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    parent_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    document_ids = DocumentIds(required=False, allow_null=True, default=None)
    category_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    client_id = serializers.CharField(required=False, allow_blank=True, default="", max_length=100)
    topic = TopicField(required=False)


class RegenerateRequest(serializers.Serializer[Any]):
    """Another answer to the same question."""

    topic = TopicField(required=False)


class EditRequest(serializers.Serializer[Any]):
    """Other words for a question."""

    content = serializers.CharField(max_length=CONTENT_CHARACTERS, allow_blank=True)


class ChatRequest(serializers.Serializer[Any]):
    """A new chat, or changes to one."""

    title = serializers.CharField(max_length=200, required=False)
    category_id = serializers.UUIDField(required=False, allow_null=True)
    history_pairs = serializers.IntegerField(
        min_value=0, max_value=100, required=False, allow_null=True
    )
    document_ids = DocumentIds(required=False)


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
    content = serializers.CharField(max_length=CONTENT_CHARACTERS, allow_blank=True)


class SearchRequest(serializers.Serializer[Any]):
    """`POST /search`."""

    query = serializers.CharField(max_length=CONTENT_CHARACTERS)
    chat_id = serializers.UUIDField(required=False, allow_null=True, default=None)
    history = HistoryItem(many=True, required=False, allow_null=True, default=None)
    document_ids = DocumentIds(required=False, allow_null=True, default=None)
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
