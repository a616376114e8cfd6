"""Runs over REST: their events as they come, and how they are stopped."""

from typing import Any
from uuid import UUID

from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.middleware.gzip import re_accepts_gzip
from django.utils.cache import patch_vary_headers
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.generics import get_object_or_404
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chats import access
from chats.access import get_credential, get_user
from chats.models import KeyScope, Run
from chats.runs import log, reader


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
            Run.objects.visible_to(get_user(request)).select_related("message"),
            pk=run_id,
        )
        sent = reader.stream_server_events(run.message.chat_id, run_id, _after(request))
        events = access.stream_while_held(get_credential(request), sent)
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

    change_scope = KeyScope.ASK

    @extend_schema(request=None, responses={202: None})
    def post(self, request: Request, run_id: UUID) -> Response:
        """Ask the worker to stop; what is written stays. A run that has ended is left as it is."""
        run = get_object_or_404(Run.objects.owned_by(get_user(request)), pk=run_id)
        log.request_stop(run.pk)
        return Response(status=status.HTTP_202_ACCEPTED)
