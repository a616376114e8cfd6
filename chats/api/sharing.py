"""What people share with each other, over REST: chats, assistants and prompts."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext as _
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chats.api.chats import get_own_chat
from chats.models import Assistant, Chat, ChatShare, FolderShare, KeyScope, Message, Prompt
from chats.models.sharing import (
    MAX_INSTRUCTIONS_CHARACTERS,
    MAX_PROMPT_CHARACTERS,
    MAX_STARTER_CHARACTERS,
    MAX_STARTERS,
    NAME_CHARACTERS,
    SYMBOL_CHARACTERS,
)
from chats.serializers import ChatSerializer, ToolIdsField, to_time_json
from chats.services import assistants as services
from chats.services import audience, sharing
from chats.services.audience import MAX_NAMED, Audience, describe_audience
from documents.api.requests import get_user, validate_body, validate_query
from documents.connected.models import SLUG_CHARACTERS
from documents.representation import get_shown_name
from rag.types import Intent


class NamesField(serializers.ListField):
    """Names of people or of groups."""

    def __init__(self, **kwargs: Any) -> None:
        child = serializers.CharField(max_length=150)
        super().__init__(child=child, max_length=MAX_NAMED, required=False, **kwargs)


class AudienceRequest(serializers.Serializer[Any]):
    """Whom something is shared with; without any of these fields that stays as it is."""

    everybody = serializers.BooleanField(required=False)
    users = NamesField(help_text="User names or e-mail addresses")
    groups = NamesField(help_text="Names of groups")


class AudienceSerializer(serializers.Serializer[Any]):
    """Whom something is shared with."""

    everybody = serializers.BooleanField()
    users = serializers.ListField(child=serializers.CharField())
    groups = serializers.ListField(child=serializers.CharField())


def pop_audience(request: Request, fields: dict[str, Any]) -> Audience | None:
    """Remove the audience from the fields of a body and return it; None if there is none.

    Raises `serializers.ValidationError` for names that nobody has.
    """
    names = {name: fields.pop(name) for name in ("everybody", "users", "groups") if name in fields}
    if not names:
        return None
    try:
        return audience.find_audience(
            user=get_user(request),
            everybody=names.get("everybody", False),
            usernames=names.get("users", ()),
            group_names=names.get("groups", ()),
        )
    except ValidationError as error:
        raise serializers.ValidationError(error.message_dict) from error


class PeopleQuery(serializers.Serializer[Any]):
    """What has been typed of a name."""

    q = serializers.CharField(max_length=150, required=False, allow_blank=True, default="")


class PersonSerializer(serializers.Serializer[Any]):
    """Somebody with whom the user may share something."""

    username = serializers.CharField()
    name = serializers.CharField(help_text="The name that others see")

    def to_representation(self, person: User) -> dict[str, str]:
        """The person by both names."""
        return {"username": person.get_username(), "name": get_shown_name(person)}


class PeopleView(APIView):
    """People to share with, suggested while a name is typed."""

    @extend_schema(parameters=[PeopleQuery], responses=PersonSerializer(many=True))
    def get(self, request: Request) -> Response:
        """A few with this in their name, of those whose names the user is shown elsewhere."""
        text = validate_query(PeopleQuery, request)["q"]
        people = audience.suggest_people(user=get_user(request), text=text)
        return Response(PersonSerializer(people, many=True).data)


class ShareRequest(AudienceRequest):
    """Whom a chat is shared with, and until when."""

    expires_at = serializers.DateTimeField(required=False, allow_null=True)

    def validate_expires_at(self, moment: Any) -> Any:
        """In the future."""
        if moment is not None and moment <= timezone.now():
            raise serializers.ValidationError(_("Choose a time in the future."))
        return moment


class ShareChange(ShareRequest):
    """Changes to a share; `update` adds what has been said since."""

    update = serializers.BooleanField(required=False, default=False)  # type: ignore[assignment]


class ShareSerializer(serializers.Serializer[Any]):
    """A chat that its owner shares, as it was at `shown_at`."""

    id = serializers.UUIDField()
    chat_id = serializers.UUIDField()
    title = serializers.CharField()
    audience = AudienceSerializer()
    expires_at = serializers.DateTimeField(allow_null=True)
    is_over = serializers.BooleanField()
    shown_at = serializers.DateTimeField()
    created_at = serializers.DateTimeField()

    def to_representation(self, share: ChatShare) -> dict[str, Any]:
        """The share as its owner sees it."""
        expires_at = share.expires_at
        return {
            "id": str(share.pk),
            "chat_id": str(share.chat_id),
            "title": share.chat.title,
            "audience": audience.describe_audience(share),
            "expires_at": expires_at and to_time_json(expires_at),
            "is_over": expires_at is not None and expires_at <= timezone.now(),
            "shown_at": to_time_json(share.shown_at),
            "created_at": to_time_json(share.created_at),
        }


class SharedChatSerializer(serializers.Serializer[Any]):
    """A chat that somebody else shares."""

    id = serializers.UUIDField()
    title = serializers.CharField()
    owner = serializers.CharField(help_text="The name that others see")
    expires_at = serializers.DateTimeField(allow_null=True)
    shown_at = serializers.DateTimeField()

    def to_representation(self, share: ChatShare) -> dict[str, Any]:
        """The share as a reader sees it."""
        return {
            "id": str(share.pk),
            "title": share.chat.title,
            "owner": get_shown_name(share.chat.owner),
            "expires_at": share.expires_at and to_time_json(share.expires_at),
            "shown_at": to_time_json(share.shown_at),
        }


class SharedSourceSerializer(serializers.Serializer[Any]):
    """A source of an answer. For a document that you may not read, only its number is given."""

    slot = serializers.IntegerField()
    available = serializers.BooleanField()
    document_id = serializers.UUIDField(required=False)
    document_name = serializers.CharField(required=False)
    chunk_id = serializers.CharField(required=False)
    page = serializers.IntegerField(required=False, allow_null=True)
    section = serializers.CharField(required=False)
    content_preview = serializers.CharField(required=False)


class SharedMessageSerializer(serializers.Serializer[Any]):
    """A message as you may read it."""

    id = serializers.UUIDField()
    role = serializers.ChoiceField(choices=Message.Role.choices)
    content = serializers.CharField()
    label = serializers.CharField(allow_null=True)  # type: ignore[assignment] # of the contract
    sources = SharedSourceSerializer(many=True)
    created_at = serializers.DateTimeField()

    def to_representation(self, message: sharing.SharedMessage) -> dict[str, Any]:
        """The message as the reader may see it."""
        data = message.to_json()
        return {**data, "created_at": to_time_json(data["created_at"])}


class SharedChatWithMessages(SharedChatSerializer):
    """A chat that somebody else shares, with its messages."""

    messages = SharedMessageSerializer(many=True)

    def to_representation(self, share: ChatShare) -> dict[str, Any]:
        """The share with its messages, as far as the reader may see them."""
        shown = sharing.read_share(share=share, reader=self.context["reader"])
        messages = SharedMessageSerializer(shown, many=True).data
        return {**super().to_representation(share), "messages": messages}


class ChatShareView(APIView):
    """`POST /chats/{id}/share`."""

    change_scope = KeyScope.ASK

    @extend_schema(request=ShareRequest, responses={201: ShareSerializer})
    def post(self, request: Request, chat_id: UUID) -> Response:
        """Share a chat of yours with these people, as it is now."""
        chat = get_own_chat(request, chat_id)
        fields = validate_body(ShareRequest, request)
        audience = pop_audience(request, fields) or Audience()
        share = sharing.share_chat(
            user=get_user(request),
            chat=chat,
            audience=audience,
            expires_at=fields.get("expires_at"),
        )
        return Response(ShareSerializer(share).data, status=status.HTTP_201_CREATED)


class ShareViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[ChatShare]
):
    """The chats that you share."""

    queryset = ChatShare.objects.none()
    serializer_class = ShareSerializer
    change_scope = KeyScope.ASK
    lookup_value_converter = "uuid"

    def get_queryset(self) -> QuerySet[ChatShare]:
        """The user's own shares."""
        rows = ChatShare.objects.owned_by(get_user(self.request)).select_related("chat")
        return rows.prefetch_related("users", "groups")

    @extend_schema(request=ShareChange, responses=ShareSerializer)
    def partial_update(self, request: Request, pk: UUID) -> Response:
        """Change the audience or the end of a share, or add what has been said since."""
        share = self.get_object()
        fields = validate_body(ShareChange, request)
        sharing.change_share(
            user=get_user(request),
            share=share,
            audience=pop_audience(request, fields),
            expires_at=fields.get("expires_at", share.expires_at),
            is_updated=fields["update"],
        )
        return Response(ShareSerializer(self.get_queryset().get(pk=pk)).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: UUID) -> Response:
        """Stop sharing."""
        sharing.end_shares(user=get_user(request), shares=[self.get_object()])
        return Response(status=status.HTTP_204_NO_CONTENT)


class SharedViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[ChatShare]
):
    """The chats that others share with you."""

    queryset = ChatShare.objects.none()
    serializer_class = SharedChatSerializer
    change_scope = KeyScope.ASK
    lookup_value_converter = "uuid"

    def get_queryset(self) -> QuerySet[ChatShare]:
        """Chats of others; a single one may also be the user's own, as readers see it."""
        user = get_user(self.request)
        shares = ChatShare.objects
        rows = shares.shown_to(user) if self.action == "list" else shares.visible_to(user)
        return rows.select_related("chat__owner")

    @extend_schema(responses=SharedChatWithMessages)
    def retrieve(self, request: Request, pk: UUID) -> Response:
        """A shared chat, with the sources that you may read."""
        context = {"reader": get_user(request)}
        return Response(SharedChatWithMessages(self.get_object(), context=context).data)

    @extend_schema(request=None, responses={201: ChatSerializer})
    @action(detail=True, methods=["post"])
    def fork(self, request: Request, pk: UUID) -> Response:
        """A chat of your own that continues where this one ends."""
        chat = sharing.copy_shared_chat(reader=get_user(request), share=self.get_object())
        copy = Chat.objects.prefetch_related("document_links").get(pk=chat.pk)
        return Response(ChatSerializer(copy).data, status=status.HTTP_201_CREATED)


MAX_IMPORTED = 500
MAX_ASSISTANT_LIBRARIES = 200


class PromptText(serializers.Serializer[Any]):
    """A prompt in an export."""

    title = serializers.CharField(max_length=NAME_CHARACTERS)
    folder = serializers.CharField(
        max_length=NAME_CHARACTERS, required=False, allow_blank=True, help_text="Empty: in none"
    )
    text = serializers.CharField(max_length=MAX_PROMPT_CHARACTERS, trim_whitespace=False)


class PromptRequest(AudienceRequest, PromptText):
    """A prompt with placeholders: `{{name}}`."""


class PromptsFile(serializers.Serializer[Any]):
    """An export of prompts."""

    prompts = serializers.ListField(child=PromptText(), max_length=MAX_IMPORTED)


class ImportedPrompts(serializers.Serializer[Any]):
    """How many prompts were new."""

    count = serializers.IntegerField()


class PromptSerializer(serializers.Serializer[Any]):
    """A prompt. `audience` is null for prompts of others; sharing its folder shares it too."""

    id = serializers.UUIDField()
    title = serializers.CharField()
    folder = serializers.CharField()
    text = serializers.CharField()
    shared = serializers.BooleanField()
    audience = AudienceSerializer(allow_null=True)
    is_own = serializers.BooleanField()
    owner = serializers.CharField(help_text="The name that others see")
    updated_at = serializers.DateTimeField()

    def to_representation(self, prompt: Prompt) -> dict[str, Any]:
        """The prompt as the user sees it."""
        is_own = prompt.owner_id == get_user(self.context["request"]).pk
        return {
            "id": str(prompt.pk),
            "title": prompt.title,
            "folder": prompt.folder,
            "text": prompt.text,
            "shared": prompt.is_shared or prompt.is_in_shared_folder,
            "audience": describe_audience(prompt) if is_own else None,
            "is_own": is_own,
            "owner": get_shown_name(prompt.owner),
            "updated_at": to_time_json(prompt.updated_at),
        }


class FolderRequest(AudienceRequest):
    """A folder of your prompts, by name, and whom it is shared with."""

    name = serializers.CharField(max_length=NAME_CHARACTERS)


class FolderSerializer(serializers.Serializer[Any]):
    """A shared folder of prompts. `audience` is null for folders of others."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    audience = AudienceSerializer(allow_null=True)
    is_own = serializers.BooleanField()
    owner = serializers.CharField(help_text="The name that others see")

    def to_representation(self, share: FolderShare) -> dict[str, Any]:
        """The folder as the user sees it."""
        is_own = share.owner_id == get_user(self.context["request"]).pk
        return {
            "id": str(share.pk),
            "name": share.name,
            "audience": describe_audience(share) if is_own else None,
            "is_own": is_own,
            "owner": get_shown_name(share.owner),
        }


class AssistantRequest(AudienceRequest):
    """An assistant: its name, how it answers, and where it searches."""

    name = serializers.CharField(max_length=NAME_CHARACTERS)
    symbol = serializers.CharField(
        max_length=SYMBOL_CHARACTERS, required=False, allow_blank=True, help_text="An emoji"
    )
    description = serializers.CharField(max_length=200, required=False, allow_blank=True)
    instructions = serializers.CharField(
        max_length=MAX_INSTRUCTIONS_CHARACTERS, required=False, allow_blank=True
    )
    library_ids = serializers.ListField(
        child=serializers.UUIDField(),
        max_length=MAX_ASSISTANT_LIBRARIES,
        required=False,
        help_text="Where it searches, as far as the asker may read; empty: everywhere",
    )
    tool_ids = ToolIdsField(
        required=False, help_text="Tool servers that it uses, if the asker may use them"
    )
    model = serializers.CharField(
        max_length=SLUG_CHARACTERS, required=False, allow_blank=True, allow_null=True
    )
    intent = serializers.ChoiceField(
        choices=[one.value for one in Intent], required=False, allow_blank=True, allow_null=True
    )
    temperature = serializers.FloatField(min_value=0, max_value=2, required=False, allow_null=True)
    shared = serializers.BooleanField(
        required=False, help_text="In place of an audience: true for everybody, false for nobody"
    )
    starters = serializers.ListField(
        child=serializers.CharField(max_length=MAX_STARTER_CHARACTERS),
        max_length=MAX_STARTERS,
        required=False,
    )


def _describe_assistants(rows: list[Assistant], context: Mapping[str, Any]) -> list[dict[str, Any]]:
    described = services.describe_assistants(rows, get_user(context["request"]))
    times = ("created_at", "updated_at")
    return [item | {name: to_time_json(item[name]) for name in times} for item in described]


class AssistantListSerializer(serializers.ListSerializer[Any]):
    """Assistants as the user sees them."""

    def to_representation(self, data: Iterable[Assistant]) -> list[dict[str, Any]]:  # type: ignore[override]
        """Describe all of them with a constant number of queries."""
        return _describe_assistants(list(data), self.context)


class AssistantSerializer(serializers.Serializer[Any]):
    """An assistant. `library_ids` are those of its libraries that you may read.

    `is_limited`: it has libraries. `audience` is null for assistants of others.
    """

    id = serializers.UUIDField()
    name = serializers.CharField()
    symbol = serializers.CharField()
    description = serializers.CharField()
    instructions = serializers.CharField()
    library_ids = serializers.ListField(child=serializers.UUIDField())
    is_limited = serializers.BooleanField()
    tool_ids = serializers.ListField(child=serializers.UUIDField())
    model = serializers.CharField(allow_null=True)
    intent = serializers.ChoiceField(choices=[one.value for one in Intent], allow_null=True)
    temperature = serializers.FloatField(allow_null=True)
    starters = serializers.ListField(child=serializers.CharField())
    shared = serializers.BooleanField()
    audience = AudienceSerializer(allow_null=True)
    is_own = serializers.BooleanField()
    owner = serializers.CharField(help_text="The name that others see")
    created_at = serializers.DateTimeField()
    updated_at = serializers.DateTimeField()

    class Meta:
        """A list takes no more queries than one."""

        list_serializer_class = AssistantListSerializer

    def to_representation(self, assistant: Assistant) -> dict[str, Any]:
        """The assistant as the user sees it."""
        return _describe_assistants([assistant], self.context)[0]


class PreparedViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Any]
):
    """What people prepare for asking: the user's own, and what others share."""

    queryset: Any
    change_scope = KeyScope.ASK
    lookup_value_converter = "uuid"

    def get_queryset(self) -> Any:
        """Those that the user may use; only their own can be changed."""
        user, rows = get_user(self.request), self.queryset.all()
        is_change = self.action in {"partial_update", "destroy"}
        allowed = rows.owned_by(user) if is_change else rows.visible_to(user)
        return allowed.select_related("owner").prefetch_related("users", "groups")


class PromptViewSet(PreparedViewSet):
    """Prompts: the user's own and those that others share."""

    queryset = Prompt.objects.with_folder_shares()
    serializer_class = PromptSerializer

    @extend_schema(request=PromptRequest, responses={201: PromptSerializer})
    def create(self, request: Request) -> Response:
        """Create a prompt."""
        fields, audience = _validate_with_audience(PromptRequest, request)
        prompt = services.save_prompt(actor=get_user(request), fields=fields, audience=audience)
        serializer = self.get_serializer(self.get_queryset().get(pk=prompt.pk))
        return Response(serializer.data, status=status.HTTP_201_CREATED)

    @extend_schema(request=PromptRequest, responses=PromptSerializer)
    def partial_update(self, request: Request, pk: UUID) -> Response:
        """Change a prompt, or whom it is shared with."""
        prompt = self.get_object()
        fields, audience = _validate_with_audience(PromptRequest, request, partial=True)
        services.save_prompt(
            actor=get_user(request), prompt=prompt, fields=fields, audience=audience
        )
        return Response(self.get_serializer(self.get_queryset().get(pk=pk)).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: UUID) -> Response:
        """Delete a prompt."""
        services.delete_prepared(actor=get_user(request), row=self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(responses=PromptsFile)
    @action(detail=False, filter_backends=[], pagination_class=None)
    def export(self, request: Request) -> Response:
        """Export all of your prompts."""
        return Response({"prompts": services.export_prompts(get_user(request))})

    @extend_schema(request=PromptsFile, responses=ImportedPrompts)
    @action(detail=False, methods=["post"], url_path="import")
    def take(self, request: Request) -> Response:
        """Import prompts; those that you have already are skipped."""
        prompts = validate_body(PromptsFile, request)["prompts"]
        return Response(
            {"count": services.import_prompts(owner=get_user(request), prompts=prompts)}
        )


class FolderViewSet(PreparedViewSet):
    """Shared folders of prompts: the user's own and those of others."""

    queryset = FolderShare.objects.all()
    serializer_class = FolderSerializer

    @extend_schema(request=FolderRequest, responses={201: FolderSerializer})
    def create(self, request: Request) -> Response:
        """Share a folder: the prompts in it, and those added later."""
        fields, audience = _validate_with_audience(FolderRequest, request)
        share = services.share_folder(
            actor=get_user(request), name=fields["name"], audience=audience or Audience()
        )
        return Response(self.get_serializer(share).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=AudienceRequest, responses=FolderSerializer)
    def partial_update(self, request: Request, pk: UUID) -> Response:
        """Change whom it is shared with."""
        share = self.get_object()
        _fields, audience = _validate_with_audience(AudienceRequest, request)
        if audience is not None:
            services.share_folder(actor=get_user(request), name=share.name, audience=audience)
        return Response(self.get_serializer(self.get_queryset().get(pk=pk)).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: UUID) -> Response:
        """Stop sharing it; the prompts stay."""
        services.delete_prepared(actor=get_user(request), row=self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)


class AssistantViewSet(PreparedViewSet):
    """Assistants: the user's own and those that others share."""

    queryset = Assistant.objects.defer("picture")
    serializer_class = AssistantSerializer

    @extend_schema(request=AssistantRequest, responses={201: AssistantSerializer})
    def create(self, request: Request) -> Response:
        """Create an assistant."""
        fields, audience = _validate_with_audience(AssistantRequest, request)
        row = services.save_assistant(actor=get_user(request), fields=fields, audience=audience)
        return Response(self.get_serializer(row).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=AssistantRequest, responses=AssistantSerializer)
    def partial_update(self, request: Request, pk: UUID) -> Response:
        """Change an assistant, or whom it is shared with."""
        row = self.get_object()
        fields, audience = _validate_with_audience(AssistantRequest, request, partial=True)
        services.save_assistant(
            actor=get_user(request), assistant=row, fields=fields, audience=audience
        )
        return Response(self.get_serializer(self.get_queryset().get(pk=pk)).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: UUID) -> Response:
        """Delete an assistant; its chats continue without it."""
        services.delete_prepared(actor=get_user(request), row=self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)


def _validate_with_audience(
    serializer_class: type[AudienceRequest], request: Request, *, partial: bool = False
) -> tuple[dict[str, Any], Audience | None]:
    """The fields of the body and the new audience; None: the audience stays as it is."""
    fields = validate_body(serializer_class, request, partial=partial)
    audience = pop_audience(request, fields)
    shared = fields.pop("shared", None)
    if audience is None and shared is not None:
        audience = Audience(everybody=shared)
    for name in ("model", "intent"):
        if name in fields:
            fields[name] = fields[name] or ""
    return fields, audience
