"""API keys in requests."""

from django.contrib.auth.models import User
from django.http import HttpRequest
from drf_spectacular.contrib.knox_auth_token import KnoxTokenScheme
from knox.auth import TokenAuthentication
from knox.crypto import hash_token
from knox.models import AuthToken
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated

from chats import access
from chats.calls import in_database

GATEWAY_SCHEMES = ("bearer", "token")


class KeyAuthentication(TokenAuthentication):  # type: ignore[misc]
    """Knox's header, but a key is found by its digest at once, and one not ASCII is a wrong one."""

    def authenticate_credentials(self, token: bytes) -> tuple[User, AuthToken]:
        """Owner and key. Raises `AuthenticationFailed`."""
        key = find_key(token.decode("latin-1"))
        return key.user, key


async def authenticate_gateway_request(request: HttpRequest) -> AuthToken:
    """The key of a request to the gateway, with its owner; a session is none there.

    Raises `NotAuthenticated`, `AuthenticationFailed`.
    """
    key = _read_gateway_key(request)
    if not key:
        raise NotAuthenticated
    return await in_database(find_key, key)


def find_key(key: str) -> AuthToken:
    """A key that holds, with its active owner: one query. Raises `AuthenticationFailed`."""
    if not key.isalnum() or not key.isascii():
        raise AuthenticationFailed
    digest = hash_token(key)
    found = access.find_keys([digest]).get(digest)
    if found is None:
        raise AuthenticationFailed
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
