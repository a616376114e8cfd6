"""Messages and runs over REST."""

from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.db import connection
from django.db.models import QuerySet
from django.http import StreamingHttpResponse
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

from chats import rights
from chats.api.asker import asker, credential_of
from chats.api.requests import EditRequest, FeedbackRequest, RegenerateRequest, SendRequest
from chats.models import Feedback, Message, Run, Trace
from chats.runs import log, reader
from chats.services import branches, turn_store, turns
from chats.shapes import MessageShape, WholeSourceShape

TURN = inline_serializer(
    "Turn",
    {
        "chat_id": serializers.UUIDField(),
        "run_id": serializers.UUIDField(),
        "user_message": MessageShape(),
        "assistant_message": MessageShape(),
    },
)


WAIT = OpenApiParameter("wait", bool, description="false: answer 202 at once")


class MessageViewSet(mixins.RetrieveModelMixin, viewsets.GenericViewSet[Message]):
    """Questions and answers."""

    queryset = Message.objects.none()
    serializer_class = MessageShape
    lookup_value_converter = "uuid"

    def get_queryset(self) -> QuerySet[Message]:
        """Messages of own chats."""
        rows = Message.objects.visible_to(asker(self.request))
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
            user=asker(request), language=get_language() or "ko", **_sent(serializer.validated_data)
        )
        return self._answered(request, turn)

    @extend_schema(request=RegenerateRequest, responses={201: TURN, 202: TURN}, parameters=[WAIT])
    @action(detail=True, methods=["post"])
    def regenerate(self, request: Request, pk: UUID) -> Response:
        """Another answer to the same question, as a new branch."""
        message = self.get_object()
        serializer = RegenerateRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        turn = branches.regenerate(
            message=message,
            language=get_language() or "ko",
            topic=serializer.validated_data["topic"],
        )
        return self._answered(request, turn)

    @extend_schema(request=EditRequest, responses={201: TURN, 202: TURN}, parameters=[WAIT])
    @action(detail=True, methods=["post"])
    def edit(self, request: Request, pk: UUID) -> Response:
        """Other words for a question, answered as a new branch."""
        message = self.get_object()
        serializer = EditRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        turn = branches.edit(
            user=asker(request),
            message=message,
            content=serializer.validated_data["content"],
            language=get_language() or "ko",
        )
        return self._answered(request, turn)

    @extend_schema(responses={200: OpenApiTypes.OBJECT})
    @action(detail=True)
    def trace(self, request: Request, pk: UUID) -> Response:
        """Every step of the answer."""
        message = self.get_object()
        trace = Trace.objects.filter(message=message).first()
        return Response({} if trace is None else trace.steps)

    @extend_schema(responses=WholeSourceShape(many=True))
    @action(detail=True)
    def sources(self, request: Request, pk: UUID) -> Response:
        """What the answer rests on, each passage whole, as shown: it outlives its document."""
        message = self.get_object()
        texts = turn_store.whole_passages(message)
        shown = [
            {**source, "text": texts.get(source["chunk_id"], source["content_preview"])}
            for source in message.sources or ()
        ]
        return Response(WholeSourceShape(shown, many=True).data)

    @extend_schema(request=FeedbackRequest, responses={204: None})
    @action(detail=True, methods=["post"])
    def feedback(self, request: Request, pk: UUID) -> Response:
        """Say whether the answer helped; the last word counts."""
        message = get_object_or_404(self.get_queryset(), pk=pk, role=Message.Role.ASSISTANT)
        serializer = FeedbackRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        Feedback.objects.update_or_create(
            message=message, user=asker(request), defaults=serializer.validated_data
        )
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _answered(self, request: Request, turn: turns.OpenedTurn) -> Response:
        waits = request.query_params.get("wait", "true").lower() not in {"false", "0", "no"}
        complete = False
        if waits:
            connection.close()  # an answer may take minutes: hold no connection meanwhile
            complete = async_to_sync(reader.wait_for_end)(turn.run.pk)
        code = status.HTTP_201_CREATED if complete else status.HTTP_202_ACCEPTED
        return Response(self._turn(turn), status=code)

    def _turn(self, turn: turns.OpenedTurn) -> dict[str, Any]:
        rows = self.get_queryset()
        return {
            "chat_id": str(turn.user_message.chat_id),
            "run_id": str(turn.run.pk),
            "user_message": MessageShape(rows.get(pk=turn.user_message.pk)).data,
            "assistant_message": MessageShape(rows.get(pk=turn.assistant_message.pk)).data,
        }


def _sent(fields: dict[str, Any]) -> dict[str, Any]:
    return fields | {"document_ids": fields["document_ids"] or ()}


class EventStreamRenderer(BaseRenderer):
    """Lets clients ask for `text/event-stream`; errors before the stream are JSON all the same."""

    media_type = "text/event-stream"
    format = "sse"
    charset = None

    def render(self, data: Any, *args: Any, **kwargs: Any) -> bytes:
        """Errors only: the stream itself does not pass through here."""
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
        """Server-sent events from the last one seen.

        `id` is `seq`, `data` the socket's envelope.
        """
        run = get_object_or_404(
            Run.objects.visible_to(asker(request)).select_related("message"),
            pk=run_id,
        )
        sent = reader.stream_server_events(run.message.chat_id, run_id, _after(request))
        events = rights.while_held(credential_of(request), sent)
        packs = re_accepts_gzip.search(request.headers.get("Accept-Encoding", ""))
        response = StreamingHttpResponse(
            reader.compress_stream(events) if packs else events,
            content_type="text/event-stream; charset=utf-8",
        )
        if packs:
            response["Content-Encoding"] = "gzip"
        patch_vary_headers(response, ("Accept-Encoding",))
        response["Cache-Control"] = "no-cache, no-transform"
        response["X-Accel-Buffering"] = "no"
        return response


def _after(request: Request) -> int:
    value = request.headers.get("Last-Event-ID") or request.query_params.get("after_seq") or "0"
    if not value.isascii() or not value.isdigit() or len(value) > 12:
        raise serializers.ValidationError({"after_seq": ["expected a whole number"]})
    return int(value)


class RunStopView(APIView):
    """Stopping a run."""

    @extend_schema(request=None, responses={202: None})
    def post(self, request: Request, run_id: UUID) -> Response:
        """Ask the worker to stop; what is written stays. A run that has ended is left as it is."""
        run = get_object_or_404(Run.objects.owned_by(asker(request)), pk=run_id)
        log.request_stop(run.pk)
        return Response(status=status.HTTP_202_ACCEPTED)
