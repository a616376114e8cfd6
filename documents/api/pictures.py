"""The pictures found in a document, over REST."""

from typing import TYPE_CHECKING, cast
from uuid import UUID

from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import generics, serializers
from rest_framework.request import Request
from rest_framework.views import APIView

from documents.api import downloads
from documents.api.views import AnyAccept
from documents.errors import PictureNotFound
from documents.models import Document, DocumentPicture

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class PictureShape(serializers.ModelSerializer[DocumentPicture]):
    """A picture; `box` is x0, y0, x1, y1 in fractions of its page.

    `rejected` is why it was not kept. `description` is what `model` read in it, null until then.
    """

    box = serializers.ListField(child=serializers.FloatField(), allow_null=True)

    class Meta:
        """What is told of it."""

        model = DocumentPicture
        fields = ("index", "page", "width", "height", "box", "rejected", "description", "model")


@extend_schema_view(get=extend_schema(responses=PictureShape(many=True)))
class PicturesView(generics.ListAPIView[DocumentPicture]):
    """All pictures of one document, in their order, the rejected too."""

    serializer_class = PictureShape
    queryset = DocumentPicture.objects.none()

    def get_queryset(self) -> QuerySet[DocumentPicture]:
        """Those of a document that the user may read."""
        return _document(self.request, self.kwargs["document_id"]).pictures.order_by("index")


class PictureView(APIView):
    """One kept picture."""

    content_negotiation_class = AnyAccept

    @extend_schema(
        responses={
            (200, "image/png"): OpenApiTypes.BINARY,
            (200, "image/jpeg"): OpenApiTypes.BINARY,
        }
    )
    def get(self, request: Request, document_id: UUID, index: int) -> HttpResponseBase:
        """Show it, as PNG or JPEG."""
        kept = _document(request, document_id).pictures.filter(index=index, rejected="").first()
        if kept is None:
            raise PictureNotFound(picture=index)
        return downloads.found_picture(request._request, kept)  # noqa: SLF001


def _document(request: Request, document_id: UUID) -> Document:
    documents = Document.objects.visible_to(cast("User", request.user))
    return get_object_or_404(documents, pk=document_id)
