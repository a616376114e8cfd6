"""Chats and categories over REST: also a chat's memory, its turns, and its export."""

from typing import Any
from uuid import UUID

from django.db import IntegrityError
from django.db.models import QuerySet
from django.http import HttpResponse
from django.utils.http import content_disposition_header
from django.utils.translation import gettext as _
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.generics import ListAPIView, get_object_or_404
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chats.history import Branch, describe_context, describe_memory
from chats.models import Category, Chat, KeyScope, Message, Turn
from chats.models.memory import TurnQuerySet
from chats.serializers import (
    BranchRequest,
    CategoryRequest,
    CategorySerializer,
    ChatChange,
    ChatListQuery,
    ChatRequest,
    ChatSerializer,
    ChatsRequest,
    ContextChange,
    ContextSerializer,
    ForkRequest,
    MemorySerializer,
    MessageSerializer,
    ShownDocumentSerializer,
    TurnSerializer,
)
from chats.services import branches
from chats.services import chats as services
from chats.services.erasure import hide_closed_in_turns, load_closed_documents
from chats.services.export import export_json, export_markdown, export_pdf, make_file_name
from documents.api.requests import get_user, validate_body, validate_query


@extend_schema_view(list=extend_schema(parameters=[ChatListQuery]))
class ChatViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Chat]):
    """The user's chats, the most recently used first."""

    queryset = Chat.objects.none()
    serializer_class = ChatSerializer
    change_scope = KeyScope.ASK
    lookup_value_converter = "uuid"

    def get_queryset(self) -> QuerySet[Chat]:
        """The user's own chats; a list is filtered by the query."""
        rows = Chat.objects.visible_to(get_user(self.request))
        if self.action == "list":
            rows = rows.narrowed(**validate_query(ChatListQuery, self.request))
        return rows.with_answering().prefetch_related("document_links")

    @extend_schema(request=ChatRequest, responses={201: ChatSerializer})
    def create(self, request: Request) -> Response:
        """Make a chat."""
        fields = validate_body(ChatRequest, request)
        title = fields.pop("title", None) or _("New chat")
        chat = services.create_chat(owner=get_user(request), title=title, **fields)
        return Response(ChatSerializer(chat).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=ChatChange, responses=ChatSerializer)
    def partial_update(self, request: Request, pk: UUID) -> Response:
        """Rename a chat, or change its category, history, documents or place in the sidebar."""
        chat = self.get_object()
        chat = services.update_chat(chat=chat, changes=validate_body(ChatChange, request))
        return Response(ChatSerializer(self.get_queryset().get(pk=chat.pk)).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: UUID) -> Response:
        """Delete a chat (an administrator can restore it)."""
        services.delete_chat(chat=self.get_object(), actor=get_user(request))
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=ChatsRequest, responses={204: None})
    @action(detail=False, methods=["post"])
    def bulk(self, request: Request) -> Response:
        """Change or delete several chats: all of them, or none if one does not exist."""
        changes = validate_body(ChatsRequest, request)
        target = {"owner": get_user(request), "chat_ids": changes.pop("chat_ids")}
        if changes.pop("deleted"):
            services.delete_chats(**target, actor=get_user(request))
        else:
            services.change_chats(**target, changes=changes)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(responses=MessageSerializer(many=True))
    @action(detail=True, filter_backends=[])
    def messages(self, request: Request, pk: UUID) -> Response:
        """Messages of the chat, oldest first."""
        rows = Message.objects.filter(chat=self.get_object()).order_by("created_at", "id")
        rows = rows.select_related("run").prefetch_related("document_links", "feedback")
        page: Any = self.paginate_queryset(rows)  # type: ignore[arg-type] # messages, not chats
        load_closed_documents(page, user_id=get_user(request).pk)
        return self.get_paginated_response(MessageSerializer(page, many=True).data)

    @extend_schema(request=ForkRequest, responses={201: ChatSerializer})
    @action(detail=True, methods=["post"], filter_backends=[])
    def fork(self, request: Request, pk: UUID) -> Response:
        """A new chat with a copy of the branch up to a message."""
        chat = self.get_object()
        message_id = validate_body(ForkRequest, request)["message_id"]
        fork = branches.fork_chat(user=get_user(request), chat=chat, message_id=message_id)
        return Response(
            ChatSerializer(self.get_queryset().get(pk=fork.pk)).data,
            status=status.HTTP_201_CREATED,
        )


class CategoryViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Category]
):
    """The user's categories, by name."""

    queryset = Category.objects.none()
    serializer_class = CategorySerializer
    change_scope = KeyScope.ASK
    lookup_value_converter = "uuid"

    def get_queryset(self) -> QuerySet[Category]:
        """Own categories."""
        return Category.objects.owned_by(get_user(self.request))

    @extend_schema(request=CategoryRequest, responses={201: CategorySerializer})
    def create(self, request: Request) -> Response:
        """Make a category."""
        category = Category(owner=get_user(request), **validate_body(CategoryRequest, request))
        return Response(_save_category(category), status=status.HTTP_201_CREATED)

    @extend_schema(request=CategoryRequest, responses=CategorySerializer)
    def partial_update(self, request: Request, pk: UUID) -> Response:
        """Rename a category."""
        category = self.get_object()
        category.name = validate_body(CategoryRequest, request)["name"]
        return Response(_save_category(category))

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: UUID) -> Response:
        """Delete a category; its chats stay."""
        self.get_object().delete()
        return Response(status=status.HTTP_204_NO_CONTENT)


def _save_category(category: Category) -> dict[str, Any]:
    try:
        category.save()
    except IntegrityError as error:
        raise serializers.ValidationError(
            {"name": [_("You already have a folder with this name.")]}
        ) from error
    return CategorySerializer(category).data


WRITERS = {
    "md": (export_markdown, "text/markdown; charset=utf-8"),
    "json": (export_json, "application/json"),
    "pdf": (export_pdf, "application/pdf"),
}


class MarkdownRenderer(BaseRenderer):
    """Lets clients ask for `?format=md`; errors are still JSON."""

    media_type = "text/markdown"
    format = "md"
    charset = None

    def render(self, data: Any, *args: Any, **kwargs: Any) -> bytes:
        """Render an error; the file itself does not come through here."""
        return JSONRenderer().render(data)


class PdfRenderer(MarkdownRenderer):
    """The same for `?format=pdf`."""

    media_type = "application/pdf"
    format = "pdf"


class ExportView(APIView):
    """`GET /chats/{id}/export`."""

    renderer_classes = (MarkdownRenderer, JSONRenderer, PdfRenderer)

    @extend_schema(
        parameters=[OpenApiParameter("format", str, enum=list(WRITERS), default="md")],
        responses={
            (200, "text/markdown"): OpenApiTypes.STR,
            (200, "application/json"): OpenApiTypes.OBJECT,
            (200, "application/pdf"): OpenApiTypes.BINARY,
        },
    )
    def get(self, request: Request, chat_id: UUID) -> HttpResponse:
        """The turns of the newest branch, as a file."""
        chat = get_own_chat(request, chat_id)
        kind = request.query_params.get("format", "md")  # any other has no renderer: 404
        write, content_type = WRITERS[kind]
        ids = Branch.find_newest(chat).turn_ids
        turns = list(Turn.objects.without_search_columns().filter(pk__in=ids).order_by("number"))
        response = HttpResponse(write(chat, turns), content_type=content_type)
        name = make_file_name(chat, kind)
        response["Content-Disposition"] = (
            content_disposition_header(as_attachment=True, filename=name) or ""
        )
        return response


QUERY_CHARACTERS = 200
BRANCH = OpenApiParameter(
    "message_id", UUID, description="A message of the branch; without it, the newest of the chat"
)


class MemoryView(APIView):
    """What the chat is about."""

    change_scope = KeyScope.ASK

    @extend_schema(responses=MemorySerializer)
    def get(self, request: Request, chat_id: UUID) -> Response:
        """The remembered documents, best first, and the last turn."""
        branch = Branch.find_newest(get_own_chat(request, chat_id))
        return Response(MemorySerializer(describe_memory(branch)).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, chat_id: UUID) -> Response:
        """Forget the documents; the turns stay."""
        services.clear_memory(chat=get_own_chat(request, chat_id))
        return Response(status=status.HTTP_204_NO_CONTENT)


class ContextView(APIView):
    """The context of the next question: what the model is given of the conversation."""

    change_scope = KeyScope.ASK

    @extend_schema(parameters=[BRANCH], responses=ContextSerializer)
    def get(self, request: Request, chat_id: UUID) -> Response:
        """Documents in focus, last turns, running summary, and what the last answer recalled."""
        return Response(_describe_context(_find_branch(request, chat_id)))

    @extend_schema(parameters=[BRANCH], request=ContextChange, responses=ContextSerializer)
    def patch(self, request: Request, chat_id: UUID) -> Response:
        """Replace the running summary."""
        data = validate_body(ContextChange, request)
        chat, message = _find_place(request, chat_id)
        branches.edit_running_summary(
            chat=chat, message=message, text=data["running_summary"], through=data["through"]
        )
        return Response(_describe_context(_find_branch(request, chat_id)))


def _describe_context(branch: Branch) -> Any:
    return ContextSerializer(describe_context(branch)).data


@extend_schema(
    parameters=[BRANCH, OpenApiParameter("q", str, description="Questions, answers, summaries")]
)
class TurnsView(ListAPIView[Turn]):
    """The turns of a branch, oldest first."""

    queryset = Turn.objects.none()
    serializer_class = TurnSerializer

    def get_queryset(self) -> QuerySet[Turn]:
        """Those that contain `q`."""
        rows = _list_turns(self.request, self.kwargs["chat_id"]).order_by("number")
        text = self.request.query_params.get("q", "").strip()[:QUERY_CHARACTERS]
        return rows.matching(text) if text else rows


class TurnView(APIView):
    """One turn."""

    @extend_schema(parameters=[BRANCH], responses=TurnSerializer)
    def get(self, request: Request, chat_id: UUID, number: int) -> Response:
        """The turn with this number in its branch."""
        return Response(TurnSerializer(_find_turn(request, chat_id, number)).data)


class TurnDocumentsView(APIView):
    """The documents of one answer."""

    @extend_schema(parameters=[BRANCH], responses=ShownDocumentSerializer(many=True))
    def get(self, request: Request, chat_id: UUID, number: int) -> Response:
        """The documents by slot, with the passages as they were shown."""
        user_id = get_user(request).pk
        (turn,) = hide_closed_in_turns([_find_turn(request, chat_id, number)], user_id=user_id)
        return Response(ShownDocumentSerializer(turn.doc_refs, many=True).data)


def get_own_chat(request: Request, chat_id: UUID) -> Chat:
    """The user's own chat. Raises `Http404`."""
    rows = Chat.objects.visible_to(get_user(request)).select_related("owner")
    return get_object_or_404(rows, pk=chat_id)


def _find_place(request: Request, chat_id: UUID) -> tuple[Chat, Message | None]:
    """The user's own chat, and the message that selects a branch; None: the newest branch."""
    chat = get_own_chat(request, chat_id)
    message_id = validate_query(BranchRequest, request)["message_id"]
    if message_id is None:
        return chat, None
    message = get_object_or_404(Message.objects.filter(chat=chat), pk=message_id)
    message.chat = chat
    return chat, message


def _find_branch(request: Request, chat_id: UUID) -> Branch:
    chat, message = _find_place(request, chat_id)
    return Branch.find_newest(chat) if message is None else Branch.to_message(message)


def _list_turns(request: Request, chat_id: UUID) -> TurnQuerySet:
    ids = _find_branch(request, chat_id).turn_ids
    rows = Turn.objects.visible_to(get_user(request)).without_search_columns()
    return rows.select_related("chat").filter(pk__in=ids)


def _find_turn(request: Request, chat_id: UUID, number: int) -> Turn:
    steps = _find_branch(request, chat_id).steps
    turn_id = next((step.turn_id for step in steps if step.number == number), None)
    turn: Turn = get_object_or_404(
        Turn.objects.visible_to(get_user(request)).without_search_columns(), pk=turn_id
    )
    return turn
