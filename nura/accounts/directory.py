"""Sign-in with passwords of an LDAP directory or Active Directory, and deactivation by it.

django-auth-ldap binds as the person. An account is tied to the entry's own id, which survives a
change of name; an existing account is never taken over by name. Groups and role are updated at each
sign-in, and every few minutes accounts that the directory removed or disabled are deactivated. The
library is optional: only code that runs with `NURA_LDAP_URL` may import this module.
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
"""Time-out of the directory."""
TEXT_ID = "entryuuid"
ID_ATTRIBUTES = (TEXT_ID, "objectguid")
NAME_ATTRIBUTES = ("samaccountname", "uid")
"""Attributes that name a new account, whichever of its names the person typed."""
IDS_A_SEARCH = 200
"""Accounts looked up in one search."""
DISABLED = 2
"""Bit of Active Directory's `userAccountControl` for a disabled account."""
GROUP_FILTER = "(|(objectClass=groupOfNames)(objectClass=group))"
FEWEST_TO_DOUBT = 3
"""If at least this many accounts vanish at once and none is left, the search is not trusted."""


def build_options() -> dict[int, Any]:
    """Options for connections to the directory."""
    options = {
        ldap.OPT_REFERRALS: 0,
        ldap.OPT_NETWORK_TIMEOUT: SECONDS,
        ldap.OPT_TIMEOUT: SECONDS,
        ldap.OPT_X_TLS_REQUIRE_CERT: ldap.OPT_X_TLS_DEMAND,
    }
    if settings.LDAP_CA_FILE:
        options[ldap.OPT_X_TLS_CACERTFILE] = settings.LDAP_CA_FILE
    return options | {ldap.OPT_X_TLS_NEWCTX: 0}  # last: it applies the others


def build_settings() -> dict[str, Any]:
    """Settings for django-auth-ldap."""
    subtree = ldap.SCOPE_SUBTREE
    users = LDAPSearch(settings.LDAP_USERS, subtree, settings.LDAP_FILTER, ["*", "+"])
    config = {
        "SERVER_URI": settings.LDAP_URL,
        "BIND_DN": settings.LDAP_BIND_DN,
        "BIND_PASSWORD": settings.LDAP_BIND_PASSWORD,
        "START_TLS": settings.LDAP_START_TLS,
        "CONNECTION_OPTIONS": build_options(),
        "USER_SEARCH": users,
    }
    if settings.LDAP_GROUPS:
        config["GROUP_SEARCH"] = LDAPSearch(settings.LDAP_GROUPS, subtree, GROUP_FILTER)
        config["GROUP_TYPE"] = NestedGroupOfNamesType(name_attr="cn")
    return config


class DirectoryBackend(LDAPBackend):  # type: ignore[misc]
    """Checks passwords against the directory."""

    @property
    def default_settings(self) -> dict[str, Any]:
        """From the environment."""
        return build_settings()

    def get_user(self, user_id: int) -> User | None:
        """The account of a session, if it is active."""
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
        display_name = ldap_user.attrs.get("displayname", [""])[0]
        return User(username=name, first_name=display_name[:MAX_DISPLAY_NAME_CHARACTERS]), True

    @transaction.atomic
    def authenticate_ldap_user(self, ldap_user: Any, password: str) -> User | None:
        """The user whose password this is, with groups and role updated from the directory."""
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
            details = {"by": "sign-on", "server": DIRECTORY_PROVIDER}
            record_event(Action.ACCOUNT_CREATED, actor=user, subject=user, details=details)
        if settings.LDAP_GROUPS:
            sync_groups(user, ldap_user.group_names)
        return user


def sync_groups(user: User, names: set[str]) -> None:
    """Set the groups and role of an account to those in the directory."""
    sync_directory_groups(user=user, names=names, source=DIRECTORY_PROVIDER)
    sync_role(
        user=user,
        names=names,
        administrators=settings.LDAP_ADMINISTRATORS,
        auditors=settings.LDAP_AUDITORS,
        source=DIRECTORY_PROVIDER,
    )


def read_id(attributes: Any) -> str:
    """The id of an entry, which survives a change of name.

    Active Directory's is sixteen bytes, which django-auth-ldap decodes if they happen to be text.
    """
    for name in ID_ATTRIBUTES:
        if values := attributes.get(name):
            value = values[0].encode() if isinstance(values[0], str) else values[0]
            return str(value.decode() if name == TEXT_ID else value.hex())
    return ""


def read_name(attributes: Any) -> str:
    """The entry's sign-in name; empty if only the filter knows which attribute it is."""
    return next((attributes[name][0] for name in NAME_ATTRIBUTES if attributes.get(name)), "")


def end_removed_accounts() -> None:
    """Deactivate accounts that the directory removed or disabled, or that the filter leaves out.

    Raises `ldap.LDAPError`.
    """
    accounts = SocialAccount.objects.filter(provider=DIRECTORY_PROVIDER, user__is_active=True)
    linked = list(accounts.select_related("user"))
    if not linked:
        return
    connection = connect()
    enabled_ids: set[str] = set()
    try:
        for start in range(0, len(linked), IDS_A_SEARCH):
            uids = [account.uid for account in linked[start : start + IDS_A_SEARCH]]
            enabled_ids |= _find_enabled(connection, uids)
    finally:
        connection.unbind_s()
    removed = [account.user for account in linked if account.uid not in enabled_ids]
    if len(removed) == len(linked) >= FEWEST_TO_DOUBT:
        logger.error("directory_doubted", accounts=len(removed))
        return
    for user in removed:
        try:
            switch_account(user=user, is_active=False, source=DIRECTORY_PROVIDER)
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
    """The ids whose entries exist, match the filter and are not disabled."""
    any_user = settings.LDAP_FILTER % {"user": "*"}
    search_filter = f"(&{any_user}(|{''.join(map(_to_filter, uids))}))"
    names = ["entryUUID", "objectGUID", "userAccountControl"]
    results = connection.search_ext_s(settings.LDAP_USERS, ldap.SCOPE_SUBTREE, search_filter, names)
    entries = [cidict(attributes) for dn, attributes in results if dn]
    flags = {read_id(entry): int(entry.get("userAccountControl", [b"0"])[0]) for entry in entries}
    return {uid for uid, flag in flags.items() if not flag & DISABLED}


def _to_filter(uid: str) -> str:
    if "-" in uid:
        return f"(entryUUID={uid})"
    octets = "".join(f"\\{byte:02x}" for byte in bytes.fromhex(uid))
    return f"(objectGUID={octets})"
