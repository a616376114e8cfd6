"""Messages over REST, written and spoken."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.db import connection
from django.db.models import QuerySet
from django.http import HttpResponse
from django.utils.translation import get_language
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.generics import get_object_or_404
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chats.access import get_credential, get_user
from chats.errors import StillAnswering
from chats.models import Feedback, KeyScope, Message, Trace
from chats.runs import reader
from chats.serializers import (
    EditRequest,
    FeedbackRequest,
    LanguageModelSerializer,
    MessageSerializer,
    RegenerateRequest,
    SendRequest,
    SpeechRequest,
    ToolServerSerializer,
    WholeSourceSerializer,
    to_models_json,
)
from chats.services import answer_cache, branches, speech, tools, turn_store, turns
from chats.services.erasure import hide_closed, hide_closed_in_trace
from chats.services.profile import name_used
from documents.connected.choice import list_allowed_models
from jobs.fairness import leave_place

TURN = inline_serializer(
    "OpenedTurn",
    {
        "chat_id": serializers.UUIDField(),
        "run_id": serializers.UUIDField(),
        "user_message": MessageSerializer(),
        "assistant_message": MessageSerializer(),
    },
)


WAIT = OpenApiParameter("wait", bool, description="false: answer 202 at once")


class MessageViewSet(mixins.RetrieveModelMixin, viewsets.GenericViewSet[Message]):
    """Questions and answers."""

    change_scope = KeyScope.ASK

    queryset = Message.objects.none()
    serializer_class = MessageSerializer
    lookup_value_converter = "uuid"

    def get_queryset(self) -> QuerySet[Message]:
        """Messages of own chats."""
        rows = Message.objects.visible_to(get_user(self.request))
        return rows.select_related("run", "parent").prefetch_related("document_links", "feedback")

    @extend_schema(
        request=SendRequest,
        responses={201: TURN, 202: TURN},
        parameters=[WAIT],
    )
    def create(self, request: Request) -> Response:
        """Ask. Waits for the whole answer unless `?wait=false`."""
        serializer = SendRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        turn = turns.open_turn(
            user=get_user(request),
            language=get_language() or "ko",
            asked_with=get_credential(request).token,
            **_sent(serializer.validated_data),
        )
        return self._answered(request, turn)

    @extend_schema(request=RegenerateRequest, responses={201: TURN, 202: TURN}, parameters=[WAIT])
    @action(detail=True, methods=["post"])
    def regenerate(self, request: Request, pk: UUID) -> Response:
        """Another answer to the same question, as a new branch."""
        message = self.get_object()
        serializer = RegenerateRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        turn = turns.regenerate_answer(
            message=message,
            language=get_language() or "ko",
            topic=serializer.validated_data["topic"],
            asked_with=get_credential(request).token,
            model=serializer.validated_data["model"],
            confirm_call=serializer.validated_data["confirm_call"],
        )
        return self._answered(request, turn)

    @extend_schema(
        request=EditRequest,
        responses={200: MessageSerializer, 201: TURN, 202: TURN},
        parameters=[WAIT],
    )
    @action(detail=True, methods=["post"])
    def edit(self, request: Request, pk: UUID) -> Response:
        """Other words for a question, answered as a new branch, or only stored in its place."""
        message = self.get_object()
        serializer = EditRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        if serializer.validated_data["save_only"]:
            content = serializer.validated_data["content"]
            branches.rewrite_question(message=message, content=content)
            return Response(MessageSerializer(self.get_queryset().get(pk=pk)).data)
        turn = turns.edit_question(
            user=get_user(request),
            message=message,
            content=serializer.validated_data["content"],
            language=get_language() or "ko",
            asked_with=get_credential(request).token,
        )
        return self._answered(request, turn)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: UUID) -> Response:
        """Delete a question with its answers, or an answer with the question only it answers."""
        branches.delete_message(message=self.get_object(), actor=get_user(request))
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(responses={200: OpenApiTypes.OBJECT})
    @action(detail=True)
    def trace(self, request: Request, pk: UUID) -> Response:
        """Every step of the answer."""
        message = self.get_object()
        trace = Trace.objects.filter(message=message).first()
        if trace is None:
            return Response({})
        user = get_user(request)
        return Response(name_used(hide_closed_in_trace(trace.steps, user_id=user.pk), user))

    @extend_schema(responses=WholeSourceSerializer(many=True))
    @action(detail=True)
    def sources(self, request: Request, pk: UUID) -> Response:
        """What the answer rests on, each passage whole, as shown: it outlives its document."""
        message = hide_closed(self.get_object())
        texts = turn_store.whole_passages(message)
        shown = [
            {**source, "text": "" if source.get("unreadable") else _to_whole(source, texts)}
            for source in message.sources or ()
        ]
        return Response(WholeSourceSerializer(shown, many=True).data)

    @extend_schema(request=FeedbackRequest, responses={204: None})
    @action(detail=True, methods=["post"])
    def feedback(self, request: Request, pk: UUID) -> Response:
        """Say whether the answer helped; the last word counts."""
        message = get_object_or_404(self.get_queryset(), pk=pk, role=Message.Role.ASSISTANT)
        serializer = FeedbackRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        Feedback.objects.update_or_create(
            message=message, user=get_user(request), defaults=serializer.validated_data
        )
        if serializer.validated_data["value"] < 0:
            answer_cache.forget_answer_of(message)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _answered(self, request: Request, turn: turns.OpenedTurn) -> Response:
        waits = request.query_params.get("wait", "true").lower() not in {"false", "0", "no"}
        complete = False
        if waits:
            connection.close()  # an answer may take minutes: hold no connection meanwhile
            leave_place()
            complete = async_to_sync(reader.wait_for_end)(turn.run.pk)
        code = status.HTTP_201_CREATED if complete else status.HTTP_202_ACCEPTED
        return Response(self._turn(turn), status=code)

    def _turn(self, turn: turns.OpenedTurn) -> dict[str, Any]:
        rows = self.get_queryset()
        return {
            "chat_id": str(turn.user_message.chat_id),
            "run_id": str(turn.run.pk),
            "user_message": MessageSerializer(rows.get(pk=turn.user_message.pk)).data,
            "assistant_message": MessageSerializer(rows.get(pk=turn.assistant_message.pk)).data,
        }


class ModelsView(APIView):
    """`GET /models`."""

    change_scope = KeyScope.ASK

    @extend_schema(responses=LanguageModelSerializer(many=True))
    def get(self, request: Request) -> Response:
        """The language models that may be chosen; the usual one comes first."""
        return Response(to_models_json(list_allowed_models(get_user(request))))


def _to_whole(source: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    return texts.get(source["chunk_id"], str(source["content_preview"]))


class ToolsView(APIView):
    """`GET /tools`."""

    change_scope = KeyScope.ASK

    @extend_schema(responses=ToolServerSerializer(many=True))
    def get(self, request: Request) -> Response:
        """The tool servers that may be switched on for a chat."""
        return Response(tools.list_servers(get_user(request)))


def _sent(fields: dict[str, Any]) -> dict[str, Any]:
    return fields | {name: fields[name] or () for name in ("document_ids", "library_ids")}


class SoundRenderer(BaseRenderer):
    """Lets clients ask for sound; errors are JSON all the same."""

    media_type = "audio/*"
    format = "sound"
    charset = None

    def render(self, data: Any, *args: Any, **kwargs: Any) -> bytes:
        """Errors only: the sound itself does not pass through here."""
        return JSONRenderer().render(data)


class SpeechView(APIView):
    """`POST /messages/{id}/speech`."""

    change_scope = KeyScope.ASK

    renderer_classes = (SoundRenderer, JSONRenderer)

    @extend_schema(
        request=SpeechRequest,
        parameters=[OpenApiParameter("format", exclude=True)],
        responses={(200, kind): OpenApiTypes.BINARY for kind in speech.SOUND_TYPES.values()},
    )
    def post(self, request: Request, message_id: UUID) -> HttpResponse:
        """An own answer, spoken by the speech endpoint; 501 where none is set up."""
        message = get_object_or_404(Message.objects.visible_to(get_user(request)), pk=message_id)
        serializer = SpeechRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        if message.role != Message.Role.ASSISTANT:
            raise speech.NothingToSay
        if message.status == Message.Status.STREAMING:
            raise StillAnswering
        message = hide_closed(message)
        if not connection.in_atomic_block:
            connection.close()  # speech may take minutes: hold no connection meanwhile
        wanted = serializer.validated_data
        sound = speech.synthesise_speech(
            message.content, voice=wanted["voice"], form=wanted["format"]
        )
        return HttpResponse(sound.data, content_type=sound.content_type)
