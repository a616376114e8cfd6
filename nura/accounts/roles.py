"""Roles and groups of accounts.

An administrator is staff and may open every page of the administration; a superuser has no further
rights, and no installation needs one. An auditor reads the audit log and usage, but no contents.
Who manages a library is decided by its memberships. One administrator always remains, so that
nobody is locked out of an installation.

Quotas, models and libraries are assigned to groups elsewhere. A group with a name in the directory
gets its members from there at each sign-in; others are maintained by hand.
"""

from collections.abc import Collection
from typing import Any

import structlog
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group, User
from django.db import models, transaction
from django.utils.translation import gettext_lazy as _

from documents.audit import Action, record_event
from documents.notices import announce_rights_change, announce_shared_change
from nura.models import Auditor, GroupDetails
from rag.errors import NuraError

logger = structlog.get_logger()

AUDITOR_PERMISSIONS = frozenset({"documents.view_auditevent"})
"""Tables an auditor may open in the administration; usage has a page of its own."""

Visitor = AbstractBaseUser | AnonymousUser


class AccountRole(models.TextChoices):
    """The role of an account; the values are public."""

    USER = "user", _("User")
    AUDITOR = "auditor", _("Auditor")
    ADMINISTRATOR = "administrator", _("Administrator")


class LastAdministrator(NuraError):
    """No administrator would be left."""

    code = "last_administrator"


def is_administrator(user: Visitor) -> bool:
    """Whether this account may open every page of the administration."""
    return bool(user.is_active and getattr(user, "is_staff", False))


def is_auditor(user: Visitor) -> bool:
    """Whether this account may read the audit log and usage.

    Queried once per loaded `user`, although a request asks several times.
    """
    return bool(user.is_active and hasattr(user, "auditor"))


def may_enter(user: Visitor) -> bool:
    """Whether this account may open any page of the administration."""
    return is_administrator(user) or is_auditor(user)


def get_role(user: User) -> AccountRole:
    """The account's role, whether or not it is active."""
    if user.is_staff:
        return AccountRole.ADMINISTRATOR
    return AccountRole.AUDITOR if Auditor.objects.filter(pk=user.pk).exists() else AccountRole.USER


@transaction.atomic
def set_role(
    *, user: User, role: AccountRole, by: Visitor | None = None, source: str = "administration"
) -> bool:
    """Set the role; False if unchanged. `source` says what decided it if not a person.

    Raises `LastAdministrator`.
    """
    old_role = get_role(user)
    if old_role == role:
        return False
    if old_role == AccountRole.ADMINISTRATOR:
        require_other_administrator(excluding=[user.pk])
    user.is_staff = role == AccountRole.ADMINISTRATOR
    user.is_superuser = user.is_superuser and user.is_staff
    user.save(update_fields=("is_staff", "is_superuser"))
    if role == AccountRole.AUDITOR:
        Auditor.objects.create(user=user)
    else:
        Auditor.objects.filter(pk=user.pk).delete()
    user.refresh_from_db()  # it may have cached the former auditor row
    details = {"role": role.value, "before": old_role.value, "by": source}
    record_event(Action.RIGHTS_CHANGED, actor=by, subject=user, target=user, details=details)
    announce_rights_change()
    return True


def sync_role(
    *, user: User, names: Collection[str], administrators: str, auditors: str, source: str
) -> None:
    """Set the role that follows from the account's group names in a directory.

    Does nothing if neither group is configured; the last administrator keeps the role.
    """
    if not administrators and not auditors:
        return
    folded = {name.casefold() for name in names}
    role = AccountRole.USER
    if administrators and administrators.casefold() in folded:
        role = AccountRole.ADMINISTRATOR
    elif auditors and auditors.casefold() in folded:
        role = AccountRole.AUDITOR
    try:
        set_role(user=user, role=role, source=source)
    except LastAdministrator:
        logger.warning("last_administrator_kept", user_id=user.pk, way=source)


def require_other_administrator(*, excluding: Collection[int]) -> None:
    """Raise `LastAdministrator` if no administrator would be left without these accounts.

    The rows stay locked until the transaction ends, so that two administrators cannot remove each
    other.
    """
    rows = User.objects.filter(is_active=True, is_staff=True).order_by("pk").select_for_update()
    administrators = set(rows.values_list("pk", flat=True))
    if administrators and administrators <= set(excluding):
        raise LastAdministrator


class RolePermissions:
    """Authentication backend that only derives Django's permissions from roles."""

    def authenticate(self, request: Any) -> None:
        """Takes no credentials, so Django skips it at sign-in."""

    def has_perm(self, user_obj: Visitor, perm: str, obj: Any = None) -> bool:
        """Whether the role has the permission."""
        if is_administrator(user_obj):
            return True
        return perm in AUDITOR_PERMISSIONS and is_auditor(user_obj)

    def has_module_perms(self, user_obj: Visitor, app_label: str) -> bool:
        """Whether the role has any permission in that app."""
        if is_administrator(user_obj):
            return True
        apps = {permission.partition(".")[0] for permission in AUDITOR_PERMISSIONS}
        return app_label in apps and is_auditor(user_obj)


@transaction.atomic
def change_memberships(
    *,
    user: User,
    join: Collection[Group] = (),
    leave: Collection[Group] = (),
    by: Visitor | None = None,
    source: str = "administration",
) -> None:
    """Add a user to groups and remove them from others; audited, and effective at once."""
    group_ids = set(user.groups.values_list("pk", flat=True))
    joined = [group for group in join if group.pk not in group_ids]
    left = [group for group in leave if group.pk in group_ids]
    user.groups.add(*joined)
    user.groups.remove(*left)
    for group in joined:
        record_membership(user=user, group=group, is_member=True, by=by, source=source)
    for group in left:
        record_membership(user=user, group=group, is_member=False, by=by, source=source)


def record_membership(
    *, user: User, group: Group, is_member: bool, by: Visitor | None, source: str = "administration"
) -> None:
    """Audit that a user joined or left a group, and have open connections recheck their rights."""
    details = {"group": group.name, "member": is_member, "by": source}
    record_event(Action.RIGHTS_CHANGED, actor=by, subject=user, target=group, details=details)
    announce_rights_change()
    announce_shared_change()


def sync_directory_groups(*, user: User, names: Collection[str], source: str) -> None:
    """Set the account's membership in directory groups to those named.

    Groups without a directory name are left alone.
    """
    folded = {name.casefold() for name in names}
    join: list[Group] = []
    leave: list[Group] = []
    for details in GroupDetails.objects.exclude(directory_name="").select_related("group"):
        is_member = details.directory_name.casefold() in folded
        (join if is_member else leave).append(details.group)
    change_memberships(user=user, join=join, leave=leave, source=source)


@transaction.atomic
def delete_group(*, group: Group, by: Visitor | None) -> None:
    """Delete a group after removing its members."""
    for user in group.user_set.all():
        record_membership(user=user, group=group, is_member=False, by=by)
    group.delete()
