"""The one place where errors are put into words: problem+json (RFC 9457) or a page."""

import math
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import redis.exceptions
import structlog
from allauth.core.exceptions import ImmediateHttpResponse
from django.core import exceptions as django_errors
from django.db import DataError, IntegrityError, InterfaceError, InternalError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse, UnreadablePostError
from django.template.loader import render_to_string
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from ninja import errors as ninja_errors
from rest_framework import exceptions as drf_errors
from rest_framework.views import set_rollback

from chats.gateway.schemas import find_wrong_field, to_error_body
from documents.errors import Explanation, add_explanations, explain_code, find_status, is_explained
from nura.middleware import is_api, is_gateway
from rag.errors import NuraError

logger = structlog.get_logger()

RETRY_AFTER_SECONDS = 5
"""`Retry-After` when the database, Redis or a model cannot be reached."""
WINDOW_SECONDS = 60
"""Length of allauth's own limits, which do not expose when they began."""

CSRF_MARK = "CSRF Failed"  # how DRF's session authentication begins the detail of its refusal

TITLES = {
    400: gettext_lazy("Bad request"),
    401: gettext_lazy("Not signed in"),
    403: gettext_lazy("Not allowed"),
    404: gettext_lazy("Not found"),
    405: gettext_lazy("Method not allowed"),
    406: gettext_lazy("Not available in that format"),
    409: gettext_lazy("Conflict"),
    413: gettext_lazy("Too large"),
    415: gettext_lazy("Unsupported type"),
    422: gettext_lazy("Cannot be processed"),
    429: gettext_lazy("Too many requests"),
    500: gettext_lazy("Internal error"),
    501: gettext_lazy("Not configured"),
    502: gettext_lazy("Another service failed"),
    503: gettext_lazy("Temporarily unavailable"),
    507: gettext_lazy("No space left"),
}
EXPLANATIONS: Mapping[str, Explanation] = {
    "malformed": (400, gettext_lazy("The request cannot be read.")),
    "not_authenticated": (401, gettext_lazy("Sign in, or send an API key.")),
    "authentication_failed": (401, gettext_lazy("The API key is wrong, expired or revoked.")),
    "invalid_credentials": (401, gettext_lazy("The user name or the password is wrong.")),
    "second_step_required": (
        401,
        gettext_lazy("This account uses two-step sign-in. Send the current code as well."),
    ),
    "reauthentication_required": (403, gettext_lazy("Enter your password again first.")),
    "last_administrator": (
        409,
        gettext_lazy("This is the last administrator. Make someone else an administrator first."),
    ),
    "import_unreadable": (
        422,
        gettext_lazy(
            "This is not an export of Nura, ChatGPT, Claude or Open WebUI, or it is broken."
        ),
    ),
    "import_too_large": (413, gettext_lazy("The export is larger than this server accepts.")),
    "import_under_way": (
        409,
        gettext_lazy("Another file is still being imported. Wait until it is done."),
    ),
    "csrf_failed": (403, gettext_lazy("This page has expired. Reload it and try again.")),
    "forbidden": (403, gettext_lazy("Your account is not allowed to do this.")),
    "method_not_allowed": (405, gettext_lazy("This address does not accept that method.")),
    "not_acceptable": (406, gettext_lazy("The response is not available in the requested format.")),
    "conflict": (
        409,
        gettext_lazy("This was changed somewhere else at the same time. Please try again."),
    ),
    "too_large.request": (413, gettext_lazy("The request is larger than this server accepts.")),
    "unsupported_media_type": (
        415,
        gettext_lazy("This address does not accept that content type."),
    ),
    "throttled": (429, gettext_lazy("Too many requests. Please wait a moment and try again.")),
    "mail_failed": (
        503,
        gettext_lazy(
            "The e-mail could not be sent. Please try again later or ask the administrator."
        ),
    ),
}
add_explanations(EXPLANATIONS)
PAGES = {"csrf_failed": "403_csrf.html"}
"""Templates for single codes; others have one per status, or the general one."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as it is sent to a client."""

    status: int
    code: str
    detail: str = ""
    errors: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    instance: str = ""
    param: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The JSON members, in the request's language."""
        body = {
            "type": "about:blank",
            "title": str(TITLES.get(self.status, TITLES[500])),
            "status": self.status,
            "code": self.code,
            "detail": self.detail or (explain_code(self.code) if is_explained(self.code) else ""),
        }
        optional = {"errors": self.errors, "instance": self.instance}
        return body | {name: value for name, value in optional.items() if value}

    def to_response(self) -> HttpResponse:
        """The response for a program."""
        return JsonResponse(
            self.to_json(),
            status=self.status,
            content_type="application/problem+json",
            headers=dict(self.headers),
            json_dumps_params={"ensure_ascii": False},
        )

    def to_response_at(self, path: str) -> HttpResponse:
        """The response for a program at this path; the gateway's clients expect OpenAI's shape."""
        if not is_gateway(path):
            return self.to_response()
        headers = dict(self.headers)
        if "WWW-Authenticate" in headers:
            headers["WWW-Authenticate"] = "Bearer"
        body = to_error_body(self.status, self.code, self.to_json()["detail"], self.param)
        return JsonResponse(
            body, status=self.status, headers=headers, json_dumps_params={"ensure_ascii": False}
        )


def to_problem(error: BaseException) -> Problem:
    """Map an exception to a problem. Unexpected ones are logged; the client sees only a number."""
    for kinds, describe in _MAPPING:
        if isinstance(error, kinds):
            problem: Problem = describe(error)
            return problem
    return _from_unexpected(error)


def exception_handler(error: Exception, _context: Mapping[str, Any]) -> HttpResponse:
    """DRF's hook."""
    if isinstance(error, ImmediateHttpResponse):  # the accounts' own rate limits
        response: HttpResponse = error.response
        return response
    set_rollback()
    return to_problem(error).to_response()


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler400."""
    return _make_response(request, to_problem(exception))


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Django's handler403."""
    return _make_response(
        request, to_problem(exception) if is_api(request.path_info) else _FORBIDDEN
    )


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:  # noqa: ARG001
    """Django's handler404, called by these names."""
    return _make_response(request, _NOT_FOUND)


def too_many_requests(request: HttpRequest, seconds: int = WINDOW_SECONDS) -> HttpResponse:
    """Allauth's handler429, with the time to wait if it is known."""
    return _make_response(request, _make_throttled(seconds))


def server_error(request: HttpRequest) -> HttpResponse:
    """Django's handler500, called while the exception is being handled."""
    error = sys.exception() or RuntimeError("handler500 without an exception")
    return _make_response(request, to_problem(error))


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:  # noqa: ARG001
    """Django's CSRF_FAILURE_VIEW, called by these names."""
    return _make_response(request, Problem(403, "csrf_failed"))


def _make_response(request: HttpRequest, problem: Problem) -> HttpResponse:
    if is_api(request.path_info):
        return problem.to_response_at(request.path_info)
    # From 500 on without the request: loading its session or user may be what failed.
    page = render_to_string(
        [PAGES.get(problem.code, f"{problem.status}.html"), "errors/error.html"],
        {**problem.to_json(), "banners": ()},  # the database may be down
        request if problem.status < 500 else None,
    )
    response = HttpResponse(page, status=problem.status)
    for name, value in problem.headers.items():
        response.headers[name] = value
    return response


_NOT_FOUND = Problem(404, "not_found")
_FORBIDDEN = Problem(403, "forbidden")


def _from_nura_error(error: NuraError) -> Problem:
    if error.code == _NOT_FOUND.code:
        return _NOT_FOUND  # the same body for "missing" and "not yours"
    status = find_status(error.code)
    wait = error.params.get("retry_after") or (RETRY_AFTER_SECONDS if status == 503 else 0)
    headers = {"Retry-After": str(wait)} if wait else {}
    headers |= getattr(error, "headers", {})
    if status == 401:
        headers["WWW-Authenticate"] = "Token"
    param = error.params.get("param")
    detail = explain_code(error.code, error.params)
    return Problem(
        status, error.code, detail, headers=headers, param=None if param is None else str(param)
    )


def _from_invalid(error: drf_errors.ValidationError) -> Problem:
    details: Any = error.detail
    errors = details if isinstance(details, dict) else {"non_field_errors": details}
    detail = _("Please check: %(fields)s.") % {"fields": ", ".join(map(str, errors))}
    return Problem(400, "invalid", detail, errors=errors)


def _from_invalid_body(error: ninja_errors.ValidationError) -> Problem:
    """For the gateway, which reports the first invalid field."""
    param, field_name = find_wrong_field(error.errors)
    return Problem(
        400, "invalid", _("Please check: %(fields)s.") % {"fields": field_name}, param=param
    )


def _from_django_invalid(error: django_errors.ValidationError) -> Problem:
    details = error.message_dict if hasattr(error, "error_dict") else error.messages
    return _from_invalid(drf_errors.ValidationError(details))


def _from_denied(error: drf_errors.PermissionDenied) -> Problem:
    return Problem(403, "csrf_failed") if str(error.detail).startswith(CSRF_MARK) else _NOT_FOUND


def _from_unauthorized(error: drf_errors.APIException) -> Problem:
    scheme = getattr(error, "auth_header", None) or "Token"
    code = error.default_code
    if code == "authentication_failed" and error.get_codes() != code:
        code = str(error.get_codes())
    return Problem(401, code, headers={"WWW-Authenticate": scheme})


def _from_throttled(error: drf_errors.Throttled) -> Problem:
    return _make_throttled(math.ceil(getattr(error, "wait", None) or 60))


def _make_throttled(seconds: int) -> Problem:
    return Problem(429, "throttled", headers={"Retry-After": str(seconds)})


def _from_unavailable(error: BaseException) -> Problem:
    logger.warning("service_unreachable", exc_info=error)
    return Problem(503, "unavailable", headers={"Retry-After": str(RETRY_AFTER_SECONDS)})


def _from_api_error(error: drf_errors.APIException) -> Problem:
    return Problem(error.status_code, error.default_code, str(error.detail))


def _from_unexpected(error: BaseException) -> Problem:
    number = uuid.uuid4()
    logger.error("unexpected_error", number=str(number), exc_info=error)
    detail = _("Something went wrong. It was logged as %(number)s.") % {"number": number}
    return Problem(500, "internal", detail, instance=number.urn)


def _make_converter(code: str) -> Callable[[Any], Problem]:
    return lambda _error: Problem(find_status(code), code)


def _from_too_large(_error: BaseException) -> Problem:
    return Problem(413, "too_large", explain_code("too_large", {"kind": "request"}))


def _make_logging_converter(code: str) -> Callable[[BaseException], Problem]:
    def describe(error: BaseException) -> Problem:
        logger.warning("database_refused", exc_info=error)
        return Problem(find_status(code), code)

    return describe


_MAPPING: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], Any], ...] = (
    (NuraError, _from_nura_error),
    (drf_errors.ValidationError, _from_invalid),
    (django_errors.ValidationError, _from_django_invalid),
    ((Http404, drf_errors.NotFound, django_errors.ObjectDoesNotExist), lambda _error: _NOT_FOUND),
    (django_errors.PermissionDenied, lambda _error: _NOT_FOUND),
    (drf_errors.PermissionDenied, _from_denied),
    (ninja_errors.ValidationError, _from_invalid_body),
    (ninja_errors.HttpError, _make_converter("malformed")),  # a body that is no JSON
    ((drf_errors.NotAuthenticated, drf_errors.AuthenticationFailed), _from_unauthorized),
    (drf_errors.Throttled, _from_throttled),
    (drf_errors.ParseError, _make_converter("malformed")),
    (drf_errors.MethodNotAllowed, _make_converter("method_not_allowed")),
    (drf_errors.NotAcceptable, _make_converter("not_acceptable")),
    (drf_errors.UnsupportedMediaType, _make_converter("unsupported_media_type")),
    (drf_errors.APIException, _from_api_error),
    (django_errors.RequestDataTooBig, _from_too_large),
    (django_errors.SuspiciousOperation, _make_converter("malformed")),
    (DataError, _make_logging_converter("malformed")),  # a number or text wider than its column
    (
        IntegrityError,
        _make_logging_converter("conflict"),
    ),  # two requests created the same row at once
    (UnreadablePostError, _make_converter("malformed")),
    # InternalError: the server ended a transaction that was idle too long, as in a suspended process
    ((OperationalError, InterfaceError, InternalError), _from_unavailable),
    ((redis.exceptions.ConnectionError, redis.exceptions.TimeoutError), _from_unavailable),
)
