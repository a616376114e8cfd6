"""Sign-in with the password of an LDAP directory or Active Directory, and what the directory ends.

django-auth-ldap binds as the person. An account belongs to the entry's own id, which outlives a new
name; an account that is here already is never taken over by a name. Groups and role follow at each
sign-in, and every few minutes what the directory has removed or disabled is switched off. The
library is optional: only what runs with `NURA_LDAP_URL` may import this module.
"""

from collections.abc import Sequence
from typing import Any

import ldap
import structlog
from allauth.socialaccount.models import SocialAccount
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import transaction
from django_auth_ldap.backend import LDAPBackend
from django_auth_ldap.config import LDAPSearch, NestedGroupOfNamesType
from ldap.cidict import cidict

from documents.audit import Action, record_event
from nura.accounts.adapter import DIRECTORY_PROVIDER
from nura.accounts.profile import MAX_DISPLAY_NAME_CHARACTERS
from nura.accounts.roles import sync_directory_groups, sync_role
from nura.accounts.scim import ScimRefused, switch_account
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
            sync_groups(user, ldap_user.group_names)
        return user


def sync_groups(user: User, names: set[str]) -> None:
    """Set the groups and role of an account to those in the directory."""
    sync_directory_groups(user=user, names=names, way=DIRECTORY_PROVIDER)
    sync_role(
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
