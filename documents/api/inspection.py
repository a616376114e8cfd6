"""What was made of a document, over REST."""

from typing import Any
from uuid import UUID

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from documents.api.shapes import WarningShape
from documents.inspection import inspection
from documents.models import Document


class BinShape(serializers.Serializer[Any]):
    """How many chunks have a length in `from` <= characters < `to`."""

    to = serializers.IntegerField()
    count = serializers.IntegerField()

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """`from` is a word of the language."""
        return {"from": serializers.IntegerField()} | super().get_fields()


class LengthShape(serializers.Serializer[Any]):
    """Statistics of the chunks' lengths in characters."""

    min = serializers.IntegerField()
    median = serializers.FloatField()
    mean = serializers.FloatField()
    p90 = serializers.FloatField()
    max = serializers.IntegerField()
    histogram = BinShape(many=True)


class ChunksShape(serializers.Serializer[Any]):
    """The chunks: how many in all, of each kind, and with a vector of the active space."""

    count = serializers.IntegerField()
    kinds = serializers.DictField(child=serializers.IntegerField())
    embedded = serializers.IntegerField()
    length = LengthShape(allow_null=True)


class PicturesShape(serializers.Serializer[Any]):
    """The pictures; `dropped` counts by reason."""

    kept = serializers.IntegerField()
    described = serializers.IntegerField()
    dropped = serializers.DictField(child=serializers.IntegerField())


class InspectionShape(serializers.Serializer[Any]):
    """The fields describe what `documents.inspection` makes."""

    document_id = serializers.UUIDField()
    pages = serializers.IntegerField(allow_null=True)
    pages_without_text = serializers.ListField(child=serializers.IntegerField())
    pages_without_text_count = serializers.IntegerField()
    characters = serializers.IntegerField()
    chunks = ChunksShape()
    pictures = PicturesShape()
    seconds = serializers.DictField(child=serializers.FloatField())
    warnings = WarningShape(many=True)


class InspectionView(APIView):
    """What was read and indexed of one document."""

    @extend_schema(responses=InspectionShape)
    def get(self, request: Request, document_id: UUID) -> Response:
        """Show counts, lengths, pages without text, pictures and times."""
        documents = Document.objects.visible_to(request.user)  # type: ignore[arg-type]
        document = get_object_or_404(documents, pk=document_id)
        return Response(inspection(document))
