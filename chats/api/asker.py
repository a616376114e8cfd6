"""The user of a request that the permission classes have let through."""

from django.contrib.auth.models import User
from rest_framework.exceptions import NotAuthenticated
from rest_framework.request import Request


def asker(request: Request) -> User:
    """The signed-in user. Raises `NotAuthenticated`."""
    if not isinstance(request.user, User):
        raise NotAuthenticated
    return request.user
