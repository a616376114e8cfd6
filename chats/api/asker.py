"""The user of a request that the permission classes have let through."""

from django.contrib.auth.models import User
from knox.models import AuthToken
from rest_framework.exceptions import NotAuthenticated
from rest_framework.request import Request

from chats.access import Credential


def asker(request: Request) -> User:
    """The signed-in user. Raises `NotAuthenticated`."""
    if not isinstance(request.user, User):
        raise NotAuthenticated
    return request.user


def credential_of(request: Request) -> Credential:
    """The key or the session by which the request was let through."""
    if isinstance(request.auth, AuthToken):
        return Credential(token=request.auth.digest)
    return Credential(session=request.session.session_key or "")
