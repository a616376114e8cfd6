"""Groups of people: who is in one, by hand, by an invitation, or because a directory says so.

Quotas, models and libraries are given to groups elsewhere. A group that has a name in the directory
gets its members from there at each sign-in; one without is kept by hand alone.
"""

from collections.abc import Collection

from django.contrib.auth.models import Group, User
from django.db import transaction

from documents.audit import Action, record_event
from documents.notices import announce_change
from nura.accounts.models import GroupDetails
from nura.accounts.roles import Visitor


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
    announce_change()


def follow_directory(*, user: User, names: Collection[str], way: str) -> None:
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
def disband_group(*, group: Group, by: Visitor | None) -> None:
    """Delete a group; all its members leave it."""
    for user in group.user_set.all():
        record_membership(user=user, group=group, is_member=False, by=by)
    group.delete()
