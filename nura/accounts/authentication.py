"""API keys in requests."""

from django.contrib.auth.models import User
from drf_spectacular.contrib.knox_auth_token import KnoxTokenScheme
from knox.auth import TokenAuthentication
from knox.models import AuthToken
from rest_framework.exceptions import AuthenticationFailed


class KeyAuthentication(TokenAuthentication):  # type: ignore[misc]
    """Knox, but a key that is not ASCII is a wrong key and not an error of ours."""

    def authenticate_credentials(self, token: bytes) -> tuple[User, AuthToken]:
        """Owner and key. Raises `AuthenticationFailed`."""
        if not token.isalnum() or not token.isascii():
            raise AuthenticationFailed
        owner_and_key: tuple[User, AuthToken] = super().authenticate_credentials(token)
        return owner_and_key


class KeyScheme(KnoxTokenScheme):  # type: ignore[no-untyped-call]
    """How the generated schema describes the keys."""

    target_class = "nura.accounts.authentication.KeyAuthentication"
    name = "apiKey"
