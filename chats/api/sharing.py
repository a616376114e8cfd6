"""What people show one another, over REST: chats, assistants and prompts."""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

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

from chats.access import get_user
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
from documents.connected.models import SLUG_CHARACTERS
from documents.representation import get_shown_name
from rag.types import Intent


class NamesField(serializers.ListField):
    """Names of people or of groups."""

    def __init__(self, **kwargs: Any) -> None:
        child = serializers.CharField(max_length=150)
        super().__init__(child=child, max_length=MAX_NAMED, required=False, **kwargs)


class AudienceRequest(serializers.Serializer[Any]):
    """To whom something is shown; without any of these fields that stays as it is."""

    everybody = serializers.BooleanField(required=False)
    users = NamesField(help_text="User names")
    groups = NamesField(help_text="Names of groups")


class AudienceSerializer(serializers.Serializer[Any]):
    """To whom something is shown."""

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


class ShareRequest(AudienceRequest):
    """To whom a chat is shown, and until when."""

    expires_at = serializers.DateTimeField(required=False, allow_null=True)

    def validate_expires_at(self, moment: Any) -> Any:
        """Not in the past."""
        if moment is not None and moment <= timezone.now():
            raise serializers.ValidationError(_("Choose a time in the future."))
        return moment


class ShareChange(ShareRequest):
    """The same of a chat that is shown; `update`: with all that was said since."""

    update = serializers.BooleanField(required=False, default=False)  # type: ignore[assignment]


class ShareSerializer(serializers.Serializer[Any]):
    """A chat that its owner shows to others, as it was at `shown_at`."""

    id = serializers.UUIDField()
    chat_id = serializers.UUIDField()
    title = serializers.CharField()
    audience = AudienceSerializer()
    expires_at = serializers.DateTimeField(allow_null=True)
    is_over = serializers.BooleanField()
    shown_at = serializers.DateTimeField()
    created_at = serializers.DateTimeField()

    def to_representation(self, share: ChatShare) -> dict[str, Any]:
        """A share of one's own."""
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
    """A chat that somebody shows."""

    id = serializers.UUIDField()
    title = serializers.CharField()
    owner = serializers.CharField(help_text="The name that others see")
    expires_at = serializers.DateTimeField(allow_null=True)
    shown_at = serializers.DateTimeField()

    def to_representation(self, share: ChatShare) -> dict[str, Any]:
        """What a reader is told of it."""
        return {
            "id": str(share.pk),
            "title": share.chat.title,
            "owner": get_shown_name(share.chat.owner),
            "expires_at": share.expires_at and to_time_json(share.expires_at),
            "shown_at": to_time_json(share.shown_at),
        }


class SharedSourceSerializer(serializers.Serializer[Any]):
    """What an answer rests on. Of a document that you may not read there is its number alone."""

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
        """As the reader may see it."""
        data = message.to_json()
        return {**data, "created_at": to_time_json(data["created_at"])}


class SharedChatWithMessages(SharedChatSerializer):
    """A chat that somebody shows, with its messages."""

    messages = SharedMessageSerializer(many=True)

    def to_representation(self, share: ChatShare) -> dict[str, Any]:
        """With what the reader may see."""
        shown = sharing.read_share(share=share, reader=self.context["reader"])
        messages = SharedMessageSerializer(shown, many=True).data
        return {**super().to_representation(share), "messages": messages}


class ChatShareView(APIView):
    """`POST /chats/{id}/share`."""

    change_scope = KeyScope.ASK

    @extend_schema(request=ShareRequest, responses={201: ShareSerializer})
    def post(self, request: Request, chat_id: UUID) -> Response:
        """Show a chat of yours, as it is now, to these people."""
        chat = get_own_chat(request, chat_id)
        serializer = ShareRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        fields = dict(serializer.validated_data)
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
    """The chats that you show to others."""

    queryset = ChatShare.objects.none()
    serializer_class = ShareSerializer
    change_scope = KeyScope.ASK
    lookup_value_converter = "uuid"

    def get_queryset(self) -> QuerySet[ChatShare]:
        """One's own."""
        rows = ChatShare.objects.owned_by(get_user(self.request)).select_related("chat")
        return rows.prefetch_related("users", "groups")

    @extend_schema(request=ShareChange, responses=ShareSerializer)
    def partial_update(self, request: Request, pk: UUID) -> Response:
        """Show it to others, until another time, or with what was said since."""
        share = self.get_object()
        serializer = ShareChange(data=request.data)
        serializer.is_valid(raise_exception=True)
        fields = dict(serializer.validated_data)
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
        """Show it to nobody any more."""
        sharing.end_shares(user=get_user(request), shares=[self.get_object()])
        return Response(status=status.HTTP_204_NO_CONTENT)


class SharedViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[ChatShare]
):
    """The chats that others show you."""

    queryset = ChatShare.objects.none()
    serializer_class = SharedChatSerializer
    change_scope = KeyScope.ASK
    lookup_value_converter = "uuid"

    def get_queryset(self) -> QuerySet[ChatShare]:
        """Those of others; one of them may also be one's own, as a reader sees it."""
        user = get_user(self.request)
        shares = ChatShare.objects
        rows = shares.shown_to(user) if self.action == "list" else shares.visible_to(user)
        return rows.select_related("chat__owner")

    @extend_schema(responses=SharedChatWithMessages)
    def retrieve(self, request: Request, pk: UUID) -> Response:
        """A shared chat; its sources as far as you may read them."""
        context = {"reader": get_user(request)}
        return Response(SharedChatWithMessages(self.get_object(), context=context).data)

    @extend_schema(request=None, responses={201: ChatSerializer})
    @action(detail=True, methods=["post"])
    def fork(self, request: Request, pk: UUID) -> Response:
        """A chat of your own that goes on where this one ends."""
        chat = sharing.copy_shared_chat(reader=get_user(request), share=self.get_object())
        copy = Chat.objects.prefetch_related("document_links").get(pk=chat.pk)
        return Response(ChatSerializer(copy).data, status=status.HTTP_201_CREATED)


MAX_IMPORTED = 500
MAX_ASSISTANT_LIBRARIES = 200


class PromptText(serializers.Serializer[Any]):
    """A prompt to take along."""

    title = serializers.CharField(max_length=NAME_CHARACTERS)
    folder = serializers.CharField(
        max_length=NAME_CHARACTERS, required=False, allow_blank=True, help_text="Empty: in none"
    )
    text = serializers.CharField(max_length=MAX_PROMPT_CHARACTERS, trim_whitespace=False)


class PromptRequest(AudienceRequest, PromptText):
    """A prompt, with places to fill in: `{{name}}`."""


class PromptsFile(serializers.Serializer[Any]):
    """Prompts to take along."""

    prompts = serializers.ListField(child=PromptText(), max_length=MAX_IMPORTED)


class ImportedPrompts(serializers.Serializer[Any]):
    """How many prompts were new."""

    count = serializers.IntegerField()


class PromptSerializer(serializers.Serializer[Any]):
    """A prompt. `audience` is null in those of others; who has its folder has it besides."""

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
        """As the user sees it."""
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
    """A folder of your prompts, by its name, and who has what is in it."""

    name = serializers.CharField(max_length=NAME_CHARACTERS)


class FolderSerializer(serializers.Serializer[Any]):
    """A folder of prompts that is shared. `audience` is null in those of others."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    audience = AudienceSerializer(allow_null=True)
    is_own = serializers.BooleanField()
    owner = serializers.CharField(help_text="The name that others see")

    def to_representation(self, share: FolderShare) -> dict[str, Any]:
        """As the user sees it."""
        is_own = share.owner_id == get_user(self.context["request"]).pk
        return {
            "id": str(share.pk),
            "name": share.name,
            "audience": describe_audience(share) if is_own else None,
            "is_own": is_own,
            "owner": get_shown_name(share.owner),
        }


class AssistantRequest(AudienceRequest):
    """An assistant: what it is called, how it answers, where it looks."""

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
        help_text="Where it looks, as far as the asker may read; none: all that the asker may read",
    )
    tool_ids = ToolIdsField(
        required=False, help_text="Tool servers that it uses, as far as the asker may"
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
        """All at once."""
        return _describe_assistants(list(data), self.context)


class AssistantSerializer(serializers.Serializer[Any]):
    """An assistant. `library_ids` are those that you may read; `is_limited`: it has some.

    `audience` is null in those of others.
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
        """Many are described with the queries of one."""

        list_serializer_class = AssistantListSerializer

    def to_representation(self, assistant: Assistant) -> dict[str, Any]:
        """As the user sees it."""
        return _describe_assistants([assistant], self.context)[0]


class PreparedViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Any]
):
    """What people prepare: one's own, and what others share."""

    queryset: Any
    change_scope = KeyScope.ASK
    lookup_value_converter = "uuid"

    def get_queryset(self) -> Any:
        """Those that may be used; to change, one's own."""
        user, rows = get_user(self.request), self.queryset.all()
        is_change = self.action in {"partial_update", "destroy"}
        allowed = rows.owned_by(user) if is_change else rows.visible_to(user)
        return allowed.select_related("owner").prefetch_related("users", "groups")


class PromptViewSet(PreparedViewSet):
    """Prompts: one's own and those that others share."""

    queryset = Prompt.objects.with_folder_shares()
    serializer_class = PromptSerializer

    @extend_schema(request=PromptRequest, responses={201: PromptSerializer})
    def create(self, request: Request) -> Response:
        """Keep a prompt."""
        fields, audience = _parse_body(PromptRequest, request)
        prompt = services.save_prompt(actor=get_user(request), fields=fields, audience=audience)
        serializer = self.get_serializer(self.get_queryset().get(pk=prompt.pk))
        return Response(serializer.data, status=status.HTTP_201_CREATED)

    @extend_schema(request=PromptRequest, responses=PromptSerializer)
    def partial_update(self, request: Request, pk: UUID) -> Response:
        """Change a prompt, or share it with others."""
        prompt = self.get_object()
        fields, audience = _parse_body(PromptRequest, request, partial=True)
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
        """All prompts of one's own, to take along."""
        return Response({"prompts": services.export_prompts(get_user(request))})

    @extend_schema(request=PromptsFile, responses=ImportedPrompts)
    @action(detail=False, methods=["post"], url_path="import")
    def take(self, request: Request) -> Response:
        """Keep the prompts of a file; those that are there already stay once."""
        serializer = PromptsFile(data=request.data)
        serializer.is_valid(raise_exception=True)
        prompts = serializer.validated_data["prompts"]
        return Response(
            {"count": services.import_prompts(owner=get_user(request), prompts=prompts)}
        )


class FolderViewSet(PreparedViewSet):
    """Folders of prompts that are shared: one's own and those of others."""

    queryset = FolderShare.objects.all()
    serializer_class = FolderSerializer

    @extend_schema(request=FolderRequest, responses={201: FolderSerializer})
    def create(self, request: Request) -> Response:
        """Share a folder: the prompts that are in it, and those that you put there later."""
        fields, audience = _parse_body(FolderRequest, request)
        share = services.share_folder(
            actor=get_user(request), name=fields["name"], audience=audience or Audience()
        )
        return Response(self.get_serializer(share).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=AudienceRequest, responses=FolderSerializer)
    def partial_update(self, request: Request, pk: UUID) -> Response:
        """Share it with others."""
        share = self.get_object()
        _fields, audience = _parse_body(AudienceRequest, request)
        if audience is not None:
            services.share_folder(actor=get_user(request), name=share.name, audience=audience)
        return Response(self.get_serializer(self.get_queryset().get(pk=pk)).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: UUID) -> Response:
        """Share it with nobody any more; its prompts stay yours."""
        services.delete_prepared(actor=get_user(request), row=self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)


class AssistantViewSet(PreparedViewSet):
    """Assistants: one's own and those that others share."""

    queryset = Assistant.objects.defer("picture")
    serializer_class = AssistantSerializer

    @extend_schema(request=AssistantRequest, responses={201: AssistantSerializer})
    def create(self, request: Request) -> Response:
        """Make an assistant."""
        fields, audience = _parse_body(AssistantRequest, request)
        row = services.save_assistant(actor=get_user(request), fields=fields, audience=audience)
        return Response(self.get_serializer(row).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=AssistantRequest, responses=AssistantSerializer)
    def partial_update(self, request: Request, pk: UUID) -> Response:
        """Change an assistant, or share it with others."""
        row = self.get_object()
        fields, audience = _parse_body(AssistantRequest, request, partial=True)
        services.save_assistant(
            actor=get_user(request), assistant=row, fields=fields, audience=audience
        )
        return Response(self.get_serializer(self.get_queryset().get(pk=pk)).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: UUID) -> Response:
        """Delete an assistant; chats with it go on without."""
        services.delete_prepared(actor=get_user(request), row=self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)


def _parse_body(
    serializer_class: type[AudienceRequest], request: Request, *, partial: bool = False
) -> tuple[dict[str, Any], Any]:
    """The fields of a body, and to whom it is to be shown; None: that stays."""
    serializer = serializer_class(data=request.data, partial=partial)
    serializer.is_valid(raise_exception=True)
    fields = dict(serializer.validated_data)
    audience = pop_audience(request, fields)
    shared = fields.pop("shared", None)
    if audience is None and shared is not None:
        audience = Audience(everybody=shared)
    for name in ("model", "intent"):
        if name in fields:
            fields[name] = fields[name] or ""
    return fields, audience
