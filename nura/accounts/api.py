"""REST: exchange a password for an API key; the signed-in user and what he has chosen."""

from typing import Any, cast
from uuid import UUID

from allauth.account.adapter import get_adapter
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.urls import reverse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chats.models import KeyScope
from documents.api.serializers import FileRequest
from documents.api.transfers import LimitedUpload, get_sent_name, takes_file
from documents.api.views import AnyAccept
from documents.notices import announce_change
from nura.accounts import deletion, exports, imports, services, two_step
from nura.accounts.authentication import require_recent_proof
from nura.accounts.models import DataExport, DataImport, Preferences
from nura.accounts.preferences import get_preferences, save_preferences
from rag.errors import NuraError


class InvalidCredentials(NuraError):
    """Unknown user, wrong password or disabled user; indistinguishable from outside."""

    code = "invalid_credentials"


class SecondStepRequired(NuraError):
    """The password is right, and the account asks for a code that is missing or wrong."""

    code = "second_step_required"


class CredentialsSerializer(serializers.Serializer[Any]):
    """What a person signs in with."""

    username = serializers.CharField(max_length=254)
    password = serializers.CharField(max_length=1024, trim_whitespace=False)
    code = serializers.CharField(
        max_length=20, required=False, help_text="Of an account with two-step sign-in."
    )


class TokenSerializer(serializers.Serializer[Any]):
    """An API key, shown this once."""

    token = serializers.CharField()


class UsageSerializer(serializers.Serializer[Any]):
    """What a user has stored and asked."""

    documents = serializers.IntegerField()
    bytes = serializers.IntegerField()
    pages = serializers.IntegerField()
    messages_today = serializers.IntegerField()
    tokens_this_month = serializers.IntegerField()


class AccountSerializer(serializers.Serializer[Any]):
    """The signed-in user."""

    id = serializers.IntegerField()
    username = serializers.CharField()
    is_staff = serializers.BooleanField()
    usage = UsageSerializer()
    limits = serializers.DictField(child=serializers.IntegerField(allow_null=True))
    left = serializers.DictField(
        child=serializers.IntegerField(allow_null=True), help_text="What is left of each limit."
    )
    soft = serializers.DictField(
        child=serializers.IntegerField(allow_null=True),
        help_text="From that on people are told what is left.",
    )
    resets_at = serializers.DictField(
        child=serializers.DateTimeField(), help_text="When counting begins anew."
    )


class PreferencesSerializer(serializers.ModelSerializer[Preferences]):
    """How a user wants the pages; all of it may be changed."""

    language = serializers.ChoiceField(settings.LANGUAGES, required=False)

    class Meta:
        """As the settings have it."""

        model = Preferences
        fields = ("language", "theme", "send_key", "document_layout", "voice", "speech_rate")


class ExportSerializer(serializers.ModelSerializer[DataExport]):
    """A request for all data; `url` is there while the file can be had."""

    url = serializers.SerializerMethodField()

    class Meta:
        """Without what only workers read."""

        model = DataExport
        fields = ("id", "status", "size", "created_at", "expires_at", "url")

    def get_url(self, export: DataExport) -> str | None:
        """Where the file is."""
        if export.status != DataExport.Status.READY:
            return None
        return reverse("api-export-file", args=[export.pk])


class TokenView(APIView):
    """`POST /auth/token`."""

    authentication_classes = ()
    permission_classes = (AllowAny,)

    @extend_schema(request=CredentialsSerializer, responses=TokenSerializer)
    def post(self, request: Request) -> Response:
        """A new API key for a user name (or e-mail address) and password."""
        credentials = CredentialsSerializer(data=request.data)
        credentials.is_valid(raise_exception=True)
        user = _authenticate(request, **credentials.validated_data)
        return Response({"token": services.create_key(user=user)})


class ProofSerializer(serializers.Serializer[Any]):
    """The password again, of somebody who is signed in already."""

    password = serializers.CharField(max_length=1024, trim_whitespace=False)
    code = serializers.CharField(
        max_length=20, required=False, help_text="Of an account with two-step sign-in."
    )


class MeView(APIView):
    """`GET`, `DELETE /me`."""

    @extend_schema(responses=AccountSerializer)
    def get(self, request: Request) -> Response:
        """The signed-in user with usage and limits."""
        return Response(services.describe_account(user=cast("User", request.user)))

    @extend_schema(request=ProofSerializer, responses={200: OpenApiTypes.OBJECT})
    def delete(self, request: Request) -> Response:
        """Delete the account with everything: chats, documents, keys. Answers with the receipt.

        It takes the password.
        """
        given = ProofSerializer(data=request.data)
        given.is_valid(raise_exception=True)
        user = cast("User", request.user)
        proved = _authenticate(request, user.username, **given.validated_data)
        if proved.pk != user.pk:
            raise InvalidCredentials
        receipt = deletion.delete_account(user=proved)
        announce_change()
        request._request.session.flush()  # noqa: SLF001 - of a browser, whose row is gone
        return Response(receipt)


class PreferencesView(APIView):
    """`GET`, `PATCH /me/preferences`."""

    @extend_schema(responses=PreferencesSerializer)
    def get(self, request: Request) -> Response:
        """How the user wants the pages."""
        kept = get_preferences(user=cast("User", request.user))
        return Response(PreferencesSerializer(kept).data)

    @extend_schema(request=PreferencesSerializer, responses=PreferencesSerializer)
    def patch(self, request: Request) -> Response:
        """Change some of it; the rest stays."""
        given = PreferencesSerializer(data=request.data, partial=True)
        given.is_valid(raise_exception=True)
        saved = save_preferences(user=cast("User", request.user), **given.validated_data)
        return Response(PreferencesSerializer(saved).data)


class MyExportsView(APIView):
    """`POST /me/export`."""

    required_scope = KeyScope.ADMIN

    @extend_schema(request=None, responses={202: ExportSerializer})
    def post(self, request: Request) -> Response:
        """Ask for all of one's data as a file; the request that is under way where one is."""
        require_recent_proof(request)
        export = exports.request_export(user=cast("User", request.user))
        return Response(ExportSerializer(export).data, status=202)


class MyExportView(APIView):
    """`GET /me/exports/{id}`."""

    required_scope = KeyScope.ADMIN

    @extend_schema(responses=ExportSerializer)
    def get(self, request: Request, export_id: UUID) -> Response:
        """How far an export is."""
        mine = DataExport.objects.filter(owner=cast("User", request.user))
        return Response(ExportSerializer(get_object_or_404(mine, pk=export_id)).data)


class ImportSerializer(serializers.ModelSerializer[DataImport]):
    """A file that is being imported, or was; `total` is null until it has been read once."""

    class Meta:
        """Without what only workers read."""

        model = DataImport
        fields = (
            "id",
            "name",
            "status",
            "done",
            "total",
            "messages",
            "empty",
            "error_code",
            "created_at",
            "ended_at",
        )


class MyImportsView(APIView):
    """`POST /me/imports`."""

    parser_classes = (MultiPartParser,)

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """Watch the file from its first byte: authentication may be what reads the body."""
        request.upload_handlers = [LimitedUpload(request)]
        return super().initialize_request(request, *args, **kwargs)

    @extend_schema(request={"multipart/form-data": FileRequest}, responses={202: ImportSerializer})
    @takes_file
    def post(self, request: Request) -> Response:
        """Import chats from an export of Nura or ChatGPT; what is there already stays as it is."""
        given = FileRequest(data=request.data)
        given.is_valid(raise_exception=True)
        file = given.validated_data["file"]
        kept = imports.request_import(
            user=cast("User", request.user), name=get_sent_name(file), content=file
        )
        return Response(ImportSerializer(kept).data, status=202)


class MyImportView(APIView):
    """`GET /me/imports/{id}`."""

    @extend_schema(responses=ImportSerializer)
    def get(self, request: Request, import_id: UUID) -> Response:
        """How far an import is."""
        mine = DataImport.objects.filter(owner=cast("User", request.user))
        return Response(ImportSerializer(get_object_or_404(mine, pk=import_id)).data)


class MyExportFileView(APIView):
    """`GET /me/exports/{id}/file`."""

    required_scope = KeyScope.ADMIN
    content_negotiation_class = AnyAccept

    @extend_schema(responses={(200, "application/zip"): OpenApiTypes.BINARY})
    def get(self, request: Request, export_id: UUID) -> HttpResponseBase:
        """The file of an export, as long as it is kept."""
        user = cast("User", request.user)
        return exports.respond_with_export(request._request, user=user, export_id=export_id)  # noqa: SLF001 - how it is sent depends on Django's request


def _authenticate(request: Request, username: str, password: str, code: str = "") -> User:
    name = User.normalize_username(username)
    user = get_adapter().authenticate(request._request, username=name, password=password)  # noqa: SLF001 - allauth counts attempts by Django's request
    if user is None or not user.is_active:
        raise InvalidCredentials
    account: User = user
    if not two_step.is_second_step_done(user=account, code=code):
        raise SecondStepRequired
    return account
