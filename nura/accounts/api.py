"""REST: the signed-in user, their preferences, API keys, sessions, exports and imports."""

from datetime import datetime
from typing import Any
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

from chats.errors import ScopeMissing
from chats.models import KeyScope
from chats.models.key import (
    KEY_NAME_CHARACTERS,
    list_scopes,
    make_key_id,
    sort_scopes,
)
from documents.api.requests import get_user, validate_body
from documents.api.serializers import FileRequest
from documents.api.transfers import LimitedUpload, get_sent_name, takes_file
from documents.api.views import AnyAccept
from documents.notices import announce_rights_change
from nura.accounts import deletion, exports, imports, profile, services
from nura.accounts.authentication import require_recent_proof
from nura.accounts.preferences import get_preferences, save_preferences
from nura.models import DataExport, DataImport, Preferences
from rag.errors import NuraError


class InvalidCredentials(NuraError):
    """Unknown user, wrong password or disabled user; indistinguishable from outside."""

    code = "invalid_credentials"


class SecondStepRequired(NuraError):
    """The password is right, but the code of the second step is missing or wrong."""

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
    """A user's preferences, all of which can be changed."""

    language = serializers.ChoiceField(settings.LANGUAGES, required=False)

    class Meta:
        """The fields of the settings page."""

        model = Preferences
        fields = ("language", "theme", "send_key", "document_layout", "voice", "speech_rate")


class ExportSerializer(serializers.ModelSerializer[DataExport]):
    """A request for all data; `url` is set while the file can be downloaded."""

    url = serializers.SerializerMethodField()

    class Meta:
        """Without what only workers read."""

        model = DataExport
        fields = ("id", "status", "size", "created_at", "expires_at", "url")

    def get_url(self, export: DataExport) -> str | None:
        """The address of the file."""
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
        user = _authenticate(request, **validate_body(CredentialsSerializer, request))
        return Response({"token": services.create_key(user=user)})


class ProofSerializer(serializers.Serializer[Any]):
    """The password, asked again of a user who is signed in."""

    password = serializers.CharField(max_length=1024, trim_whitespace=False)
    code = serializers.CharField(
        max_length=20, required=False, help_text="Of an account with two-step sign-in."
    )


class MeView(APIView):
    """`GET`, `DELETE /me`."""

    @extend_schema(responses=AccountSerializer)
    def get(self, request: Request) -> Response:
        """The signed-in user with usage and limits."""
        return Response(services.describe_account(user=get_user(request)))

    @extend_schema(request=ProofSerializer, responses={200: OpenApiTypes.OBJECT})
    def delete(self, request: Request) -> Response:
        """Delete the account with all chats, documents and keys; returns the receipt.

        Requires the password.
        """
        proof = validate_body(ProofSerializer, request)
        user = get_user(request)
        proven_user = _authenticate(request, user.username, **proof)
        if proven_user.pk != user.pk:
            raise InvalidCredentials
        receipt = deletion.delete_account(user=proven_user)
        announce_rights_change()
        request._request.session.flush()  # noqa: SLF001 - of a browser, whose row is gone
        return Response(receipt)


class PreferencesView(APIView):
    """`GET`, `PATCH /me/preferences`."""

    @extend_schema(responses=PreferencesSerializer)
    def get(self, request: Request) -> Response:
        """The user's preferences."""
        preferences = get_preferences(user=get_user(request))
        return Response(PreferencesSerializer(preferences).data)

    @extend_schema(request=PreferencesSerializer, responses=PreferencesSerializer)
    def patch(self, request: Request) -> Response:
        """Change some of it; the rest stays."""
        changes = validate_body(PreferencesSerializer, request, partial=True)
        preferences = save_preferences(user=get_user(request), **changes)
        return Response(PreferencesSerializer(preferences).data)


class MyExportsView(APIView):
    """`POST /me/export`."""

    required_scope = KeyScope.ADMIN

    @extend_schema(request=None, responses={202: ExportSerializer})
    def post(self, request: Request) -> Response:
        """Request all of one's data as a file; returns the pending request if there is one."""
        require_recent_proof(request)
        export = exports.request_export(user=get_user(request))
        return Response(ExportSerializer(export).data, status=202)


class MyExportView(APIView):
    """`GET /me/exports/{id}`."""

    required_scope = KeyScope.ADMIN

    @extend_schema(responses=ExportSerializer)
    def get(self, request: Request, export_id: UUID) -> Response:
        """The state of an export."""
        own_exports = DataExport.objects.filter(owner=get_user(request))
        return Response(ExportSerializer(get_object_or_404(own_exports, pk=export_id)).data)


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
        """Limit the file from its first byte: authentication may already read the body."""
        request.upload_handlers = [LimitedUpload(request)]
        return super().initialize_request(request, *args, **kwargs)

    @extend_schema(request={"multipart/form-data": FileRequest}, responses={202: ImportSerializer})
    @takes_file
    def post(self, request: Request) -> Response:
        """Import chats of Nura, ChatGPT, Claude or Open WebUI; existing chats stay as they are."""
        file = validate_body(FileRequest, request)["file"]
        data_import = imports.request_import(
            user=get_user(request), name=get_sent_name(file), content=file
        )
        return Response(ImportSerializer(data_import).data, status=202)


class MyImportView(APIView):
    """`GET /me/imports/{id}`."""

    @extend_schema(responses=ImportSerializer)
    def get(self, request: Request, import_id: UUID) -> Response:
        """The state of an import."""
        own_imports = DataImport.objects.filter(owner=get_user(request))
        return Response(ImportSerializer(get_object_or_404(own_imports, pk=import_id)).data)


class MyExportFileView(APIView):
    """`GET /me/exports/{id}/file`."""

    required_scope = KeyScope.ADMIN
    content_negotiation_class = AnyAccept

    @extend_schema(responses={(200, "application/zip"): OpenApiTypes.BINARY})
    def get(self, request: Request, export_id: UUID) -> HttpResponseBase:
        """The file of an export, as long as it is kept."""
        user = get_user(request)
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
    """A key just created: the only time its secret is shown."""

    key = serializers.CharField()


class KeyRequest(serializers.Serializer[Any]):
    """Name, scopes and expiry of a new key."""

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
        serializer = KeySerializer([to_key_json(key) for key in page], many=True)
        return self.get_paginated_response(serializer.data)

    @extend_schema(request=KeyRequest, responses={201: NewKeySerializer})
    def post(self, request: Request) -> Response:
        """Create a key. A key created with a key has no more scopes and lives no longer.

        A browser session needs the password to have been entered within the last five minutes.
        """
        require_recent_proof(request)
        data = validate_body(KeyRequest, request)
        expires_at = _limit_to_own_key(request, data["scopes"], data["expires_at"])
        key, secret = services.make_key(
            user=get_user(request),
            name=data["name"],
            scopes=data["scopes"],
            expires_at=expires_at,
        )
        new_key = NewKeySerializer({**to_key_json(key), "key": secret})
        return Response(new_key.data, status=status.HTTP_201_CREATED)


class KeyView(APIView):
    """`DELETE /me/keys/{id}`."""

    required_scope = KeyScope.ADMIN

    @extend_schema(responses={204: None})
    def delete(self, request: Request, key_id: UUID) -> Response:
        """Revoke a key; its open connections end at once."""
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
        sessions = services.list_sessions(
            user=get_user(request), current_key=_get_session_key(request)
        )
        page = self.paginate_queryset(sessions) or ()
        return self.get_paginated_response(SignedInSerializer(page, many=True).data)

    @extend_schema(
        parameters=[OpenApiParameter("keep_current", bool, description="All but this one")],
        responses={204: None},
    )
    def delete(self, request: Request) -> Response:
        """Sign out everywhere, here too unless `?keep_current=true`. Keys stay."""
        keeps_current = request.query_params.get("keep_current", "").lower() in {"true", "1", "yes"}
        except_key = _get_session_key(request) if keeps_current else ""
        services.end_sessions(user=get_user(request), except_key=except_key)
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
    """Expiry of a new key. Raises `ScopeMissing` if it would have more scopes than the one used."""
    own_key = request.auth if isinstance(request.auth, AuthToken) else None
    if own_key is not None:
        for scope in sort_scopes(set(scopes) - list_scopes(own_key)):
            raise ScopeMissing(scope=scope)
        expiries = [expiry for expiry in (expires_at, own_key.expiry) if expiry is not None]
        expires_at = min(expiries, default=None)
    return expires_at


def _get_session_key(request: Request) -> str:
    is_session = not isinstance(request.auth, AuthToken)
    return (request.session.session_key or "") if is_session else ""
