"""Directories of people: sign-in with a password of LDAP, and what they end, by LDAP or by SCIM.

django-auth-ldap binds as the person. An account belongs to the entry's own id, which outlives a new
name; an account that is here already is never taken over by a name. Groups and role follow at each
sign-in, and every few minutes what the directory has removed or disabled is switched off.

SCIM 2.0 is there as far as it ends rights: Entra ID, Okta and Keycloak call it within moments of
somebody leaving. Accounts are neither made nor renamed by it. `NURA_SCIM_TOKEN` lets in; without it
the addresses are not there.
"""

import hmac
import json
import re
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import ldap
import structlog
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse
from django.views.decorators.csrf import csrf_exempt
from django_auth_ldap.backend import LDAPBackend
from django_auth_ldap.config import LDAPSearch, NestedGroupOfNamesType
from ldap.cidict import cidict

from documents.audit import Action, record_event
from documents.notices import announce_change
from nura.accounts.adapter import DIRECTORY_PROVIDER
from nura.accounts.profile import MAX_DISPLAY_NAME_CHARACTERS
from nura.accounts.roles import (
    LastAdministrator,
    follow_directory,
    follow_role,
    keep_an_administrator,
)
from nura.accounts.services import check_name

logger = structlog.get_logger()

SECONDS = 5
"""How long a directory may take to answer."""
TEXT_ID = "entryuuid"
ID_ATTRIBUTES = (TEXT_ID, "objectguid")
NAME_ATTRIBUTES = ("samaccountname", "uid")
"""What a new account is called, whichever of its names the person has typed."""
IDS_A_SEARCH = 200
"""Accounts that the directory is asked for at once."""
DISABLED = 2
"""The bit of `userAccountControl` that says so in Active Directory."""
GROUP_FILTER = "(|(objectClass=groupOfNames)(objectClass=group))"
FEWEST_TO_DOUBT = 3
"""When so many accounts are gone at once and none is left, the directory is doubted instead."""


def build_options() -> dict[int, Any]:
    """How a directory is connected to."""
    options = {
        ldap.OPT_REFERRALS: 0,
        ldap.OPT_NETWORK_TIMEOUT: SECONDS,
        ldap.OPT_TIMEOUT: SECONDS,
        ldap.OPT_X_TLS_REQUIRE_CERT: ldap.OPT_X_TLS_DEMAND,
    }
    if settings.LDAP_CA_FILE:
        options[ldap.OPT_X_TLS_CACERTFILE] = settings.LDAP_CA_FILE
    return options | {ldap.OPT_X_TLS_NEWCTX: 0}  # the last: it takes the others in


def build_settings() -> dict[str, Any]:
    """What django-auth-ldap wants to know."""
    subtree = ldap.SCOPE_SUBTREE
    users = LDAPSearch(settings.LDAP_USERS, subtree, settings.LDAP_FILTER, ["*", "+"])
    found = {
        "SERVER_URI": settings.LDAP_URL,
        "BIND_DN": settings.LDAP_BIND_DN,
        "BIND_PASSWORD": settings.LDAP_BIND_PASSWORD,
        "START_TLS": settings.LDAP_START_TLS,
        "CONNECTION_OPTIONS": build_options(),
        "USER_SEARCH": users,
    }
    if settings.LDAP_GROUPS:
        found["GROUP_SEARCH"] = LDAPSearch(settings.LDAP_GROUPS, subtree, GROUP_FILTER)
        found["GROUP_TYPE"] = NestedGroupOfNamesType(name_attr="cn")
    return found


class DirectoryBackend(LDAPBackend):  # type: ignore[misc]
    """Takes passwords of the directory."""

    @property
    def default_settings(self) -> dict[str, Any]:
        """From the environment."""
        return build_settings()

    def get_user(self, user_id: int) -> User | None:
        """The account of a session, as long as it is active."""
        return User.objects.filter(pk=user_id, is_active=True).first()

    def get_or_build_user(self, username: str, ldap_user: Any) -> tuple[User, bool]:
        """The account of the entry, or a new one."""
        uid = read_id(ldap_user.attrs)
        accounts = SocialAccount.objects.select_related("user")
        if account := accounts.filter(provider=DIRECTORY_PROVIDER, uid=uid).first():
            return account.user, False
        name = User.normalize_username(read_name(ldap_user.attrs) or username)
        try:
            User.username_validator(name)
            check_name(name)
        except ValidationError as error:
            raise ldap_user.AuthenticationFailed("the name passes for another") from error
        if not uid or User.objects.filter(username__iexact=name).exists():
            raise ldap_user.AuthenticationFailed("the name is that of another account")
        shown = ldap_user.attrs.get("displayname", [""])[0]
        return User(username=name, first_name=shown[:MAX_DISPLAY_NAME_CHARACTERS]), True

    @transaction.atomic
    def authenticate_ldap_user(self, ldap_user: Any, password: str) -> User | None:
        """Whose password it is, with groups and role as the directory says."""
        user: User | None = super().authenticate_ldap_user(ldap_user, password)
        if user is None or not user.is_active:
            return None
        uid = read_id(ldap_user.attrs)
        _account, is_new = SocialAccount.objects.get_or_create(
            provider=DIRECTORY_PROVIDER, uid=uid, defaults={"user": user}
        )
        if is_new:
            user.set_unusable_password()
            mails = ldap_user.attrs.get("mail", [])
            if mails and not User.objects.filter(email__iexact=mails[0]).exists():
                user.email = mails[0].lower()
            user.save()
            way = {"by": "sign-on", "server": DIRECTORY_PROVIDER}
            record_event(Action.ACCOUNT_CREATED, actor=user, subject=user, details=way)
        if settings.LDAP_GROUPS:
            follow_groups(user, ldap_user.group_names)
        return user


def follow_groups(user: User, names: set[str]) -> None:
    """Bring groups and role to what the directory says."""
    follow_directory(user=user, names=names, way=DIRECTORY_PROVIDER)
    follow_role(
        user=user,
        names=names,
        administrators=settings.LDAP_ADMINISTRATORS,
        auditors=settings.LDAP_AUDITORS,
        way=DIRECTORY_PROVIDER,
    )


def read_id(attributes: Any) -> str:
    """The id of an entry, which a new name does not change.

    That of Active Directory is sixteen bytes; django-auth-ldap makes text of those that read as it.
    """
    for name in ID_ATTRIBUTES:
        if values := attributes.get(name):
            value = values[0].encode() if isinstance(values[0], str) else values[0]
            return str(value.decode() if name == TEXT_ID else value.hex())
    return ""


def read_name(attributes: Any) -> str:
    """The name that the entry signs in with; empty where only the filter knows which it is."""
    return next((attributes[name][0] for name in NAME_ATTRIBUTES if attributes.get(name)), "")


def end_removed_accounts() -> None:
    """Switch off those that the directory has removed or disabled, or that the filter leaves out.

    Raises `ldap.LDAPError`.
    """
    accounts = SocialAccount.objects.filter(provider=DIRECTORY_PROVIDER, user__is_active=True)
    held = list(accounts.select_related("user"))
    if not held:
        return
    connection = connect()
    there: set[str] = set()
    try:
        for start in range(0, len(held), IDS_A_SEARCH):
            uids = [one.uid for one in held[start : start + IDS_A_SEARCH]]
            there |= _find_enabled(connection, uids)
    finally:
        connection.unbind_s()
    gone = [one.user for one in held if one.uid not in there]
    if len(gone) == len(held) >= FEWEST_TO_DOUBT:
        logger.error("directory_doubted", accounts=len(gone))
        return
    for user in gone:
        try:
            switch_account(user=user, is_active=False, way=DIRECTORY_PROVIDER)
        except ScimRefused:
            logger.warning("last_administrator_kept", user_id=user.pk)


def connect() -> Any:
    """A connection with the account that searches. Raises `ldap.LDAPError`."""
    connection = ldap.initialize(settings.LDAP_URL)
    for option, value in build_options().items():
        connection.set_option(option, value)
    if settings.LDAP_START_TLS:
        connection.start_tls_s()
    connection.simple_bind_s(settings.LDAP_BIND_DN, settings.LDAP_BIND_PASSWORD)
    return connection


def _find_enabled(connection: Any, uids: Sequence[str]) -> set[str]:
    """Those whose entries are there, may sign in by the filter, and are not disabled."""
    anybody = settings.LDAP_FILTER % {"user": "*"}
    wanted = f"(&{anybody}(|{''.join(map(_to_filter, uids))}))"
    asked = ["entryUUID", "objectGUID", "userAccountControl"]
    found = connection.search_ext_s(settings.LDAP_USERS, ldap.SCOPE_SUBTREE, wanted, asked)
    entries = [cidict(attributes) for dn, attributes in found if dn]
    flags = {read_id(one): int(one.get("userAccountControl", [b"0"])[0]) for one in entries}
    return {uid for uid, flag in flags.items() if not flag & DISABLED}


def _to_filter(uid: str) -> str:
    if "-" in uid:
        return f"(entryUUID={uid})"
    octets = "".join(f"\\{byte:02x}" for byte in bytes.fromhex(uid))
    return f"(objectGUID={octets})"


CONTENT_TYPE = "application/scim+json"
SCHEMAS = "urn:ietf:params:scim:schemas:core:2.0:User"
MESSAGES = "urn:ietf:params:scim:api:messages:2.0"
FILTER = re.compile(
    r'^\s*(userName|externalId|emails(?:\.value)?|id)\s+eq\s+"([^"\0]{1,254})"\s*$', re.IGNORECASE
)
MAX_PAGE, MAX_BODY_BYTES = 100, 100_000

View = Callable[..., HttpResponse]


class ScimRefused(Exception):
    """What was sent cannot be done."""

    def __init__(self, detail: str, status: int = 400, kind: str = "invalidValue") -> None:
        super().__init__(detail)
        self.detail, self.status, self.kind = detail, status, kind


def for_directories(view: View) -> View:
    """A view of SCIM: behind the token, its errors in the protocol's shape."""

    @csrf_exempt
    @wraps(view)
    def answer(request: HttpRequest, **named: Any) -> HttpResponse:
        if not settings.SCIM_TOKEN:
            raise Http404
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        right = hmac.compare_digest(token.strip().encode(), settings.SCIM_TOKEN.encode())
        if scheme.lower() != "bearer" or not right:
            return _to_error(ScimRefused("The token is wrong.", 401, ""))
        try:
            return view(request, **named)
        except ScimRefused as refused:
            return _to_error(refused)

    return answer


@for_directories
def list_users(request: HttpRequest) -> HttpResponse:
    """`GET /scim/v2/Users`, all or those that a filter names."""
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
            "Resources": [_describe(request, user) for user in page],
        }
    )


@for_directories
def show_user(request: HttpRequest, user_id: int) -> HttpResponse:
    """`GET`, `PATCH`, `PUT`, `DELETE /scim/v2/Users/{id}`; the last switches it off."""
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
    return _to_response(_describe(request, user))


@transaction.atomic
def switch_account(*, user: User, is_active: bool, way: str = "scim") -> None:
    """Switch an account off, with all that it has open, or on. Raises `ScimRefused`."""
    if user.is_active == is_active:
        return
    if not is_active:
        try:
            keep_an_administrator(without=[user.pk])
        except LastAdministrator as error:
            raise ScimRefused("The last administrator stays.", 409, "mutability") from error
    User.objects.filter(pk=user.pk).update(is_active=is_active)
    user.is_active = is_active
    if not is_active:
        told = {"by": way}
        record_event(Action.ACCOUNT_DEACTIVATED, subject=user, target=user, details=told)
    details = {"is_active": is_active, "by": way}
    record_event(Action.RIGHTS_CHANGED, subject=user, target=user, details=details)
    announce_change()


def _filter_users(wanted: str) -> QuerySet[User]:
    rows = User.objects.order_by("pk")
    if not wanted:
        return rows
    found = FILTER.match(wanted)
    if found is None:
        raise ScimRefused("Filters are: userName, externalId, emails, id eq.", 400, "invalidFilter")
    name, value = found[1].lower(), found[2]
    if name == "id":
        return rows.filter(pk=int(value)) if value.isdecimal() else rows.none()
    if name == "externalid":
        return rows.filter(socialaccount__uid=value).distinct()
    named = Q(username=User.normalize_username(value)) if name == "username" else Q()
    return rows.filter(
        named | Q(email__iexact=value) | Q(emailaddress__email__iexact=value)
    ).distinct()


def _read_number(request: HttpRequest, name: str, default: int) -> int:
    told = request.GET.get(name, "")
    return int(told) if told.isdecimal() and len(told) < 10 else default


def _read_active(request: HttpRequest) -> bool | None:
    """What is said of `active`; None where nothing is."""
    try:
        body = json.loads(request.body[:MAX_BODY_BYTES])
        if request.method == "PUT":
            told = body.get("active")
        else:
            told = _read_operations(body["Operations"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ScimRefused("The body cannot be read.", 400, "invalidSyntax") from error
    if told is None:
        return None
    if str(told).lower() not in {"true", "false"}:
        raise ScimRefused("active is true or false.")
    return str(told).lower() == "true"


def _read_operations(operations: list[dict[str, Any]]) -> Any:
    told = None
    for one in operations:
        value = one.get("value")
        if one["op"].lower() not in {"replace", "add"}:
            continue
        if str(one.get("path", "")).lower() == "active":
            told = value
        elif isinstance(value, dict) and "active" in value:
            told = value["active"]
    return told


def _describe(request: HttpRequest, user: User) -> dict[str, Any]:
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
