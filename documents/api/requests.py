"""What the views of the REST API read from a request: the user and the validated fields."""

from typing import Any

from django.contrib.auth.models import User
from rest_framework import serializers
from rest_framework.exceptions import NotAuthenticated
from rest_framework.request import Request


def get_user(request: Request) -> User:
    """The signed-in user. Raises `NotAuthenticated`."""
    if not isinstance(request.user, User):
        raise NotAuthenticated
    return request.user


def validate_body(
    serializer_class: type[serializers.Serializer[Any]], request: Request, *, partial: bool = False
) -> dict[str, Any]:
    """The fields of the body; `partial`: none of them is required. Raises `ValidationError`."""
    return _validate(serializer_class(data=request.data, partial=partial))


def validate_query(
    serializer_class: type[serializers.Serializer[Any]], request: Request
) -> dict[str, Any]:
    """The parameters of the query string. Raises `ValidationError`."""
    return _validate(serializer_class(data=request.query_params))


def _validate(serializer: serializers.Serializer[Any]) -> dict[str, Any]:
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)
