"""A content security policy of its own for the administration pages."""

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction
from csp.constants import SELF, UNSAFE_EVAL, UNSAFE_INLINE
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

GetResponse = Callable[[HttpRequest], Any]
"""The next layer: gives a response, or an awaitable of one under ASGI."""

ADMIN_PREFIX = "/admin/"
RELAXED = {
    "script-src": [SELF, UNSAFE_EVAL],
    "style-src": [SELF, UNSAFE_INLINE],
}
"""Unfold's pages run on Alpine, which evaluates attributes as code, and carry inline styles without
a nonce. Administrators alone open them; every other page keeps the strict policy."""


@sync_and_async_middleware
def admin_policy(get_response: GetResponse) -> GetResponse:
    """Middleware, below the one that writes the header."""
    if iscoroutinefunction(get_response):

        async def answer_async(request: HttpRequest) -> HttpResponseBase:
            return _relax(request, await get_response(request))

        return answer_async

    def answer(request: HttpRequest) -> HttpResponseBase:
        return _relax(request, get_response(request))

    return answer


def _relax(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    if request.path_info.startswith(ADMIN_PREFIX):
        vars(response)["_csp_replace"] = RELAXED  # how django-csp is told
    return response
