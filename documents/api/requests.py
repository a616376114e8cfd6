"""What every view of the REST API takes from its request: the user, and validated fields."""

from typing import TYPE_CHECKING, Any, cast

from rest_framework import serializers
from rest_framework.request import Request

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def get_user(request: Request) -> "User":
    """The signed-in user; permission classes let nobody else in."""
    return cast("User", request.user)


def validate_body(shape: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    """The fields of the body. Raises `ValidationError`."""
    return _validate(shape(data=request.data))


def validate_query(shape: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    """The parameters of the address. Raises `ValidationError`."""
    return _validate(shape(data=request.query_params))


def _validate(serializer: serializers.Serializer[Any]) -> dict[str, Any]:
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)
