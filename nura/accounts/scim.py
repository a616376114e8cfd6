"""The part of SCIM 2.0 that ends rights: a directory finds an account and deactivates it, or back.

Entra ID, Okta and Keycloak call it within moments of a person leaving. It neither creates nor
renames accounts. Requests need `NURA_SCIM_TOKEN`; without that setting the addresses do not exist.
"""

import hmac
import json
import re
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.views.decorators.csrf import csrf_exempt

from documents.audit import Action, record_event
from documents.notices import announce_rights_change
from nura.accounts.roles import LastAdministrator, require_other_administrator

CONTENT_TYPE = "application/scim+json"
SCHEMAS = "urn:ietf:params:scim:schemas:core:2.0:User"
MESSAGES = "urn:ietf:params:scim:api:messages:2.0"
FILTER = re.compile(
    r'^\s*(userName|externalId|emails(?:\.value)?|id)\s+eq\s+"([^"\0]{1,254})"\s*$', re.IGNORECASE
)
MAX_PAGE, MAX_BODY_BYTES = 100, 100_000

View = Callable[..., HttpResponse]


class ScimRefused(Exception):
    """The request is refused; becomes an error response."""

    def __init__(self, detail: str, status: int = 400, kind: str = "invalidValue") -> None:
        super().__init__(detail)
        self.detail, self.status, self.kind = detail, status, kind


def scim_view(view: View) -> View:
    """Decorate a SCIM view: require the token, and report errors in the protocol's format."""

    @csrf_exempt
    @wraps(view)
    def answer(request: HttpRequest, **kwargs: Any) -> HttpResponse:
        if not settings.SCIM_TOKEN:
            raise Http404
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        is_valid = hmac.compare_digest(token.strip().encode(), settings.SCIM_TOKEN.encode())
        if scheme.lower() != "bearer" or not is_valid:
            return _to_error(ScimRefused("The token is wrong.", 401, ""))
        try:
            return view(request, **kwargs)
        except ScimRefused as refused:
            return _to_error(refused)

    return answer


@scim_view
def list_users(request: HttpRequest) -> HttpResponse:
    """`GET /scim/v2/Users`, all or filtered."""
    if request.method != "GET":
        raise ScimRefused("Accounts are made by invitation or by signing in.", 501, "")
    rows = _filter_users(request.GET.get("filter", ""))
    first = max(_read_number(request, "startIndex", 1), 1)
    count = min(max(_read_number(request, "count", MAX_PAGE), 0), MAX_PAGE)
    page = list(rows[first - 1 : first - 1 + count])
    return _to_response(
        {
            "schemas": [f"{MESSAGES}:ListResponse"],
            "totalResults": rows.count(),
            "startIndex": first,
            "itemsPerPage": len(page),
            "Resources": [_describe_user(request, user) for user in page],
        }
    )


@scim_view
def show_user(request: HttpRequest, user_id: int) -> HttpResponse:
    """`GET`, `PATCH`, `PUT`, `DELETE /scim/v2/Users/{id}`; DELETE deactivates."""
    user = User.objects.filter(pk=user_id).first()
    if user is None:
        raise ScimRefused("There is no such user.", 404, "")
    if request.method == "DELETE":
        switch_account(user=user, is_active=False)
        return HttpResponse(status=204)
    if request.method in {"PATCH", "PUT"}:
        is_active = _read_active(request)
        if is_active is not None:
            switch_account(user=user, is_active=is_active)
    elif request.method != "GET":
        raise ScimRefused("This address does not accept that method.", 405, "")
    return _to_response(_describe_user(request, user))


@transaction.atomic
def switch_account(*, user: User, is_active: bool, source: str = "scim") -> None:
    """Deactivate an account, ending its open connections, or activate it. Raises `ScimRefused`."""
    if user.is_active == is_active:
        return
    if not is_active:
        try:
            require_other_administrator(excluding=[user.pk])
        except LastAdministrator as error:
            raise ScimRefused("The last administrator stays.", 409, "mutability") from error
    User.objects.filter(pk=user.pk).update(is_active=is_active)
    user.is_active = is_active
    if not is_active:
        record_event(Action.ACCOUNT_DEACTIVATED, subject=user, target=user, details={"by": source})
    details = {"is_active": is_active, "by": source}
    record_event(Action.RIGHTS_CHANGED, subject=user, target=user, details=details)
    announce_rights_change()


def _filter_users(expression: str) -> QuerySet[User]:
    rows = User.objects.order_by("pk")
    if not expression:
        return rows
    match = FILTER.match(expression)
    if match is None:
        raise ScimRefused("Filters are: userName, externalId, emails, id eq.", 400, "invalidFilter")
    name, value = match[1].lower(), match[2]
    if name == "id":
        return rows.filter(pk=int(value)) if value.isdecimal() else rows.none()
    if name == "externalid":
        return rows.filter(socialaccount__uid=value).distinct()
    by_name = Q(username=User.normalize_username(value)) if name == "username" else Q()
    return rows.filter(
        by_name | Q(email__iexact=value) | Q(emailaddress__email__iexact=value)
    ).distinct()


def _read_number(request: HttpRequest, name: str, default: int) -> int:
    value = request.GET.get(name, "")
    return int(value) if value.isdecimal() and len(value) < 10 else default


def _read_active(request: HttpRequest) -> bool | None:
    """The new value of `active` in the body; None if absent."""
    try:
        body = json.loads(request.body[:MAX_BODY_BYTES])
        if request.method == "PUT":
            value = body.get("active")
        else:
            value = _read_operations(body["Operations"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ScimRefused("The body cannot be read.", 400, "invalidSyntax") from error
    if value is None:
        return None
    if str(value).lower() not in {"true", "false"}:
        raise ScimRefused("active is true or false.")
    return str(value).lower() == "true"


def _read_operations(operations: list[dict[str, Any]]) -> Any:
    active = None
    for operation in operations:
        value = operation.get("value")
        if operation["op"].lower() not in {"replace", "add"}:
            continue
        if str(operation.get("path", "")).lower() == "active":
            active = value
        elif isinstance(value, dict) and "active" in value:
            active = value["active"]
    return active


def _describe_user(request: HttpRequest, user: User) -> dict[str, Any]:
    address = reverse("scim-user", args=[user.pk])
    return {
        "schemas": [SCHEMAS],
        "id": str(user.pk),
        "userName": user.email or user.username,
        "displayName": user.username,
        "emails": [{"value": user.email, "primary": True}] if user.email else [],
        "active": user.is_active,
        "meta": {"resourceType": "User", "location": request.build_absolute_uri(address)},
    }


def _to_response(body: dict[str, Any], status: int = 200) -> HttpResponse:
    response = JsonResponse(body, status=status, content_type=CONTENT_TYPE)
    response["Cache-Control"] = "no-store"
    return response


def _to_error(refused: ScimRefused) -> HttpResponse:
    body = {"schemas": [f"{MESSAGES}:Error"], "status": str(refused.status)}
    kind = {"scimType": refused.kind} if refused.kind else {}
    return _to_response(body | kind | {"detail": refused.detail}, refused.status)
