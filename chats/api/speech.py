"""An answer as sound, over REST."""

from typing import Any
from uuid import UUID

from django.db import connection
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import get_object_or_404
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from chats import speech
from chats.api.asker import asker
from chats.errors import StillAnswering
from chats.models import Message


class SpeechRequest(serializers.Serializer[Any]):
    """How to say it. No voice: the configured one. Long answers come as WAV only."""

    voice = serializers.CharField(max_length=100, required=False, allow_blank=True, default="")
    format = serializers.ChoiceField(choices=list(speech.TYPES), default=speech.WAV)


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

    renderer_classes = (SoundRenderer, JSONRenderer)

    @extend_schema(
        request=SpeechRequest,
        parameters=[OpenApiParameter("format", exclude=True)],
        responses={(200, kind): OpenApiTypes.BINARY for kind in speech.TYPES.values()},
    )
    def post(self, request: Request, message_id: UUID) -> HttpResponse:
        """An own answer, spoken by the speech endpoint; 501 where none is set up."""
        message = get_object_or_404(Message.objects.visible_to(asker(request)), pk=message_id)
        serializer = SpeechRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        if message.role != Message.Role.ASSISTANT:
            raise speech.NothingToSay
        if message.status == Message.Status.STREAMING:
            raise StillAnswering
        if not connection.in_atomic_block:
            connection.close()  # speech may take minutes: hold no connection meanwhile
        wanted = serializer.validated_data
        sound = speech.synthesised(message.content, voice=wanted["voice"], form=wanted["format"])
        return HttpResponse(sound.data, content_type=sound.content_type)
