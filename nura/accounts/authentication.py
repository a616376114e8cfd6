"""API keys in requests, and what they are good for."""

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
from chats.access import Holder
from chats.models import KeyScope
from chats.models.key import list_scopes
from jobs.connections import in_database
from rag.errors import NuraError


class ProofRequired(NuraError):
    """The user has to show again that it is he, at `/accounts/reauthenticate/`."""

    code = "reauthentication_required"


GATEWAY_SCHEMES = ("bearer", "token")


class KeyAuthentication(TokenAuthentication):  # type: ignore[misc]
    """Knox's header, but a key is found by its digest at once, and one not ASCII is a wrong one."""

    def authenticate_credentials(self, token: bytes) -> tuple[User, AuthToken]:
        """Owner and key. Raises `AuthenticationFailed`."""
        key = find_key(token.decode("latin-1"))
        return key.user, key


class ScopePermission(IsAuthenticated):
    """Somebody is signed in, and a key has the scope of what it is used for.

    Reading takes `read`. What changes takes the view's `change_scope`, and `admin` where it names
    none; a view with a `required_scope` takes that for all. A session is good for everything.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        """Raises `ScopeMissing`."""
        if not super().has_permission(request, view):
            return False
        if isinstance(request.auth, AuthToken):
            require_scope(request.auth, find_required_scope(request.method or "", view))
        return True


def find_required_scope(method: str, view: Any) -> str:
    """What a key needs for this method of a view."""
    if scope := getattr(view, "required_scope", ""):
        return str(scope)
    return (
        KeyScope.READ if method in SAFE_METHODS else getattr(view, "change_scope", KeyScope.ADMIN)
    )


def require_scope(key: AuthToken, scope: str) -> None:
    """Raise `ScopeMissing` where the key is not good for this."""
    Holder(key.user, list_scopes(key)).require(KeyScope(scope))


async def authenticate_gateway_request(request: HttpRequest) -> AuthToken:
    """The key of a request to the gateway, with its owner; a session is none there.

    Raises `NotAuthenticated`, `AuthenticationFailed`, `ScopeMissing`.
    """
    key = _read_gateway_key(request)
    if not key:
        raise NotAuthenticated
    found = await in_database(find_key, key)
    reads = request.method in SAFE_METHODS
    require_scope(found, KeyScope.READ if reads else KeyScope.ASK)
    return found


def require_recent_proof(request: Request) -> None:
    """Raise `ProofRequired` where a browser asks whose user has not just shown the password.

    A key needs none: what it may do was said when it was made.
    """
    is_key = isinstance(request.auth, AuthToken)
    if not is_key and is_reauthentication_required(request._request, app="account"):  # noqa: SLF001 - allauth's session is Django's
        raise ProofRequired


def find_key(key: str) -> AuthToken:
    """A key that holds, with its active owner: one query. Raises `AuthenticationFailed`."""
    if not key.isalnum() or not key.isascii():
        raise AuthenticationFailed
    digest = hash_token(key)
    found = access.find_keys([digest]).get(digest)
    if found is None:
        raise AuthenticationFailed
    access.record_key_use(found)
    return found


def _read_gateway_key(request: HttpRequest) -> str:
    """The key by itself, else behind its scheme: proxies may take `Authorization` for their own."""
    if key := request.headers.get("x-api-key", "").strip():
        return key
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    return key.strip() if scheme.lower() in GATEWAY_SCHEMES else ""


class KeyScheme(KnoxTokenScheme):  # type: ignore[no-untyped-call]
    """How the generated schema describes the keys."""

    target_class = "nura.accounts.authentication.KeyAuthentication"
    name = "apiKey"
