"""The sources of a library over REST, for those who manage it."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from documents.api.requests import get_user, validate_body, validate_query
from documents.api.transfers import UploadViewSet, get_sent_name, takes_file
from documents.models import Library
from documents.sources import services
from documents.sources.models import RunStatus, Source

KIND_CHARACTERS, NAME_CHARACTERS = 20, 120


class SourceErrorShape(serializers.Serializer[Any]):
    """What went wrong, in words."""

    code = serializers.CharField()
    detail = serializers.CharField()


class SourceRunShape(serializers.Serializer[Any]):
    """A run: how many entries, by what happened to them, and the names of some."""

    id = serializers.UUIDField()
    at = serializers.DateTimeField()
    ended_at = serializers.DateTimeField(allow_null=True)
    status = serializers.ChoiceField(choices=RunStatus.choices)
    stage = serializers.CharField(allow_null=True)
    dry_run = serializers.BooleanField()
    listed = serializers.IntegerField()
    added = serializers.IntegerField()
    changed = serializers.IntegerField()
    renamed = serializers.IntegerField()
    removed = serializers.IntegerField()
    held = serializers.IntegerField(help_text="Gone at the source; deleted once confirmed")
    failed = serializers.IntegerField()
    names = serializers.DictField(child=serializers.ListField(child=serializers.CharField()))
    error = SourceErrorShape(allow_null=True)


class SourceShape(serializers.Serializer[Any]):
    """A source; secrets are listed by name only."""

    id = serializers.UUIDField()
    kind = serializers.CharField()
    name = serializers.CharField()
    owner = serializers.CharField(help_text="Whose documents it brings")
    settings = serializers.DictField()
    schedule = serializers.DictField(allow_null=True)
    paused = serializers.BooleanField()
    state = serializers.ChoiceField(choices=["idle", "running", "held", "failed", "paused"])
    next_run_at = serializers.DateTimeField(allow_null=True)
    document_count = serializers.IntegerField()
    last_run = SourceRunShape(allow_null=True)
    dry_run = SourceRunShape(allow_null=True, help_text="The last dry run")
    created_at = serializers.DateTimeField()


class SourceRequest(serializers.Serializer[Any]):
    """A new source."""

    kind = serializers.CharField(max_length=KIND_CHARACTERS)
    name = serializers.CharField(
        max_length=NAME_CHARACTERS, required=False, allow_blank=True, default=""
    )
    settings = serializers.DictField(required=False, default=dict)
    schedule = serializers.DictField(
        required=False,
        allow_null=True,
        default=None,
        help_text='`{"every": 30, "unit": "minutes|hours|days"}` or `{"at": "03:30"}`',
    )


class SourceChange(serializers.Serializer[Any]):
    """Changes to a source; settings that are not named stay."""

    name = serializers.CharField(max_length=NAME_CHARACTERS, required=False)
    settings = serializers.DictField(required=False)
    schedule = serializers.DictField(required=False, allow_null=True)
    paused = serializers.BooleanField(required=False)


class SourceRunRequest(serializers.Serializer[Any]):
    """How to run it."""

    dry_run = serializers.BooleanField(required=False, default=False)
    confirm = serializers.BooleanField(
        required=False, default=False, help_text="Delete what is gone, however much it is"
    )


class SourceDeletionQuery(serializers.Serializer[Any]):
    """What becomes of the source's documents."""

    documents = serializers.ChoiceField(choices=["keep", "delete"], required=False, default="keep")


class SourceProblemShape(serializers.Serializer[Any]):
    """An entry that could not be read."""

    uri = serializers.CharField()
    document_id = serializers.UUIDField(allow_null=True)
    error = SourceErrorShape()


class ManifestFile(serializers.Serializer[Any]):
    """One file of a program."""

    path = serializers.CharField()
    sha256 = serializers.CharField()


class ManifestRequest(SourceRunRequest):
    """All files of a program; documents of others are deleted."""

    files = ManifestFile(many=True)


class ManifestShape(serializers.Serializer[Any]):
    """The run that a list started, and the paths of the files that are still to be sent."""

    run = SourceRunShape(allow_null=True)
    wanted = serializers.ListField(child=serializers.CharField())


class SourceFileRequest(serializers.Serializer[Any]):
    """A file that is wanted."""

    path = serializers.CharField(
        required=False, default="", help_text="As in the list; the name of the file by default"
    )
    file = serializers.FileField(allow_empty_file=True)


class SourceFileShape(serializers.Serializer[Any]):
    """The document that a file has become."""

    document_id = serializers.UUIDField()


class SourceViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, UploadViewSet[Source]):
    """The sources that fill a library."""

    queryset = Source.objects.none()
    serializer_class = SourceShape
    change_scope = "upload"
    lookup_value_converter = "uuid"
    lookup_url_kwarg = "source_id"

    def get_queryset(self) -> QuerySet[Source]:
        """The sources of the library, by name."""
        rows = Source.objects.filter(library=self._get_library())
        return rows.select_related("owner", "library")

    def _get_library(self) -> Library:
        libraries = Library.objects.managed_by(get_user(self.request))
        return get_object_or_404(libraries, pk=self.kwargs["library_id"])

    def list(self, request: Request, library_id: UUID) -> Response:
        """List the sources."""
        page: Any = self.paginate_queryset(self.get_queryset())
        return self.get_paginated_response([services.to_source_json(one) for one in page])

    def retrieve(self, request: Request, library_id: UUID, source_id: UUID) -> Response:
        """Show one source."""
        return Response(services.to_source_json(self.get_object()))

    @extend_schema(request=SourceRequest, responses={201: SourceShape})
    def create(self, request: Request, library_id: UUID) -> Response:
        """Set a source up. It runs when it is told to, or by its schedule."""
        library = self._get_library()
        fields = validate_body(SourceRequest, request)
        source = services.create_source(
            library=library,
            creator=get_user(request),
            values=fields.pop("settings"),
            **fields,
        )
        return Response(services.to_source_json(source), status=status.HTTP_201_CREATED)

    @extend_schema(request=SourceChange, responses=SourceShape)
    def partial_update(self, request: Request, library_id: UUID, source_id: UUID) -> Response:
        """Change a source; who changes its settings owns what it brings."""
        source = self.get_object()
        fields = validate_body(SourceChange, request)
        if "settings" in fields:
            fields["values"] = fields.pop("settings")
        services.update_source(source=source, actor=get_user(request), **fields)
        return Response(services.to_source_json(source))

    @extend_schema(parameters=[SourceDeletionQuery], responses={204: None})
    def destroy(self, request: Request, library_id: UUID, source_id: UUID) -> Response:
        """Remove a source; its documents stay, or go with it."""
        source = self.get_object()
        query = validate_query(SourceDeletionQuery, request)
        delete_documents = query["documents"] == "delete"
        services.delete_source(
            source=source, actor=get_user(request), with_documents=delete_documents
        )
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(request=SourceRunRequest, responses={202: SourceRunShape})
    @action(detail=True, methods=["post"])
    def run(self, request: Request, library_id: UUID, source_id: UUID) -> Response:
        """Compare now; a dry run only tells what would happen."""
        source = self.get_object()
        fields = validate_body(SourceRunRequest, request)
        run = services.start_source(
            source=source,
            actor=get_user(request),
            dry_run=fields["dry_run"],
            confirmed=fields["confirm"],
        )
        return Response(services.to_run_json(run), status=status.HTTP_202_ACCEPTED)

    @extend_schema(responses=SourceRunShape(many=True))
    @action(detail=True, filter_backends=[])
    def runs(self, request: Request, library_id: UUID, source_id: UUID) -> Response:
        """List the runs, newest first."""
        page: Any = self.paginate_queryset(self.get_object().runs.all())  # type: ignore[arg-type] # runs
        return self.get_paginated_response([services.to_run_json(one) for one in page])

    @extend_schema(responses=SourceProblemShape(many=True))
    @action(detail=True, filter_backends=[])
    def problems(self, request: Request, library_id: UUID, source_id: UUID) -> Response:
        """List what could not be read."""
        rows: Any = services.list_problems(self.get_object())
        page: Any = self.paginate_queryset(rows)
        return self.get_paginated_response([services.to_problem_json(one) for one in page])

    @extend_schema(responses=ManifestShape)
    @action(detail=True)
    def manifest(self, request: Request, library_id: UUID, source_id: UUID) -> Response:
        """Show which files are still to be sent."""
        return Response(_to_manifest_json(self.get_object()))

    @extend_schema(request=ManifestRequest, responses={200: ManifestShape})
    @manifest.mapping.post
    def send_manifest(self, request: Request, library_id: UUID, source_id: UUID) -> Response:
        """Send the list of all files; the answer names those that are to be sent."""
        source = self.get_object()
        fields = validate_body(SourceRunRequest, request)
        run = services.receive_manifest(
            source=source,
            entries=request.data.get("files") if isinstance(request.data, dict) else None,
            actor=get_user(request),
            dry_run=fields["dry_run"],
            confirmed=fields["confirm"],
        )
        return Response(_to_manifest_json(source) | {"run": services.to_run_json(run)})

    @extend_schema(
        request={"multipart/form-data": SourceFileRequest}, responses={201: SourceFileShape}
    )
    @action(detail=True, methods=["post"])
    @takes_file
    def files(self, request: Request, library_id: UUID, source_id: UUID) -> Response:
        """Send a file that is wanted."""
        source = self.get_object()
        fields = validate_body(SourceFileRequest, request)
        path = fields["path"] or get_sent_name(fields["file"])
        entry = services.receive_file(source=source, path=path, content=fields["file"])
        return Response({"document_id": entry.document_id}, status=status.HTTP_201_CREATED)


def _to_manifest_json(source: Source) -> dict[str, Any]:
    last = source.runs.filter(dry_run=False).first()
    return {
        "run": services.to_run_json(last) if last else None,
        "wanted": services.list_wanted_paths(source),
    }
