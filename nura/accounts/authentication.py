"""API keys in requests."""

from django.contrib.auth.models import User
from django.http import HttpRequest
from drf_spectacular.contrib.knox_auth_token import KnoxTokenScheme
from knox.auth import TokenAuthentication
from knox.models import AuthToken
from rest_framework.exceptions import AuthenticationFailed, NotAuthenticated

from chats.calls import in_database

GATEWAY_SCHEMES = ("bearer", "token")


class KeyAuthentication(TokenAuthentication):  # type: ignore[misc]
    """Knox, but a key that is not ASCII is a wrong key and not an error of ours."""

    def authenticate_credentials(self, token: bytes) -> tuple[User, AuthToken]:
        """Owner and key. Raises `AuthenticationFailed`."""
        if not token.isalnum() or not token.isascii():
            raise AuthenticationFailed
        owner_and_key: tuple[User, AuthToken] = super().authenticate_credentials(token)
        return owner_and_key


async def authenticate_gateway_request(request: HttpRequest) -> AuthToken:
    """The key of a request to the gateway, with its owner; a session is none there.

    Raises `NotAuthenticated`, `AuthenticationFailed`.
    """
    key = _read_gateway_key(request)
    if not key:
        raise NotAuthenticated
    _user, token = await in_database(KeyAuthentication().authenticate_credentials, key.encode())
    return token


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
