"""Asking over REST: messages and speech, models and tools, search, runs and their events."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.db import connection
from django.db.models import QuerySet
from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.middleware.gzip import re_accepts_gzip
from django.utils.cache import patch_vary_headers
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

from chats import access
from chats.access import get_credential
from chats.errors import StillAnswering
from chats.models import Feedback, KeyScope, Message, Run, Trace
from chats.runs import log, reader
from chats.serializers import (
    EditRequest,
    FeedbackRequest,
    FindQuery,
    FindResult,
    LanguageModelSerializer,
    MessageSerializer,
    RegenerateRequest,
    SearchRequest,
    SearchResultSerializer,
    SendRequest,
    SpeechRequest,
    ToolServerSerializer,
    WholeSourceSerializer,
    to_models_json,
)
from chats.services import answer_cache, branches, search, speech, tools, turn_store, turns
from chats.services.erasure import hide_closed, hide_closed_in_trace
from chats.services.memory import describe_used_memory
from chats.services.search import find_everything
from documents.api.requests import get_user, validate_body, validate_query
from documents.connected.choice import list_allowed_models
from jobs.fairness import release_place

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
        """Messages of the user's own chats."""
        rows = Message.objects.visible_to(get_user(self.request))
        return rows.select_related("run", "parent").prefetch_related("document_links", "feedback")

    @extend_schema(
        request=SendRequest,
        responses={201: TURN, 202: TURN},
        parameters=[WAIT],
    )
    def create(self, request: Request) -> Response:
        """Ask a question. Waits for the whole answer unless `?wait=false`."""
        fields = validate_body(SendRequest, request)
        turn = turns.open_turn(
            user=get_user(request),
            language=get_language() or "ko",
            asked_with=get_credential(request).token,
            **_to_arguments(fields),
        )
        return self._respond_with_turn(request, turn)

    @extend_schema(request=RegenerateRequest, responses={201: TURN, 202: TURN}, parameters=[WAIT])
    @action(detail=True, methods=["post"])
    def regenerate(self, request: Request, pk: UUID) -> Response:
        """Another answer to the same question, as a new branch."""
        message = self.get_object()
        fields = validate_body(RegenerateRequest, request)
        turn = turns.regenerate_answer(
            message=message,
            language=get_language() or "ko",
            topic=fields["topic"],
            asked_with=get_credential(request).token,
            model=fields["model"],
            confirm_call=fields["confirm_call"],
        )
        return self._respond_with_turn(request, turn)

    @extend_schema(
        request=EditRequest,
        responses={200: MessageSerializer, 201: TURN, 202: TURN},
        parameters=[WAIT],
    )
    @action(detail=True, methods=["post"])
    def edit(self, request: Request, pk: UUID) -> Response:
        """Change a question: ask it again as a new branch, or only save the new wording."""
        message = self.get_object()
        fields = validate_body(EditRequest, request)
        if fields["save_only"]:
            branches.rewrite_question(message=message, content=fields["content"])
            return Response(MessageSerializer(self.get_queryset().get(pk=pk)).data)
        turn = turns.edit_question(
            user=get_user(request),
            message=message,
            content=fields["content"],
            language=get_language() or "ko",
            asked_with=get_credential(request).token,
        )
        return self._respond_with_turn(request, turn)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: UUID) -> Response:
        """Delete a question with its answers, or an answer; its question goes with the last one."""
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
        return Response(
            describe_used_memory(hide_closed_in_trace(trace.steps, user_id=user.pk), user)
        )

    @extend_schema(responses=WholeSourceSerializer(many=True))
    @action(detail=True)
    def sources(self, request: Request, pk: UUID) -> Response:
        """The passages behind the answer, in full, as shown then; they outlive the document."""
        message = hide_closed(self.get_object())
        texts = turn_store.read_whole_passages(message)
        passages = [
            {**source, "text": "" if source.get("unreadable") else _get_whole_text(source, texts)}
            for source in message.sources or ()
        ]
        return Response(WholeSourceSerializer(passages, many=True).data)

    @extend_schema(request=FeedbackRequest, responses={204: None})
    @action(detail=True, methods=["post"])
    def feedback(self, request: Request, pk: UUID) -> Response:
        """Rate the answer; a later rating replaces an earlier one."""
        message = get_object_or_404(self.get_queryset(), pk=pk, role=Message.Role.ASSISTANT)
        fields = validate_body(FeedbackRequest, request)
        Feedback.objects.update_or_create(message=message, user=get_user(request), defaults=fields)
        if fields["value"] < 0:
            answer_cache.forget_answer(message)
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _respond_with_turn(self, request: Request, turn: turns.OpenedTurn) -> Response:
        waits = request.query_params.get("wait", "true").lower() not in {"false", "0", "no"}
        complete = False
        if waits:
            connection.close()  # an answer may take minutes: do not hold a connection meanwhile
            release_place()
            complete = async_to_sync(reader.wait_for_end)(turn.run.pk)
        code = status.HTTP_201_CREATED if complete else status.HTTP_202_ACCEPTED
        return Response(self._to_turn_json(turn), status=code)

    def _to_turn_json(self, turn: turns.OpenedTurn) -> dict[str, Any]:
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
        """The language models that the user may choose, the default first."""
        return Response(to_models_json(list_allowed_models(get_user(request))))


def _get_whole_text(source: Mapping[str, Any], texts: Mapping[str, str]) -> str:
    return texts.get(source["chunk_id"], str(source["content_preview"]))


class ToolsView(APIView):
    """`GET /tools`."""

    change_scope = KeyScope.ASK

    @extend_schema(responses=ToolServerSerializer(many=True))
    def get(self, request: Request) -> Response:
        """The tool servers that the user may switch on for a chat."""
        return Response(tools.list_servers(get_user(request)))


def _to_arguments(fields: dict[str, Any]) -> dict[str, Any]:
    return fields | {name: fields[name] or () for name in ("document_ids", "library_ids")}


class SoundRenderer(BaseRenderer):
    """Lets clients ask for audio; errors are still JSON."""

    media_type = "audio/*"
    format = "sound"
    charset = None

    def render(self, data: Any, *args: Any, **kwargs: Any) -> bytes:
        """Render an error; the audio itself does not come through here."""
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
        """An answer of the user's, read aloud by the speech endpoint; 501 if none is set up."""
        message = get_object_or_404(Message.objects.visible_to(get_user(request)), pk=message_id)
        fields = validate_body(SpeechRequest, request)
        if message.role != Message.Role.ASSISTANT:
            raise speech.NothingToSay
        if message.status == Message.Status.STREAMING:
            raise StillAnswering
        message = hide_closed(message)
        if not connection.in_atomic_block:
            connection.close()  # speech may take minutes: do not hold a connection meanwhile
        sound = speech.synthesise_speech(
            message.content, voice=fields["voice"], sound_format=fields["format"]
        )
        return HttpResponse(sound.data, content_type=sound.content_type)


class SearchView(APIView):
    """`POST /search`: reads only."""

    change_scope = KeyScope.READ

    @extend_schema(request=SearchRequest, responses=SearchResultSerializer)
    def post(self, request: Request) -> Response:
        """Passages for a query, with the plan, the relevance verdict and the time of each step."""
        fields = validate_body(SearchRequest, request)
        results = search.request_search(user=get_user(request), **fields)
        return Response(results)


class FindView(APIView):
    """`GET /find`: reads only."""

    @extend_schema(parameters=[FindQuery], responses=FindResult)
    def get(self, request: Request) -> Response:
        """Find words in titles and messages of chats, and in names and texts of documents."""
        query = validate_query(FindQuery, request)["q"]
        return Response(find_everything(user=get_user(request), query=query))


class EventStreamRenderer(BaseRenderer):
    """Lets clients ask for `text/event-stream`; errors before the stream are still JSON."""

    media_type = "text/event-stream"
    format = "sse"
    charset = None

    def render(self, data: Any, *args: Any, **kwargs: Any) -> bytes:
        """Render an error; the stream itself does not come through here."""
        return JSONRenderer().render(data)


class RunEventsView(APIView):
    """The events of a run."""

    renderer_classes = (JSONRenderer, EventStreamRenderer)

    @extend_schema(
        parameters=[
            OpenApiParameter("Last-Event-ID", int, OpenApiParameter.HEADER),
            OpenApiParameter("after_seq", int, description="Where the header cannot be set"),
        ],
        responses={(200, "text/event-stream"): OpenApiTypes.STR},
    )
    def get(self, request: Request, run_id: UUID) -> HttpResponseBase:
        """Server-sent events after the last one received.

        `id` is `seq`, `data` the same envelope as over the WebSocket.
        """
        run = get_object_or_404(
            Run.objects.visible_to(get_user(request)).select_related("message"),
            pk=run_id,
        )
        frames = reader.stream_server_events(run.message.chat_id, run_id, _read_last_seq(request))
        events = access.stream_while_held(get_credential(request), frames)
        compresses = re_accepts_gzip.search(request.headers.get("Accept-Encoding", ""))
        response = StreamingHttpResponse(
            reader.compress_stream(events) if compresses else events,
            content_type="text/event-stream; charset=utf-8",
        )
        if compresses:
            response["Content-Encoding"] = "gzip"
        patch_vary_headers(response, ("Accept-Encoding",))
        response["Cache-Control"] = "no-cache, no-transform"
        response["X-Accel-Buffering"] = "no"
        return response


def _read_last_seq(request: Request) -> int:
    value = request.headers.get("Last-Event-ID") or request.query_params.get("after_seq") or "0"
    if not value.isascii() or not value.isdigit() or len(value) > 12:
        raise serializers.ValidationError({"after_seq": ["expected a whole number"]})
    return int(value)


class RunStopView(APIView):
    """Stopping a run."""

    change_scope = KeyScope.ASK

    @extend_schema(request=None, responses={202: None})
    def post(self, request: Request, run_id: UUID) -> Response:
        """Ask the worker to stop; the text so far stays. Does nothing to a run that has ended."""
        run = get_object_or_404(Run.objects.owned_by(get_user(request)), pk=run_id)
        log.request_stop(run.pk)
        return Response(status=status.HTTP_202_ACCEPTED)
