"""What a chat remembers, and its turns, over REST."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.generics import ListAPIView, get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chats import conversation
from chats.api.asker import asker
from chats.lineage import Branch
from chats.models import Chat, Message, Turn
from chats.models.turn import TurnQuerySet
from chats.services import chats as services
from chats.turn_shapes import MemoryShape, ShownShape, TurnShape

QUERY_CHARACTERS = 200
BRANCH = OpenApiParameter(
    "message_id", UUID, description="A message of the branch; without it, the newest of the chat"
)


class BranchRequest(serializers.Serializer[Any]):
    """Which branch of a chat is meant."""

    message_id = serializers.UUIDField(required=False, allow_null=True, default=None)


class MemoryView(APIView):
    """What the chat is about."""

    @extend_schema(responses=MemoryShape)
    def get(self, request: Request, chat_id: UUID) -> Response:
        """The remembered documents, best first, and the last turn."""
        branch = Branch.newest(chat_of(request, chat_id))
        return Response(MemoryShape(conversation.session(branch)).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, chat_id: UUID) -> Response:
        """Forget the documents; the turns stay."""
        services.clear_memory(chat=chat_of(request, chat_id))
        return Response(status=status.HTTP_204_NO_CONTENT)


@extend_schema(
    parameters=[BRANCH, OpenApiParameter("q", str, description="Questions, answers, summaries")]
)
class TurnsView(ListAPIView[Turn]):
    """The turns of a branch, oldest first."""

    queryset = Turn.objects.none()
    serializer_class = TurnShape

    def get_queryset(self) -> QuerySet[Turn]:
        """Those that hold `q`."""
        rows = _turns(self.request, self.kwargs["chat_id"]).order_by("number")
        text = self.request.query_params.get("q", "").strip()[:QUERY_CHARACTERS]
        return rows.matching(text) if text else rows


class TurnView(APIView):
    """One turn."""

    @extend_schema(parameters=[BRANCH], responses=TurnShape)
    def get(self, request: Request, chat_id: UUID, number: int) -> Response:
        """The turn with this number in its branch."""
        return Response(TurnShape(_turn(request, chat_id, number)).data)


class TurnDocumentsView(APIView):
    """The documents of one answer."""

    @extend_schema(parameters=[BRANCH], responses=ShownShape(many=True))
    def get(self, request: Request, chat_id: UUID, number: int) -> Response:
        """The documents by slot, with the passages as they were shown."""
        turn = _turn(request, chat_id, number)
        return Response(ShownShape(turn.doc_refs, many=True).data)


def chat_of(request: Request, chat_id: UUID) -> Chat:
    """The user's own chat. Raises `Http404`."""
    rows = Chat.objects.visible_to(asker(request)).select_related("owner")
    return get_object_or_404(rows, pk=chat_id)


def _branch(request: Request, chat_id: UUID) -> Branch:
    chat = chat_of(request, chat_id)
    serializer = BranchRequest(data=request.query_params)
    serializer.is_valid(raise_exception=True)
    message_id = serializer.validated_data["message_id"]
    if message_id is None:
        return Branch.newest(chat)
    message = get_object_or_404(Message.objects.filter(chat=chat), pk=message_id)
    message.chat = chat
    return Branch.to(message)


def _turns(request: Request, chat_id: UUID) -> TurnQuerySet:
    ids = _branch(request, chat_id).turn_ids
    return Turn.objects.visible_to(asker(request)).told().filter(pk__in=ids)


def _turn(request: Request, chat_id: UUID, number: int) -> Turn:
    steps = _branch(request, chat_id).steps
    named = next((step.turn_id for step in steps if step.number == number), None)
    turn: Turn = get_object_or_404(Turn.objects.visible_to(asker(request)).told(), pk=named)
    return turn
