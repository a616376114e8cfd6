"""REST: the signed-in user, what he has chosen, his API keys, and where he is signed in."""

from datetime import datetime
from typing import Any, cast
from uuid import UUID

from allauth.account.adapter import get_adapter
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from knox.models import AuthToken
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView
from rest_framework.parsers import MultiPartParser
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chats.access import get_user
from chats.errors import ScopeMissing
from chats.models import KeyScope
from chats.models.key import (
    KEY_NAME_CHARACTERS,
    list_scopes,
    make_key_id,
    sort_scopes,
)
from documents.api.serializers import FileRequest
from documents.api.transfers import LimitedUpload, get_sent_name, takes_file
from documents.api.views import AnyAccept
from documents.notices import announce_rights_change
from nura.accounts import deletion, exports, imports, profile, services
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
        announce_rights_change()
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
    if not profile.is_second_step_done(user=account, code=code):
        raise SecondStepRequired
    return account


class KeySerializer(serializers.Serializer[Any]):
    """A key without its secret."""

    id = serializers.UUIDField()
    name = serializers.CharField()
    scopes = serializers.ListField(child=serializers.ChoiceField(KeyScope.choices))
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True)


class NewKeySerializer(KeySerializer):
    """A key that was made just now: the only time its secret is told."""

    key = serializers.CharField()


class KeyRequest(serializers.Serializer[Any]):
    """What a new key is called and good for, and until when."""

    name = serializers.CharField(max_length=KEY_NAME_CHARACTERS)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(KeyScope.choices), allow_empty=False
    )
    expires_at = serializers.DateTimeField(required=False, allow_null=True, default=None)

    def validate_expires_at(self, value: Any) -> Any:
        """In the future."""
        if value is not None and value <= timezone.now():
            raise serializers.ValidationError("must be in the future")
        return value


class SignedInSerializer(serializers.Serializer[Any]):
    """A place where the account is signed in."""

    id = serializers.UUIDField()
    is_current = serializers.BooleanField()
    device = serializers.CharField()
    address = serializers.CharField()
    created_at = serializers.DateTimeField()
    last_seen_at = serializers.DateTimeField()


class KeysView(GenericAPIView[AuthToken]):
    """`GET, POST /me/keys`."""

    required_scope = KeyScope.ADMIN
    queryset = AuthToken.objects.none()
    serializer_class = KeySerializer

    @extend_schema(responses=KeySerializer(many=True))
    def get(self, request: Request) -> Response:
        """The keys that still work, newest first."""
        page = self.paginate_queryset(services.list_keys(user=get_user(request))) or ()
        shown = KeySerializer([to_key_json(key) for key in page], many=True)
        return self.get_paginated_response(shown.data)

    @extend_schema(request=KeyRequest, responses={201: NewKeySerializer})
    def post(self, request: Request) -> Response:
        """Make a key. One that is made with a key can do no more, and lives no longer, than it.

        A browser needs the password, shown at most five minutes before.
        """
        require_recent_proof(request)
        serializer = KeyRequest(data=request.data)
        serializer.is_valid(raise_exception=True)
        wanted = serializer.validated_data
        expires_at = _limit_to_own_key(request, wanted["scopes"], wanted["expires_at"])
        stored, secret = services.make_key(
            user=get_user(request),
            name=wanted["name"],
            scopes=wanted["scopes"],
            expires_at=expires_at,
        )
        shown = NewKeySerializer({**to_key_json(stored), "key": secret})
        return Response(shown.data, status=status.HTTP_201_CREATED)


class KeyView(APIView):
    """`DELETE /me/keys/{id}`."""

    required_scope = KeyScope.ADMIN

    @extend_schema(responses={204: None})
    def delete(self, request: Request, key_id: UUID) -> Response:
        """Revoke a key: what it has open ends at once."""
        if not services.revoke_key(user=get_user(request), key_id=key_id):
            raise Http404
        return Response(status=status.HTTP_204_NO_CONTENT)


class SessionsView(GenericAPIView[UserSession]):
    """`GET, DELETE /me/sessions`."""

    required_scope = KeyScope.ADMIN
    queryset = UserSession.objects.none()
    serializer_class = SignedInSerializer

    @extend_schema(responses=SignedInSerializer(many=True))
    def get(self, request: Request) -> Response:
        """Where the account is signed in."""
        found = services.list_sessions(
            user=get_user(request), current_key=_get_session_key(request)
        )
        page = self.paginate_queryset(found) or ()
        return self.get_paginated_response(SignedInSerializer(page, many=True).data)

    @extend_schema(
        parameters=[OpenApiParameter("keep_current", bool, description="All but this one")],
        responses={204: None},
    )
    def delete(self, request: Request) -> Response:
        """Sign out everywhere, here too unless `?keep_current=true`. Keys stay."""
        keeps = request.query_params.get("keep_current", "").lower() in {"true", "1", "yes"}
        kept = _get_session_key(request) if keeps else ""
        services.end_sessions(user=get_user(request), except_key=kept)
        return Response(status=status.HTTP_204_NO_CONTENT)


class SessionView(APIView):
    """`DELETE /me/sessions/{id}`."""

    required_scope = KeyScope.ADMIN

    @extend_schema(responses={204: None})
    def delete(self, request: Request, session_id: UUID) -> Response:
        """Sign out there."""
        if not services.end_session(user=get_user(request), session_id=session_id):
            raise Http404
        return Response(status=status.HTTP_204_NO_CONTENT)


def to_key_json(key: AuthToken) -> dict[str, Any]:
    """The fields of `KeySerializer`."""
    details = getattr(key, "details", None)
    return {
        "id": make_key_id(key),
        "name": details.name if details else "",
        "scopes": sort_scopes(list_scopes(key)),
        "created_at": key.created,
        "expires_at": key.expiry,
        "last_used_at": details.last_used_at if details else None,
    }


def _limit_to_own_key(
    request: Request, scopes: list[str], expires_at: datetime | None
) -> datetime | None:
    """When a new key expires. Raises `ScopeMissing` where it could do more than the one it asks."""
    maker = request.auth if isinstance(request.auth, AuthToken) else None
    if maker is not None:
        for scope in sort_scopes(set(scopes) - list_scopes(maker)):
            raise ScopeMissing(scope=scope)
        ends = [moment for moment in (expires_at, maker.expiry) if moment is not None]
        expires_at = min(ends, default=None)
    return expires_at


def _get_session_key(request: Request) -> str:
    is_session = not isinstance(request.auth, AuthToken)
    return (request.session.session_key or "") if is_session else ""
