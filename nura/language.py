"""Which language a request speaks: Korean unless the person or the program says otherwise."""

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import translation
from django.utils.cache import patch_vary_headers
from django.utils.translation.trans_real import parse_accept_lang_header

GetResponse = Callable[[HttpRequest], Any]
"""The next layer: gives a response, or an awaitable of one under ASGI."""

GATEWAY_PREFIX = "/v1/"
API_PREFIXES = ("/api/", GATEWAY_PREFIX, "/ws/")


def is_api(path: str) -> bool:
    """Whether programs, not people, read what stands at this path."""
    return path.startswith(API_PREFIXES)


def is_gateway(path: str) -> bool:
    """Whether these programs speak OpenAI's protocol."""
    return path.startswith(GATEWAY_PREFIX)


def from_header(accepted: str) -> str:
    """The first supported language of an Accept-Language header, else the default."""
    for tag, _quality in parse_accept_lang_header(accepted.lower()):
        code = tag.partition("-")[0]
        if code in dict(settings.LANGUAGES):
            return code
    return settings.LANGUAGE_CODE


def from_request(request: HttpRequest) -> str:
    """Pages: what was chosen in the page, whatever the browser says. Programs: what they accept."""
    if is_api(request.path_info):
        return from_header(request.headers.get("Accept-Language", ""))
    chosen = request.COOKIES.get(settings.LANGUAGE_COOKIE_NAME, "")
    return chosen if chosen in dict(settings.LANGUAGES) else settings.LANGUAGE_CODE


class LanguageMiddleware:
    """Sets the request's language for everything below; sync and async."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response
        self.is_async = iscoroutinefunction(get_response)
        if self.is_async:
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        """Answer in the request's language."""
        if self.is_async:
            return self._answer_async(request)
        language = _enter(request)
        return _mark(request, self.get_response(request), language)

    async def _answer_async(self, request: HttpRequest) -> HttpResponseBase:
        language = _enter(request)
        return _mark(request, await self.get_response(request), language)


def _enter(request: HttpRequest) -> str:
    language = from_request(request)
    translation.activate(language)
    request.LANGUAGE_CODE = language
    return language


def _mark(request: HttpRequest, response: HttpResponseBase, language: str) -> HttpResponseBase:
    name = "Accept-Language" if is_api(request.path_info) else "Cookie"
    patch_vary_headers(response, (name,))
    response.headers.setdefault("Content-Language", language)
    return response
