"""Operations on libraries. Callers have checked that the user may change the library.

Whatever gives a right or takes one away announces it (`notices.announce_rights_change`): answers,
sockets and streams that read the library end at once, and open pages show what has changed.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Collection
from enum import StrEnum
from uuid import UUID

from allauth.account.models import EmailAddress
from django.contrib.auth.models import Group, User
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from documents import notices, quotas
from documents.audit import Action, record_event
from documents.errors import LastManager, LibraryNotFound, MemberExists, NoSuchMember
from documents.models import Chunk, Document, Library, LibraryMember, LibraryRole
from documents.services import delete_document
from documents.sources.models import Source


class DocumentFate(StrEnum):
    """What becomes of the documents of a library that is deleted."""

    OWNERS = "owners"
    """Each goes back into the private library of its owner."""
    DELETE = "delete"


@transaction.atomic
def create_library(*, creator: User, name: str, description: str = "") -> Library:
    """Create a library with its creator as the first manager."""
    library = Library.objects.create(name=_clean_text(name), description=_clean_text(description))
    LibraryMember.objects.create(library=library, user=creator, role=LibraryRole.MANAGER)
    record_event(Action.LIBRARY_CREATED, actor=creator, target=library)
    return library


@transaction.atomic
def update_library(
    *, library: Library, actor: User, name: str | None = None, description: str | None = None
) -> None:
    """Change name and description; None leaves either as it is."""
    values = {"name": name, "description": description}
    changes = {field: _clean_text(value) for field, value in values.items() if value is not None}
    for field, value in changes.items():
        setattr(library, field, value)
    library.save(update_fields=(*changes, "updated_at"))
    record_event(
        Action.LIBRARY_CHANGED, actor=actor, target=library, details={"fields": sorted(changes)}
    )


def _clean_text(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()


@transaction.atomic
def delete_library(*, library: Library, actor: User, documents: DocumentFate) -> None:
    """Delete a library; `documents` decides what becomes of its documents."""
    _lock_library(library.pk)
    rows = Document.objects.filter(library=library)
    count = rows.count()
    if documents == DocumentFate.DELETE:
        for document in rows.select_related("owner").order_by("pk"):
            delete_document(document=document, actor=actor)
    else:
        rows.update(library=None, moved_at=Now())
    details = {"documents": str(documents), "count": count}
    record_event(Action.LIBRARY_DELETED, actor=actor, target=library, details=details)
    Library.objects.filter(pk=library.pk).delete()
    notices.announce_rights_change()


# Members


def find_accounts(names: Collection[str]) -> dict[str, User]:
    """Active accounts by the names that were asked for: user names, or else e-mail addresses.

    Only an address that its owner has confirmed counts: anybody may enter that of somebody else.
    """
    users = User.objects.filter(username__in=names, is_active=True)
    accounts = {user.username: user for user in users}
    asked = {name: name.lower() for name in names if name not in accounts}
    rows = EmailAddress.objects.filter(email__in=asked.values(), verified=True)
    owners = {
        row.email: row.user for row in rows.filter(user__is_active=True).select_related("user")
    }
    return accounts | {name: owners[email] for name, email in asked.items() if email in owners}


def find_principal(*, user: str = "", group: str = "") -> User | Group:
    """The active account, by its name or e-mail address, or the group. Raises `NoSuchMember`."""
    principal: User | Group | None
    if user:
        name = _clean_text(user)
        principal = find_accounts([name]).get(name)
    else:
        principal = Group.objects.filter(name=_clean_text(group)).first()
    if principal is None:
        raise NoSuchMember(name=user or group)
    return principal


@transaction.atomic
def add_member(
    *, library: Library, principal: User | Group, role: LibraryRole, actor: User
) -> LibraryMember:
    """Make an account or a group a member. Raises `MemberExists`."""
    user = principal if isinstance(principal, User) else None
    group = principal if isinstance(principal, Group) else None
    member = LibraryMember(library=library, user=user, group=group, role=role)
    try:
        with transaction.atomic():
            member.save(force_insert=True)
    except IntegrityError as error:
        if not Library.objects.filter(pk=library.pk).exists():
            raise LibraryNotFound from error
        raise MemberExists from error
    record_membership(Action.MEMBER_ADDED, member, actor)
    notices.announce_rights_change()
    return member


@transaction.atomic
def change_member(*, member: LibraryMember, role: LibraryRole, actor: User) -> None:
    """Give a member another role. Raises `LastManager`."""
    _lock_library(member.library_id)
    LibraryMember.objects.filter(pk=member.pk).update(role=role)
    _check_has_manager(member.library_id)
    member.role = role
    record_membership(Action.MEMBER_CHANGED, member, actor)
    notices.announce_rights_change()


@transaction.atomic
def remove_member(*, member: LibraryMember, actor: User) -> None:
    """End a membership. Raises `LastManager`."""
    _lock_library(member.library_id)
    LibraryMember.objects.filter(pk=member.pk).delete()
    _check_has_manager(member.library_id)
    record_membership(Action.MEMBER_REMOVED, member, actor)
    notices.announce_rights_change()


def _lock_library(library_id: UUID) -> None:
    """Lock the library against changes of members and deletion until the transaction ends."""
    if not Library.objects.select_for_update().filter(pk=library_id).exists():
        raise LibraryNotFound


def _check_has_manager(library_id: UUID) -> None:
    managers = LibraryMember.objects.filter(library_id=library_id, role=LibraryRole.MANAGER)
    if not managers.exists():
        raise LastManager


def record_membership(action: Action, member: LibraryMember, actor: User) -> None:
    """Record a change of a membership in the audit log."""
    target = f"library:{member.library_id}"
    details = _describe_member(member)
    record_event(action, actor=actor, subject=member.user, target=target, details=details)


def _describe_member(member: LibraryMember) -> dict[str, object]:
    details: dict[str, object] = {"role": str(member.role)}
    return details | ({"group": member.group_id} if member.group_id else {})


# Who may read what


def find_libraries(*, user: User, library_ids: Collection[UUID]) -> list[UUID]:
    """The ids without duplicates. Raises `LibraryNotFound` if the user cannot see one of them."""
    ids = list(dict.fromkeys(library_ids))
    count = Library.objects.visible_to(user).filter(pk__in=ids).count() if ids else 0
    if count != len(ids):
        raise LibraryNotFound
    return ids


def list_held_roles(user_ids: Collection[int]) -> dict[int, set[tuple[UUID, str]]]:
    """The libraries that each of these users may read, each with a role held in it. Two queries.

    A library stands there once for each role: the user's own, and those of the user's groups.
    """
    roles: dict[int, set[tuple[UUID, str]]] = {pk: set() for pk in user_ids}
    own = LibraryMember.objects.filter(user__in=roles).values_list("user", "library_id", "role")
    groups = LibraryMember.objects.filter(group__user__in=roles)
    of_groups = groups.values_list("group__user", "library_id", "role")
    for user_id, library_id, role in (*own, *of_groups):
        roles[user_id].add((library_id, role))
    return roles


def list_readable_libraries(user_ids: Collection[int]) -> dict[int, set[UUID]]:
    """The ids of the libraries that each of these users may read. Two queries."""
    roles = list_held_roles(user_ids)
    return {pk: {library_id for library_id, _role in pairs} for pk, pairs in roles.items()}


def find_unreadable_documents(user_id: int, document_ids: Collection[UUID]) -> set[UUID]:
    """Which of these documents exist but are not readable for this user."""
    documents = Document.objects.filter(pk__in=document_ids)
    readable = documents.visible_to(User(pk=user_id)).values("pk")
    return set(documents.exclude(pk__in=readable).values_list("pk", flat=True))


# Documents


def find_target_library(*, user: User, library_id: UUID | None) -> Library | None:
    """The library to add documents to, if the user may; None: the user's private one.

    Raises `LibraryNotFound`.
    """
    if library_id is None:
        return None
    library = Library.objects.writable_by(user).filter(pk=library_id).first()
    if library is None:
        raise LibraryNotFound
    return library


@transaction.atomic
def move_document(*, document: Document, library: Library | None, actor: User) -> None:
    """Move a document to another library; None: to its owner's private one.

    Members of the old library alone lose access to it. Raises `QuotaLibrary`.
    """
    row = Document.objects.select_for_update().get(pk=document.pk)
    old_library_id = row.library_id
    new_library_id = library.pk if library else None
    if old_library_id != new_library_id:
        if new_library_id is not None:
            quotas.check_library_quota(
                new_library_id, documents=1, size=quotas.count_document_bytes(row)
            )
        Document.objects.filter(pk=row.pk).update(library=library, moved_at=Now(), updated_at=Now())
        details = {"from": old_library_id, "to": new_library_id}
        record_event(
            Action.DOCUMENT_MOVED, actor=actor, subject=row.owner, target=row, details=details
        )
        notices.announce_rights_change()
    document.refresh_from_db()
    transaction.on_commit(lambda: notices.notify_document_changed(document), robust=True)


def hand_over_documents(*, owner: User) -> int:
    """Give an account's documents and sources in libraries to new owners, before it is deleted.

    The new owner is a manager of the library, else a contributor, else an administrator, the
    longest-standing first. If nobody else is left, the documents stay and are deleted with the
    account. Returns the number handed over.
    """
    documents = Document.objects.filter(owner=owner, library__isnull=False)
    ids_by_library = defaultdict(list)
    for pk, library_id in (
        documents.order_by("pk").select_for_update().values_list("pk", "library_id")
    ):
        ids_by_library[library_id].append(pk)
    for library_id in Source.objects.filter(owner=owner).values_list("library_id", flat=True):
        ids_by_library[library_id] += []  # one that has brought nothing yet goes on as well
    count = 0
    for library_id, ids in ids_by_library.items():
        new_owner = _find_successor(library_id, owner)
        if new_owner is None:
            continue
        Document.objects.filter(pk__in=ids).update(owner=new_owner)
        Chunk.objects.filter(document__in=ids).update(owner_id=new_owner.pk)
        Source.objects.filter(owner=owner, library_id=library_id).update(owner=new_owner)
        details = {"documents": len(ids), "library": str(library_id)}
        record_event(
            Action.DOCUMENT_PASSED_ON,
            subject=new_owner,
            target=f"library:{library_id}",
            details=details,
        )
        count += len(ids)
    return count


def _find_successor(library_id: UUID, former_owner: User) -> User | None:
    others = User.objects.filter(is_active=True).exclude(pk=former_owner.pk)
    for role in (LibraryRole.MANAGER, LibraryRole.CONTRIBUTOR):
        members = LibraryMember.objects.filter(library_id=library_id, role=role)
        in_person = others.filter(library_memberships__in=members)
        by_group = others.filter(groups__library_memberships__in=members)
        user = (
            in_person.order_by("library_memberships__pk").first()
            or by_group.order_by("date_joined", "pk").first()
        )
        if user is not None:
            return user
    return others.filter(is_staff=True).order_by("date_joined", "pk").first()
