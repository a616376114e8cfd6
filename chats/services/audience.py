"""To whom something is shown: everybody who is signed in, people, groups."""

import unicodedata
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import Group, User
from django.core.exceptions import ValidationError
from django.db.models import Exists, OuterRef, Q
from django.utils.translation import gettext as _

from chats.models import Assistant, ChatShare, FolderShare, Prompt
from chats.models.sharing import Shareable
from documents.audit import Action, record_event
from documents.libraries import find_accounts
from documents.models import Document, Library, LibraryMember
from documents.notices import announce_rights_change, announce_shared_change

MAX_NAMED = 200
"""People or groups by name with whom one thing is shared."""
MAX_SUGGESTED = 8
"""People suggested for what has been typed of a name."""


@dataclass(frozen=True, slots=True)
class Audience:
    """To whom something is shown: everybody who is signed in, people, groups."""

    everybody: bool = False
    users: tuple[User, ...] = ()
    groups: tuple[Group, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it is nobody."""
        return not (self.everybody or self.users or self.groups)


def list_nameable_groups(user: User) -> list[Group]:
    """The groups that this user may name: his own; for an administrator, all."""
    groups = Group.objects.all() if user.is_staff else user.groups.all()
    return list(groups.order_by("name"))


def suggest_people(*, user: User, text: str) -> list[User]:
    """People with `text` in their name whose names this user is shown elsewhere, too.

    These own a document that the user may read, are members of a library that the user manages, or
    were named by the user before. Who else is in a group or a library is shown to no member, so
    they are not suggested. Those who may list all accounts are shown anybody.
    """
    wanted = unicodedata.normalize("NFC", text).strip()
    if not wanted:
        return []
    is_named = Q(username__icontains=wanted) | Q(first_name__icontains=wanted)
    people = User.objects.filter(is_named, is_active=True).exclude(pk=user.pk)
    if not user.has_perm("auth.view_user"):
        person = OuterRef("pk")
        managed = Library.objects.managed_by(user)
        is_known = Q(Exists(Document.objects.visible_to(user).filter(owner=person)))
        is_known |= Q(Exists(LibraryMember.objects.filter(library__in=managed, user=person)))
        for model in (ChatShare, Assistant, Prompt, FolderShare):
            is_known |= Q(Exists(model.objects.owned_by(user).filter(users=person)))
        people = people.filter(is_known)
    return list(people.order_by("username")[:MAX_SUGGESTED])


def find_audience(
    *, user: User, everybody: bool, usernames: Collection[str], group_names: Collection[str]
) -> Audience:
    """The audience with these names, or e-mail addresses of people.

    Raises `ValidationError` with the names that nobody has.
    """
    names = {name.strip() for name in usernames if name.strip()}
    found = find_accounts(names)
    people = sorted(set(found.values()) - {user}, key=User.get_username)
    wanted_groups = {name.strip() for name in group_names if name.strip()}
    groups = [group for group in list_nameable_groups(user) if group.name in wanted_groups]
    problems = {}
    if missing := sorted(names - found.keys() - {user.get_username()}):
        problems["users"] = _("There is no user called %(names)s.") % {"names": ", ".join(missing)}
    if missing := sorted(wanted_groups - {group.name for group in groups}):
        problem = _("You are in no group called %(names)s.") % {"names": ", ".join(missing)}
        problems["groups"] = problem
    if problems:
        raise ValidationError(problems)
    return Audience(everybody, tuple(people), tuple(groups))


def set_audience(row: Shareable, audience: Audience, *, actor: User) -> None:
    """Share the row with this audience only; what others have open of it ends at once.

    The caller's transaction has locked the row.
    """
    row.for_everybody = audience.everybody
    row.save(update_fields=("for_everybody",))
    row.users.set(audience.users)
    row.groups.set(audience.groups)
    details = {
        "everybody": audience.everybody,
        "users": [member.pk for member in audience.users],
        "groups": [member.pk for member in audience.groups],
    }
    record_event(Action.SHARE_CHANGED, actor=actor, subject=actor, target=row, details=details)
    announce_rights_change()
    announce_shared_change()


def describe_audience(row: Shareable) -> dict[str, Any]:
    """To whom a row is shown, as the API says it."""
    return {
        "everybody": row.for_everybody,
        "users": sorted(person.get_username() for person in row.users.all()),
        "groups": sorted(group.name for group in row.groups.all()),
    }
