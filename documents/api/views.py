"""Documents over REST."""

from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema, extend_schema_view
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser, MultiPartParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from documents import metadata, services
from documents.api import downloads
from documents.api.shapes import (
    ChunkShape,
    DocumentRequest,
    DocumentShape,
    ListQuery,
    UploadRequest,
)
from documents.api.uploads import LimitedUpload, sent_name
from documents.models import Document

if TYPE_CHECKING:
    from django.contrib.auth.models import User

ACCEPTED = OpenApiResponse(DocumentShape, description="Accepted")


class AnyAccept(BaseContentNegotiation):
    """For files: they have one form, whatever the caller would rather have."""

    def select_renderer(  # type: ignore[override]
        self, request: Request, renderers: list[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """The first renderer serves the errors."""
        return renderers[0], str(renderers[0].media_type)


@extend_schema_view(
    list=extend_schema(parameters=[ListQuery], responses=DocumentShape(many=True)),
    retrieve=extend_schema(responses=DocumentShape),
)
class DocumentViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Document]
):
    """The user's documents, newest first."""

    queryset = Document.objects.none()
    serializer_class = DocumentShape
    lookup_value_converter = "uuid"

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """Watch an upload from its first byte: authentication may be what reads the body."""
        if self._uploads(request):
            request.upload_handlers = [LimitedUpload(request)]
        return super().initialize_request(request, *args, **kwargs)

    def get_parsers(self) -> list[BaseParser]:
        """Uploads come as forms, the rest as JSON."""
        return [MultiPartParser()] if self._uploads(self.request) else super().get_parsers()

    def get_queryset(self) -> QuerySet[Document]:
        """What the user may read; the list narrowed by `status` and `q`, changes by ownership."""
        if self.request.method not in {"GET", "HEAD", "OPTIONS"}:
            return Document.objects.owned_by(_asker(self.request))
        rows = Document.objects.visible_to(_asker(self.request))
        return rows.narrowed(**_valid_query(self.request)) if self.action == "list" else rows

    @extend_schema(request={"multipart/form-data": UploadRequest}, responses={201: DocumentShape})
    def create(self, request: Request) -> Response:
        """Upload a file; it is processed afterwards."""
        fields = _valid(UploadRequest, request)
        document = services.upload(
            owner=_asker(request),
            name=sent_name(fields["file"]),
            content=fields["file"],
            metadata=metadata.parsed(fields["metadata"]),
        )
        return Response(DocumentShape(document).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=DocumentRequest, responses=DocumentShape)
    def partial_update(self, request: Request, pk: UUID) -> Response:
        """Rename a document or change its metadata."""
        document = self.get_object()
        services.update_document(document=document, **_valid(DocumentRequest, request))
        return Response(DocumentShape(document).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: UUID) -> Response:
        """Delete a document with all that was made from it."""
        services.delete_document(document=self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=None, responses={202: ACCEPTED})
    @action(detail=True, methods=["post"])
    def reprocess(self, request: Request, pk: UUID) -> Response:
        """Process the document again."""
        document = self.get_object()
        services.reprocess(document=document)
        return Response(DocumentShape(document).data, status=status.HTTP_202_ACCEPTED)

    @extend_schema(request=None, responses={202: ACCEPTED})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: UUID) -> Response:
        """Stop the processing."""
        document = self.get_object()
        services.cancel(document=document)
        return Response(DocumentShape(document).data, status=status.HTTP_202_ACCEPTED)

    @extend_schema(responses={(200, "application/octet-stream"): OpenApiTypes.BINARY})
    @action(detail=True, content_negotiation_class=AnyAccept)
    def file(self, request: Request, pk: UUID) -> HttpResponseBase:
        """Download the original."""
        return downloads.original(request._request, self.get_object())  # noqa: SLF001

    @extend_schema(responses={(200, "text/plain"): OpenApiTypes.STR})
    @action(detail=True, content_negotiation_class=AnyAccept)
    def text(self, request: Request, pk: UUID) -> HttpResponse:
        """Read the whole text."""
        return downloads.text(self.get_object())

    @extend_schema(responses=ChunkShape(many=True))
    @action(detail=True, filter_backends=[])
    def chunks(self, request: Request, pk: UUID) -> Response:
        """List the chunks in order."""
        rows = self.get_object().chunks.order_by("index").defer("lexemes")
        page: Any = self.paginate_queryset(rows)  # type: ignore[arg-type] # chunks, not documents
        return self.get_paginated_response(ChunkShape(page, many=True).data)

    @extend_schema(responses={(200, "image/png"): OpenApiTypes.BINARY})
    @action(detail=True, url_path="pages/<int:number>.png", content_negotiation_class=AnyAccept)
    def page(self, request: Request, pk: UUID, number: int) -> HttpResponse:
        """Show a page as a picture."""
        return downloads.picture(self.get_object(), number)

    def _uploads(self, request: HttpRequest | Request | None) -> bool:
        method = (request.method or "").lower() if request else ""
        return (self.action_map or {}).get(method) == "create"


def _asker(request: Request) -> "User":
    """Who asks; the permission classes let nobody else in."""
    return cast("User", request.user)


def _valid(shape: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    serializer = shape(data=request.data)
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)


def _valid_query(request: Request) -> dict[str, str]:
    query = ListQuery(data=request.query_params)
    query.is_valid(raise_exception=True)
    return dict(query.validated_data)
