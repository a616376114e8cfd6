"""REST: the API keys of the signed-in user, and where the account is signed in."""

from datetime import datetime
from typing import Any
from uuid import UUID

from allauth.usersessions.models import UserSession
from django.http import Http404
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from knox.models import AuthToken
from rest_framework import serializers, status
from rest_framework.generics import GenericAPIView
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
from nura.accounts import services, sessions
from nura.accounts.authentication import require_recent_proof


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
        shown = KeySerializer([to_key(key) for key in page], many=True)
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
        expires_at = _bound_by_maker(request, wanted["scopes"], wanted["expires_at"])
        stored, secret = services.make_key(
            user=get_user(request),
            name=wanted["name"],
            scopes=wanted["scopes"],
            expires_at=expires_at,
        )
        shown = NewKeySerializer({**to_key(stored), "key": secret})
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
        found = sessions.list_sessions(user=get_user(request), current_key=_session_key(request))
        page = self.paginate_queryset(found) or ()
        return self.get_paginated_response(SignedInSerializer(page, many=True).data)

    @extend_schema(
        parameters=[OpenApiParameter("keep_current", bool, description="All but this one")],
        responses={204: None},
    )
    def delete(self, request: Request) -> Response:
        """Sign out everywhere, here too unless `?keep_current=true`. Keys stay."""
        keeps = request.query_params.get("keep_current", "").lower() in {"true", "1", "yes"}
        kept = _session_key(request) if keeps else ""
        sessions.end_sessions(user=get_user(request), except_key=kept)
        return Response(status=status.HTTP_204_NO_CONTENT)


class SessionView(APIView):
    """`DELETE /me/sessions/{id}`."""

    required_scope = KeyScope.ADMIN

    @extend_schema(responses={204: None})
    def delete(self, request: Request, session_id: UUID) -> Response:
        """Sign out there."""
        if not sessions.end_session(user=get_user(request), session_id=session_id):
            raise Http404
        return Response(status=status.HTTP_204_NO_CONTENT)


def to_key(key: AuthToken) -> dict[str, Any]:
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


def _bound_by_maker(
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


def _session_key(request: Request) -> str:
    is_session = not isinstance(request.auth, AuthToken)
    return (request.session.session_key or "") if is_session else ""
