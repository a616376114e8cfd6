"""What REST views read from a request: its JSON, the page of a list, the user and the fields."""

from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import RequestDataTooBig
from rest_framework import pagination, parsers, serializers
from rest_framework.exceptions import NotAuthenticated, ParseError
from rest_framework.request import Request

from jobs.replica import ReplicaPaginator


class JSONParser(parsers.JSONParser):
    """JSON of bounded size and depth; DRF alone reads past `DATA_UPLOAD_MAX_MEMORY_SIZE`."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """The parsed body. Raises `RequestDataTooBig` or `ParseError`."""
        request = (parser_context or {}).get("request")
        length = int(request.META.get("CONTENT_LENGTH") or 0) if request else 0
        if length > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
            raise RequestDataTooBig
        try:
            return super().parse(stream, media_type, parser_context)
        except RecursionError as error:
            raise ParseError from error


class PageNumberPagination(pagination.PageNumberPagination):
    """`?page=&page_size=`, at most 100 a page."""

    django_paginator_class = ReplicaPaginator

    page_size = 20
    page_size_query_param = "page_size"
    max_page_size = 100


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
