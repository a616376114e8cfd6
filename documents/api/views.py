"""Documents, their pictures and the user's queue over REST."""

from dataclasses import asdict
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import (
    OpenApiParameter,
    OpenApiResponse,
    extend_schema,
    extend_schema_view,
)
from rest_framework import mixins, status
from rest_framework.decorators import action
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from documents import libraries, metadata, queue, services
from documents import versions as document_versions
from documents.api import transfers
from documents.api.requests import get_user, validate_body, validate_query
from documents.api.serializers import (
    ChunkShape,
    CountShape,
    DeletionRequest,
    DocumentRequest,
    DocumentShape,
    EraseQuery,
    FileRequest,
    HeadingShape,
    InspectionShape,
    ListQuery,
    PictureShape,
    QueueShape,
    UnchangedShape,
    UploadRequest,
    VersionQuery,
    VersionShape,
    parse_metadata_filters,
)
from documents.api.transfers import UploadViewSet, get_sent_name, takes_file
from documents.errors import PictureNotFound
from documents.models import AnyVersion, Document
from documents.representation import inspect_document, list_headings
from documents.sources.services import check_editable

ACCEPTED = OpenApiResponse(DocumentShape, description="Accepted")
COUNTED = OpenApiResponse(CountShape, description="Accepted")
UNCHANGED = OpenApiResponse(UnchangedShape, description="The same bytes were there already")
BY_METADATA = OpenApiParameter(
    "metadata.issuer",
    description="A value of the metadata; so with any key behind `metadata.`",
)


class AnyAccept(DefaultContentNegotiation):
    """For files, which have one form whatever the `Accept` header asks for."""

    def select_renderer(  # type: ignore[override]
        self, request: Request, renderers: list[BaseRenderer], format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        """The first renderer, which is used for errors."""
        return renderers[0], str(renderers[0].media_type)


@extend_schema_view(
    list=extend_schema(parameters=[ListQuery, BY_METADATA], responses=DocumentShape(many=True)),
    retrieve=extend_schema(responses=DocumentShape),
)
class DocumentViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, UploadViewSet[Document]):
    """The user's documents, newest first."""

    queryset = Document.objects.none()
    serializer_class = DocumentShape
    change_scope = "upload"  # of `chats.models.KeyScope`, which stands a floor above
    lookup_value_converter = "uuid"

    def get_queryset(self) -> QuerySet[Document]:
        """Documents that the user may read, filtered in a list; for changes those they own."""
        if self.request.method not in {"GET", "HEAD", "OPTIONS"}:
            return Document.objects.owned_by(get_user(self.request))
        rows = Document.objects.visible_to(get_user(self.request)).select_related("owner")
        if self.action != "list":
            return rows
        documents = rows.narrowed(**validate_query(ListQuery, self.request))
        matches = documents.with_metadata(parse_metadata_filters(self.request.query_params))
        return matches.prefetch_related("source_entries")

    @extend_schema(
        request={"multipart/form-data": UploadRequest},
        responses={201: DocumentShape, 200: UNCHANGED},
    )
    @takes_file
    def create(self, request: Request) -> Response:
        """Upload a file; it is processed afterwards."""
        fields = validate_body(UploadRequest, request)
        user = get_user(request)
        document, created = services.upload_document(
            owner=user,
            library=libraries.find_target_library(user=user, library_id=fields["library_id"]),
            name=get_sent_name(fields["file"]),
            content=fields["file"],
            metadata=metadata.parse_metadata(fields["metadata"]),
        )
        if not created:
            return Response(UnchangedShape(document).data)
        return Response(DocumentShape(document).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=DocumentRequest, responses=DocumentShape)
    def partial_update(self, request: Request, pk: UUID) -> Response:
        """Rename a document, change its metadata or move it into another library."""
        document, user = self.get_object(), get_user(request)
        fields = validate_body(DocumentRequest, request)
        if "library_id" in fields:
            check_editable(document)
            target = libraries.find_target_library(user=user, library_id=fields.pop("library_id"))
            libraries.move_document(document=document, library=target, actor=user)
        if fields:
            services.update_document(document=document, **fields)
        return Response(DocumentShape(document).data)

    @extend_schema(parameters=[EraseQuery], responses={204: None})
    def destroy(self, request: Request, pk: UUID) -> Response:
        """Delete a document with all that was made from it; `erase`: from old answers, too."""
        document = self.get_object()
        check_editable(document)
        erase = validate_query(EraseQuery, request)["erase"]
        services.delete_document(document=document, erase=erase, actor=get_user(request))
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=DeletionRequest, responses={204: None})
    @action(detail=False, methods=["post"], url_path="delete")
    def destroy_several(self, request: Request) -> Response:
        """Delete several documents: all of them, or none if one does not exist."""
        fields = validate_body(DeletionRequest, request)
        ids = set(fields["document_ids"])
        documents = list(self.get_queryset().filter(pk__in=ids))
        if len(documents) < len(ids):
            raise Http404
        for document in documents:
            check_editable(document)
        services.delete_documents(
            documents=documents, erase=fields["erase"], actor=get_user(request)
        )
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=None, responses={202: ACCEPTED})
    @action(detail=True, methods=["post"])
    def reprocess(self, request: Request, pk: UUID) -> Response:
        """Process the document again."""
        document = self.get_object()
        services.reprocess_document(document=document)
        return Response(DocumentShape(document).data, status=status.HTTP_202_ACCEPTED)

    @extend_schema(request=None, responses={202: ACCEPTED})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: UUID) -> Response:
        """Stop the processing."""
        document = self.get_object()
        services.cancel_document(document=document)
        return Response(DocumentShape(document).data, status=status.HTTP_202_ACCEPTED)

    @extend_schema(
        parameters=[VersionQuery],
        responses={(200, "application/octet-stream"): OpenApiTypes.BINARY},
    )
    @action(detail=True, content_negotiation_class=AnyAccept)
    def file(self, request: Request, pk: UUID) -> HttpResponseBase:
        """Download the original, or a part of it by a `Range`."""
        return transfers.respond_with_original(request._request, self._get_version(request))  # noqa: SLF001

    @extend_schema(
        request={"multipart/form-data": FileRequest},
        responses={202: ACCEPTED, 200: UNCHANGED},
    )
    @file.mapping.put
    @takes_file
    def replace_file(self, request: Request, pk: UUID) -> Response:
        """Send a new version; the old one is searched until the new one has been read."""
        document = self.get_object()
        check_editable(document)
        file = validate_body(FileRequest, request)["file"]
        if not document_versions.receive_version(
            document=document, name=get_sent_name(file), content=file
        ):
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
        return transfers.respond_with_text(self._get_version(request))

    @extend_schema(parameters=[VersionQuery], responses=HeadingShape(many=True))
    @action(detail=True, filter_backends=[], pagination_class=None)
    def outline(self, request: Request, pk: UUID) -> Response:
        """List the headings in order; those of an old version are not known."""
        return Response(HeadingShape(list_headings(self._get_version(request)), many=True).data)

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
        return transfers.respond_with_page(request._request, self._get_version(request), number)  # noqa: SLF001

    @extend_schema(responses=InspectionShape)
    @action(detail=True, filter_backends=[])
    def inspection(self, request: Request, pk: UUID) -> Response:
        """Show counts, lengths, pages without text, pictures and times."""
        return Response(inspect_document(self.get_object()))

    @extend_schema(responses=PictureShape(many=True))
    @action(detail=True, filter_backends=[])
    def pictures(self, request: Request, pk: UUID) -> Response:
        """List all pictures in their order, the rejected too."""
        rows = self.get_object().pictures.order_by("index")
        page: Any = self.paginate_queryset(rows)  # type: ignore[arg-type] # not documents
        return self.get_paginated_response(PictureShape(page, many=True).data)

    @extend_schema(
        responses={
            (200, "image/png"): OpenApiTypes.BINARY,
            (200, "image/jpeg"): OpenApiTypes.BINARY,
        }
    )
    @action(detail=True, url_path="pictures/<int:index>.png", content_negotiation_class=AnyAccept)
    def picture(self, request: Request, pk: UUID, index: int) -> HttpResponseBase:
        """Show one kept picture, as PNG or JPEG."""
        row = self.get_object().pictures.filter(index=index, rejected="").first()
        if row is None:
            raise PictureNotFound(picture=index)
        return transfers.respond_with_picture(request._request, row)  # noqa: SLF001

    @extend_schema(responses=QueueShape)
    @action(detail=False, filter_backends=[], pagination_class=None)
    def queue(self, request: Request) -> Response:
        """Count what waits, works and is paused, and estimate the rest."""
        return Response(asdict(queue.get_queue_status(owner=get_user(request))))

    @extend_schema(request=None, responses={202: ACCEPTED})
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, pk: UUID) -> Response:
        """Put a document off that waits or is at work."""
        document = self.get_object()
        services.pause_document(document=document)
        return Response(DocumentShape(document).data, status=status.HTTP_202_ACCEPTED)

    @extend_schema(request=None, responses={202: ACCEPTED})
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: UUID) -> Response:
        """Go on with a paused document."""
        document = self.get_object()
        services.resume_document(document=document)
        return Response(DocumentShape(document).data, status=status.HTTP_202_ACCEPTED)

    @extend_schema(request=None, responses={202: COUNTED})
    @action(detail=False, methods=["post"], url_path="pause")
    def pause_all(self, request: Request) -> Response:
        """Put off all documents that wait or are at work."""
        return _to_count_response(services.pause_documents(owner=get_user(request)))

    @extend_schema(request=None, responses={202: COUNTED})
    @action(detail=False, methods=["post"], url_path="resume")
    def resume_all(self, request: Request) -> Response:
        """Go on with all documents that are paused."""
        return _to_count_response(services.resume_documents(owner=get_user(request)))

    @extend_schema(request=None, responses={202: COUNTED})
    @action(detail=False, methods=["post"], url_path="cancel")
    def cancel_all(self, request: Request) -> Response:
        """Stop the processing of all documents that have not ended."""
        return _to_count_response(services.cancel_documents(owner=get_user(request)))

    def _get_version(self, request: Request) -> AnyVersion:
        """The requested version of a document that the user may read."""
        document = self.get_object()
        number = validate_query(VersionQuery, request).get("version")
        return document if number is None else document_versions.get_version(document, number)


def _to_count_response(count: int) -> Response:
    return Response({"count": count}, status=status.HTTP_202_ACCEPTED)
