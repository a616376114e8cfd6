"""What an account may do beyond its own things, and which groups it is in.

An administrator is staff and may open every page of the administration; a superuser has no more
than that, and no installation needs one. An auditor reads the audit log and who uses how much, and
no contents. Who manages a library is said by the members of that library. One administrator always
stays, so that nobody is locked out of an installation.

Quotas, models and libraries are given to groups elsewhere. A group that has a name in the directory
gets its members from there at each sign-in; one without is kept by hand alone.
"""

from collections.abc import Collection
from typing import Any

import structlog
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser, Group, User
from django.db import models, transaction
from django.utils.translation import gettext_lazy as _

from documents.audit import Action, record_event
from documents.notices import announce_rights_change, announce_shared_change
from nura.accounts.models import Auditor, GroupDetails
from rag.errors import NuraError

logger = structlog.get_logger()

AUDITOR_PERMISSIONS = frozenset({"documents.view_auditevent"})
"""What an auditor may open of the administration's tables; usage has a page of its own."""

Visitor = AbstractBaseUser | AnonymousUser


class AccountRole(models.TextChoices):
    """What an account is; the values are public."""

    USER = "user", _("User")
    AUDITOR = "auditor", _("Auditor")
    ADMINISTRATOR = "administrator", _("Administrator")


class LastAdministrator(NuraError):
    """Nobody could administer the installation any more."""

    code = "last_administrator"


def is_administrator(user: Visitor) -> bool:
    """Whether every page of the administration is open to this account."""
    return bool(user.is_active and getattr(user, "is_staff", False))


def is_auditor(user: Visitor) -> bool:
    """Whether this account reads the audit log and usage, and nothing else of others.

    Asked of the database once for each `user` that is loaded: a request asks several times.
    """
    return bool(user.is_active and hasattr(user, "auditor"))


def may_enter(user: Visitor) -> bool:
    """Whether anything of the administration is open to this account."""
    return is_administrator(user) or is_auditor(user)


def get_role(user: User) -> AccountRole:
    """What the account is, whether or not it is active."""
    if user.is_staff:
        return AccountRole.ADMINISTRATOR
    return AccountRole.AUDITOR if Auditor.objects.filter(pk=user.pk).exists() else AccountRole.USER


@transaction.atomic
def set_role(
    *, user: User, role: AccountRole, by: Visitor | None = None, way: str = "administration"
) -> bool:
    """Make the account that; False where it was. `way` says who decided where nobody did by hand.

    Raises `LastAdministrator`.
    """
    before = get_role(user)
    if before == role:
        return False
    if before == AccountRole.ADMINISTRATOR:
        require_other_administrator(without=[user.pk])
    user.is_staff = role == AccountRole.ADMINISTRATOR
    user.is_superuser = user.is_superuser and user.is_staff
    user.save(update_fields=("is_staff", "is_superuser"))
    if role == AccountRole.AUDITOR:
        Auditor.objects.create(user=user)
    else:
        Auditor.objects.filter(pk=user.pk).delete()
    user.refresh_from_db()  # it may hold the auditor of before
    details = {"role": role.value, "before": before.value, "by": way}
    record_event(Action.RIGHTS_CHANGED, actor=by, subject=user, target=user, details=details)
    announce_rights_change()
    return True


def sync_role(
    *, user: User, names: Collection[str], administrators: str, auditors: str, way: str
) -> None:
    """Set the role that follows from the names of the account's groups in a directory.

    It has no say where it names neither group; the last administrator stays one.
    """
    if not administrators and not auditors:
        return
    told = {name.casefold() for name in names}
    role = AccountRole.USER
    if administrators and administrators.casefold() in told:
        role = AccountRole.ADMINISTRATOR
    elif auditors and auditors.casefold() in told:
        role = AccountRole.AUDITOR
    try:
        set_role(user=user, role=role, way=way)
    except LastAdministrator:
        logger.warning("last_administrator_kept", user_id=user.pk, way=way)


def require_other_administrator(*, without: Collection[int]) -> None:
    """Raise `LastAdministrator` where none would be left without these accounts.

    The rows stay locked until the transaction ends: two administrators cannot end each other.
    """
    rows = User.objects.filter(is_active=True, is_staff=True).order_by("pk").select_for_update()
    held = set(rows.values_list("pk", flat=True))
    if held and held <= set(without):
        raise LastAdministrator


class RolePermissions:
    """Django's permissions as the roles give them; no session is begun by it, and so none held."""

    def authenticate(self, request: Any) -> None:
        """Takes no credentials: Django passes it by."""

    def has_perm(self, user_obj: Visitor, perm: str, obj: Any = None) -> bool:
        """Whether the role allows it."""
        if is_administrator(user_obj):
            return True
        return perm in AUDITOR_PERMISSIONS and is_auditor(user_obj)

    def has_module_perms(self, user_obj: Visitor, app_label: str) -> bool:
        """Whether the role allows anything of that app."""
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
    way: str = "administration",
) -> None:
    """Let somebody join and leave groups; what that changes is written down and holds at once."""
    held = set(user.groups.values_list("pk", flat=True))
    joined = [group for group in join if group.pk not in held]
    left = [group for group in leave if group.pk in held]
    user.groups.add(*joined)
    user.groups.remove(*left)
    for group in joined:
        record_membership(user=user, group=group, is_member=True, by=by, way=way)
    for group in left:
        record_membership(user=user, group=group, is_member=False, by=by, way=way)


def record_membership(
    *, user: User, group: Group, is_member: bool, by: Visitor | None, way: str = "administration"
) -> None:
    """Write down that somebody is or is no longer in a group, and have all that is open look."""
    details = {"group": group.name, "member": is_member, "by": way}
    record_event(Action.RIGHTS_CHANGED, actor=by, subject=user, target=group, details=details)
    announce_rights_change()
    announce_shared_change()


def sync_directory_groups(*, user: User, names: Collection[str], way: str) -> None:
    """Bring the account into those groups whose names in the directory are told, and no other.

    Groups without a name there stay as they are.
    """
    told = {name.casefold() for name in names}
    join: list[Group] = []
    leave: list[Group] = []
    for details in GroupDetails.objects.exclude(directory_name="").select_related("group"):
        is_told = details.directory_name.casefold() in told
        (join if is_told else leave).append(details.group)
    change_memberships(user=user, join=join, leave=leave, way=way)


@transaction.atomic
def delete_group(*, group: Group, by: Visitor | None) -> None:
    """Delete a group; all its members leave it."""
    for user in group.user_set.all():
        record_membership(user=user, group=group, is_member=False, by=by)
    group.delete()
