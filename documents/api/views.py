"""Documents over REST."""

from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import (
    OpenApiParameter,
    OpenApiResponse,
    extend_schema,
    extend_schema_view,
)
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import BaseParser, MultiPartParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from documents import metadata, services
from documents import versions as document_versions
from documents.api import downloads
from documents.api.shapes import (
    ChunkShape,
    DocumentRequest,
    DocumentShape,
    FileRequest,
    ListQuery,
    UnchangedShape,
    UploadRequest,
    VersionQuery,
    VersionShape,
    metadata_query,
)
from documents.api.uploads import LimitedUpload, sent_name, takes_file, takes_file_by
from documents.models import Document, DocumentVersion

if TYPE_CHECKING:
    from django.contrib.auth.models import User

ACCEPTED = OpenApiResponse(DocumentShape, description="Accepted")
UNCHANGED = OpenApiResponse(UnchangedShape, description="The same bytes were there already")
BY_METADATA = OpenApiParameter(
    "metadata.issuer",
    description="A value of the metadata; so with any key behind `metadata.`",
)


class AnyAccept(DefaultContentNegotiation):
    """For files: they have one form, whatever the caller would rather have."""

    def select_renderer(  # type: ignore[override]
        self, request: Request, renderers: list[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """The first renderer serves the errors."""
        return renderers[0], str(renderers[0].media_type)


@extend_schema_view(
    list=extend_schema(parameters=[ListQuery, BY_METADATA], responses=DocumentShape(many=True)),
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
        if self._takes_file(request):
            request.upload_handlers = [LimitedUpload(request)]
        return super().initialize_request(request, *args, **kwargs)

    def get_parsers(self) -> list[BaseParser]:
        """Uploads come as forms, the rest as JSON."""
        return [MultiPartParser()] if self._takes_file(self.request) else super().get_parsers()

    def get_queryset(self) -> QuerySet[Document]:
        """What the user may read, a list of it narrowed; what he may change."""
        if self.request.method not in {"GET", "HEAD", "OPTIONS"}:
            return Document.objects.owned_by(_asker(self.request))
        rows = Document.objects.visible_to(_asker(self.request))
        if self.action != "list":
            return rows
        narrowed = rows.narrowed(**_valid_query(ListQuery, self.request))
        return narrowed.described(metadata_query(self.request.query_params))

    @extend_schema(
        request={"multipart/form-data": UploadRequest},
        responses={201: DocumentShape, 200: UNCHANGED},
    )
    @takes_file
    def create(self, request: Request) -> Response:
        """Upload a file; it is processed afterwards."""
        fields = _valid(UploadRequest, request)
        document, created = services.upload(
            owner=_asker(request),
            name=sent_name(fields["file"]),
            content=fields["file"],
            metadata=metadata.parse_metadata(fields["metadata"]),
        )
        if not created:
            return Response(UnchangedShape(document).data)
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

    @extend_schema(
        parameters=[VersionQuery],
        responses={(200, "application/octet-stream"): OpenApiTypes.BINARY},
    )
    @action(detail=True, content_negotiation_class=AnyAccept)
    def file(self, request: Request, pk: UUID) -> HttpResponseBase:
        """Download the original, or a part of it by a `Range`."""
        return downloads.original(request._request, self._version(request))  # noqa: SLF001

    @extend_schema(
        request={"multipart/form-data": FileRequest},
        responses={202: ACCEPTED, 200: UNCHANGED},
    )
    @file.mapping.put
    @takes_file
    def replace_file(self, request: Request, pk: UUID) -> Response:
        """Send a new version; the old one is searched until the new one has been read."""
        document = self.get_object()
        file = _valid(FileRequest, request)["file"]
        if not document_versions.receive(document=document, name=sent_name(file), content=file):
            return Response(UnchangedShape(document).data)
        return Response(DocumentShape(document).data, status=status.HTTP_202_ACCEPTED)

    @extend_schema(responses=VersionShape(many=True))
    @action(detail=True, filter_backends=[], pagination_class=None)
    def versions(self, request: Request, pk: UUID) -> Response:
        """List the document's files: the current one, then the others, newest first."""
        document = self.get_object()
        return Response(VersionShape([document, *document.versions.all()], many=True).data)

    @extend_schema(parameters=[VersionQuery], responses={(200, "text/plain"): OpenApiTypes.STR})
    @action(detail=True, content_negotiation_class=AnyAccept)
    def text(self, request: Request, pk: UUID) -> HttpResponse:
        """Read the whole text."""
        return downloads.text(self._version(request))

    @extend_schema(responses=ChunkShape(many=True))
    @action(detail=True, filter_backends=[])
    def chunks(self, request: Request, pk: UUID) -> Response:
        """List the chunks in order."""
        rows = self.get_object().chunks.order_by("index").defer("lexemes")
        page: Any = self.paginate_queryset(rows)  # type: ignore[arg-type] # chunks, not documents
        return self.get_paginated_response(ChunkShape(page, many=True).data)

    @extend_schema(parameters=[VersionQuery], responses={(200, "image/png"): OpenApiTypes.BINARY})
    @action(detail=True, url_path="pages/<int:number>.png", content_negotiation_class=AnyAccept)
    def page(self, request: Request, pk: UUID, number: int) -> HttpResponseBase:
        """Show a page as a picture."""
        return downloads.picture(request._request, self._version(request), number)  # noqa: SLF001

    def _version(self, request: Request) -> Document | DocumentVersion:
        """The version that is asked for, of a document that the user may read."""
        document = self.get_object()
        number = _valid_query(VersionQuery, request).get("version")
        return document if number is None else document_versions.at(document, number)

    def _takes_file(self, request: HttpRequest | Request | None) -> bool:
        method = (request.method or "") if request else ""
        return takes_file_by(type(self), self.action_map or {}, method)


def _asker(request: Request) -> "User":
    """Who asks; the permission classes let nobody else in."""
    return cast("User", request.user)


def _valid(shape: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    serializer = shape(data=request.data)
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)


def _valid_query(shape: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    query = shape(data=request.query_params)
    query.is_valid(raise_exception=True)
    return dict(query.validated_data)
