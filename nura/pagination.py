"""Pages of every list."""

from rest_framework import pagination


class PageNumberPagination(pagination.PageNumberPagination):
    """`?page=&page_size=`, at most 100 a page."""

    page_size = 20
    page_size_query_param = "page_size"
    max_page_size = 100
