"""API keys in requests, and their scopes."""

from typing import Any

from allauth.account.internal.flows.reauthentication import is_reauthentication_required
from django.contrib.auth.models import User
from django.http import HttpRequest
from drf_spectacular.contrib.knox_auth_token import KnoxTokenScheme
from knox.auth import TokenAuthentication
from knox.crypto import hash_token
from knox.models import AuthToken
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated
from rest_framework.permissions import SAFE_METHODS, IsAuthenticated
from rest_framework.request import Request

from chats import access
from chats.access import Principal
from chats.models import KeyScope
from chats.models.key import list_scopes
from jobs.connections import in_database
from rag.errors import NuraError


class ProofRequired(NuraError):
    """The user has to enter the password again, at `/accounts/reauthenticate/`."""

    code = "reauthentication_required"


GATEWAY_SCHEMES = ("bearer", "token")


class KeyAuthentication(TokenAuthentication):  # type: ignore[misc]
    """Knox's header, with keys looked up by digest; a key that is not ASCII is simply wrong."""

    def authenticate_credentials(self, token: bytes) -> tuple[User, AuthToken]:
        """Owner and key. Raises `AuthenticationFailed`."""
        key = find_key(token.decode("latin-1"))
        return key.user, key


class ScopePermission(IsAuthenticated):
    """The user is signed in, and a key has the scope that the request needs.

    Reading needs `read`, changing needs the view's `change_scope`, by default `admin`; a view's
    `required_scope` applies to both. A session may do everything.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        """Raises `ScopeMissing`."""
        if not super().has_permission(request, view):
            return False
        if isinstance(request.auth, AuthToken):
            require_scope(request.auth, find_required_scope(request.method or "", view))
        return True


def find_required_scope(method: str, view: Any) -> str:
    """The scope a key needs for this method of a view."""
    if scope := getattr(view, "required_scope", ""):
        return str(scope)
    return (
        KeyScope.READ if method in SAFE_METHODS else getattr(view, "change_scope", KeyScope.ADMIN)
    )


def require_scope(key: AuthToken, scope: str) -> None:
    """Raise `ScopeMissing` if the key lacks the scope."""
    Principal(key.user, list_scopes(key)).require(KeyScope(scope))


async def authenticate_gateway_request(request: HttpRequest) -> AuthToken:
    """The key of a request to the gateway, with its owner; sessions are not accepted there.

    Raises `NotAuthenticated`, `AuthenticationFailed`, `ScopeMissing`.
    """
    key = _read_gateway_key(request)
    if not key:
        raise NotAuthenticated
    token = await in_database(find_key, key)
    is_read = request.method in SAFE_METHODS
    require_scope(token, KeyScope.READ if is_read else KeyScope.ASK)
    return token


def require_recent_proof(request: Request) -> None:
    """Raise `ProofRequired` if a browser's user has not entered the password recently.

    Keys are exempt: what they may do was decided when they were made.
    """
    is_key = isinstance(request.auth, AuthToken)
    if not is_key and is_reauthentication_required(request._request, app="account"):  # noqa: SLF001 - allauth's session is Django's
        raise ProofRequired


def find_key(key: str) -> AuthToken:
    """A valid key with its active owner: one query. Raises `AuthenticationFailed`."""
    if not key.isalnum() or not key.isascii():
        raise AuthenticationFailed
    digest = hash_token(key)
    token = access.find_keys([digest]).get(digest)
    if token is None:
        raise AuthenticationFailed
    access.record_key_use(token)
    return token


def _read_gateway_key(request: HttpRequest) -> str:
    """The key from `X-API-Key`, else from `Authorization`, which proxies may use themselves."""
    if key := request.headers.get("x-api-key", "").strip():
        return key
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    return key.strip() if scheme.lower() in GATEWAY_SCHEMES else ""


class KeyScheme(KnoxTokenScheme):  # type: ignore[no-untyped-call]
    """How the generated schema describes the keys."""

    target_class = "nura.accounts.authentication.KeyAuthentication"
    name = "apiKey"
