"""Search without a conversation turn: what a question would find, and why."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chats.api.asker import asker
from chats.api.requests import SearchRequest
from chats.services import searching
from documents.api.serializers import ChunkBoxShape
from rag.pages import Kind


class HitShape(serializers.Serializer[Any]):
    """A passage that was found."""

    chunk_id = serializers.CharField()
    document_id = serializers.UUIDField()
    document_name = serializers.CharField()
    page = serializers.IntegerField(allow_null=True)
    section = serializers.CharField()
    kind = serializers.ChoiceField(choices=[one.value for one in Kind])
    header = serializers.CharField(help_text="Header rows of the table that the text goes on with")
    text = serializers.CharField()
    score = serializers.FloatField()
    scores = serializers.DictField(child=serializers.FloatField())
    boxes = ChunkBoxShape(many=True)


class GateShape(serializers.Serializer[Any]):
    """Whether what was found bears on the query: `score` against `threshold`."""

    score = serializers.FloatField()
    threshold = serializers.FloatField()


class SearchShape(serializers.Serializer[Any]):
    """The fields describe what `chats.services.searching` makes."""

    plan = serializers.DictField()
    relevant = serializers.BooleanField()
    gate = GateShape()
    hits = HitShape(many=True)
    timings_ms = serializers.DictField(child=serializers.FloatField())


class SearchView(APIView):
    """`POST /search`: reads only."""

    @extend_schema(request=SearchRequest, responses=SearchShape)
    def post(self, request: Request) -> Response:
        """Passages for a query, with the plan, the gate's verdict and the time of each step."""
        serializer = SearchRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        found = searching.search(user=asker(request), **dict(serializer.validated_data))
        return Response(found)
