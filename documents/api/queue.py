"""The user's queue over REST: how far it is, and what is put off."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, status
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from documents import waiting
from documents.api.shapes import DocumentShape
from documents.models import Document

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class QueueShape(serializers.Serializer[Any]):
    """The user's documents that have not ended; see `documents.waiting.Standing`."""

    waiting = serializers.IntegerField()
    working = serializers.IntegerField()
    paused = serializers.IntegerField()
    pages_per_second = serializers.FloatField(help_text="Over the last minutes")
    seconds_left = serializers.FloatField(allow_null=True, help_text="An estimate")


class CountShape(serializers.Serializer[Any]):
    """How many documents changed."""

    count = serializers.IntegerField()


ACCEPTED = OpenApiResponse(DocumentShape, description="Accepted")
COUNTED = OpenApiResponse(CountShape, description="Accepted")


class QueueView(APIView):
    """How far the user's documents are."""

    @extend_schema(responses=QueueShape)
    def get(self, request: Request) -> Response:
        """Count what waits, works and is paused, and estimate the rest."""
        return Response(asdict(waiting.standing(owner=_asker(request))))


class PauseAllView(APIView):
    """All documents that wait or are at work."""

    @extend_schema(request=None, responses={202: COUNTED})
    def post(self, request: Request) -> Response:
        """Put them off."""
        return _counted(waiting.pause_all(owner=_asker(request)))


class ResumeAllView(APIView):
    """All documents that are paused."""

    @extend_schema(request=None, responses={202: COUNTED})
    def post(self, request: Request) -> Response:
        """Go on with them."""
        return _counted(waiting.resume_all(owner=_asker(request)))


class CancelAllView(APIView):
    """All documents that have not ended."""

    @extend_schema(request=None, responses={202: COUNTED})
    def post(self, request: Request) -> Response:
        """Stop their processing."""
        return _counted(waiting.cancel_all(owner=_asker(request)))


class PauseView(APIView):
    """One document that waits or is at work."""

    @extend_schema(request=None, responses={202: ACCEPTED})
    def post(self, request: Request, document_id: UUID) -> Response:
        """Put it off."""
        document = _owned(request, document_id)
        waiting.pause(document=document)
        return Response(DocumentShape(document).data, status=status.HTTP_202_ACCEPTED)


class ResumeView(APIView):
    """One document that is paused."""

    @extend_schema(request=None, responses={202: ACCEPTED})
    def post(self, request: Request, document_id: UUID) -> Response:
        """Go on with it."""
        document = _owned(request, document_id)
        waiting.resume(document=document)
        return Response(DocumentShape(document).data, status=status.HTTP_202_ACCEPTED)


def _owned(request: Request, document_id: UUID) -> Document:
    return get_object_or_404(Document.objects.owned_by(_asker(request)), pk=document_id)


def _counted(count: int) -> Response:
    return Response({"count": count}, status=status.HTTP_202_ACCEPTED)


def _asker(request: Request) -> "User":
    """Who asks; the permission classes let nobody else in."""
    return cast("User", request.user)
