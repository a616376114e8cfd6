"""What a chat remembers, and its turns, over REST."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.generics import ListAPIView, get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chats.access import get_user
from chats.history import Branch, describe_context, describe_memory
from chats.models import Chat, KeyScope, Message, Turn
from chats.models.memory import TurnQuerySet
from chats.serializers import (
    BranchRequest,
    ContextChange,
    ContextSerializer,
    MemorySerializer,
    ShownDocumentSerializer,
    TurnSerializer,
)
from chats.services import branches
from chats.services import chats as services
from chats.services.erasure import hide_closed_in_turns

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
    """What is in play: what the next question is told of its conversation."""

    change_scope = KeyScope.ASK

    @extend_schema(parameters=[BRANCH], responses=ContextSerializer)
    def get(self, request: Request, chat_id: UUID) -> Response:
        """Remembered documents, last turns, running summary, and what the last answer recalled."""
        return Response(_describe(_branch(request, chat_id)))

    @extend_schema(parameters=[BRANCH], request=ContextChange, responses=ContextSerializer)
    def patch(self, request: Request, chat_id: UUID) -> Response:
        """Put the running summary into other words."""
        serializer = ContextChange(data=request.data)
        serializer.is_valid(raise_exception=True)
        chat, message = _find_place(request, chat_id)
        wanted = serializer.validated_data
        branches.edit_running_summary(
            chat=chat, message=message, text=wanted["running_summary"], through=wanted["through"]
        )
        return Response(_describe(_branch(request, chat_id)))


def _describe(branch: Branch) -> Any:
    return ContextSerializer(describe_context(branch)).data


@extend_schema(
    parameters=[BRANCH, OpenApiParameter("q", str, description="Questions, answers, summaries")]
)
class TurnsView(ListAPIView[Turn]):
    """The turns of a branch, oldest first."""

    queryset = Turn.objects.none()
    serializer_class = TurnSerializer

    def get_queryset(self) -> QuerySet[Turn]:
        """Those that hold `q`."""
        rows = _turns(self.request, self.kwargs["chat_id"]).order_by("number")
        text = self.request.query_params.get("q", "").strip()[:QUERY_CHARACTERS]
        return rows.matching(text) if text else rows


class TurnView(APIView):
    """One turn."""

    @extend_schema(parameters=[BRANCH], responses=TurnSerializer)
    def get(self, request: Request, chat_id: UUID, number: int) -> Response:
        """The turn with this number in its branch."""
        return Response(TurnSerializer(_turn(request, chat_id, number)).data)


class TurnDocumentsView(APIView):
    """The documents of one answer."""

    @extend_schema(parameters=[BRANCH], responses=ShownDocumentSerializer(many=True))
    def get(self, request: Request, chat_id: UUID, number: int) -> Response:
        """The documents by slot, with the passages as they were shown."""
        user_id = get_user(request).pk
        (turn,) = hide_closed_in_turns([_turn(request, chat_id, number)], user_id=user_id)
        return Response(ShownDocumentSerializer(turn.doc_refs, many=True).data)


def get_own_chat(request: Request, chat_id: UUID) -> Chat:
    """The user's own chat. Raises `Http404`."""
    rows = Chat.objects.visible_to(get_user(request)).select_related("owner")
    return get_object_or_404(rows, pk=chat_id)


def _find_place(request: Request, chat_id: UUID) -> tuple[Chat, Message | None]:
    """The user's own chat, and the message of the branch that is meant; None: of the newest."""
    chat = get_own_chat(request, chat_id)
    serializer = BranchRequest(data=request.query_params)
    serializer.is_valid(raise_exception=True)
    message_id = serializer.validated_data["message_id"]
    if message_id is None:
        return chat, None
    message = get_object_or_404(Message.objects.filter(chat=chat), pk=message_id)
    message.chat = chat
    return chat, message


def _branch(request: Request, chat_id: UUID) -> Branch:
    chat, message = _find_place(request, chat_id)
    return Branch.find_newest(chat) if message is None else Branch.to_message(message)


def _turns(request: Request, chat_id: UUID) -> TurnQuerySet:
    ids = _branch(request, chat_id).turn_ids
    rows = Turn.objects.visible_to(get_user(request)).told()
    return rows.select_related("chat").filter(pk__in=ids)


def _turn(request: Request, chat_id: UUID, number: int) -> Turn:
    steps = _branch(request, chat_id).steps
    named = next((step.turn_id for step in steps if step.number == number), None)
    turn: Turn = get_object_or_404(Turn.objects.visible_to(get_user(request)).told(), pk=named)
    return turn
