"""REST's parser of bodies and pagination of lists."""

from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from rest_framework import pagination, parsers
from rest_framework.exceptions import ParseError

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
