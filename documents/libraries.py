"""What can be done with libraries. Callers have checked that the library is the user's to change.

Whatever takes a right away says so (`notices.announce_change`), so that answers, sockets and
streams that read the library end at once.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Collection
from enum import StrEnum
from uuid import UUID

from django.contrib.auth.models import Group, User
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from documents import notices, quotas
from documents.audit import Action, record_event
from documents.errors import LastManager, LibraryNotFound, MemberExists, NoSuchMember
from documents.models import Chunk, Document, Library, LibraryMember, LibraryRole
from documents.services import delete_document
from documents.sources.models import Source


class DocumentsOfDeleted(StrEnum):
    """What becomes of the documents of a library that is deleted."""

    OWNERS = "owners"
    """Each goes back into the private library of its owner."""
    DELETE = "delete"


@transaction.atomic
def create_library(*, creator: User, name: str, description: str = "") -> Library:
    """A library whose first manager is who made it."""
    library = Library.objects.create(name=_clean_text(name), description=_clean_text(description))
    LibraryMember.objects.create(library=library, user=creator, role=LibraryRole.MANAGER)
    record_event(Action.LIBRARY_CREATED, actor=creator, target=library)
    return library


@transaction.atomic
def update_library(
    *, library: Library, actor: User, name: str | None = None, description: str | None = None
) -> None:
    """Change name and description; what is None stays."""
    wanted = {"name": name, "description": description}
    changes = {field: _clean_text(value) for field, value in wanted.items() if value is not None}
    for field, value in changes.items():
        setattr(library, field, value)
    library.save(update_fields=(*changes, "updated_at"))
    record_event(
        Action.LIBRARY_CHANGED, actor=actor, target=library, details={"fields": sorted(changes)}
    )


def _clean_text(text: str) -> str:
    return unicodedata.normalize("NFC", text).strip()


@transaction.atomic
def delete_library(*, library: Library, actor: User, documents: DocumentsOfDeleted) -> None:
    """Delete a library; `documents` says what becomes of what it holds."""
    _lock_library(library.pk)
    rows = Document.objects.filter(library=library)
    count = rows.count()
    if documents == DocumentsOfDeleted.DELETE:
        for document in rows.select_related("owner").order_by("pk"):
            delete_document(document=document, actor=actor)
    else:
        rows.update(library=None, moved_at=Now())
    told = {"documents": str(documents), "count": count}
    record_event(Action.LIBRARY_DELETED, actor=actor, target=library, details=told)
    Library.objects.filter(pk=library.pk).delete()
    notices.announce_rights_change()


# Members


def find_principal(*, user: str = "", group: str = "") -> User | Group:
    """The active account, or else the group, with this name. Raises `NoSuchMember`."""
    named: User | Group | None
    if user:
        named = User.objects.filter(username=_clean_text(user), is_active=True).first()
    else:
        named = Group.objects.filter(name=_clean_text(group)).first()
    if named is None:
        raise NoSuchMember(name=user or group)
    return named


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
    """Let nobody else change the members, or delete the library, until the transaction ends."""
    if not Library.objects.select_for_update().filter(pk=library_id).exists():
        raise LibraryNotFound


def _check_has_manager(library_id: UUID) -> None:
    managers = LibraryMember.objects.filter(library_id=library_id, role=LibraryRole.MANAGER)
    if not managers.exists():
        raise LastManager


def record_membership(action: Action, member: LibraryMember, actor: User) -> None:
    """Write down what was done with a membership."""
    target = f"library:{member.library_id}"
    told = _describe_member(member)
    record_event(action, actor=actor, subject=member.user, target=target, details=told)


def _describe_member(member: LibraryMember) -> dict[str, object]:
    told: dict[str, object] = {"role": str(member.role)}
    return told | ({"group": member.group_id} if member.group_id else {})


# Who may read what


def find_libraries(*, user: User, library_ids: Collection[UUID]) -> list[UUID]:
    """These ids, each once. Raises `LibraryNotFound` when one is not there for this user."""
    wanted = list(dict.fromkeys(library_ids))
    found = Library.objects.visible_to(user).filter(pk__in=wanted).count() if wanted else 0
    if found != len(wanted):
        raise LibraryNotFound
    return wanted


def list_readable_libraries(user_ids: Collection[int]) -> dict[int, set[UUID]]:
    """The ids of the libraries that each of these users may read. Two queries."""
    held: dict[int, set[UUID]] = {pk: set() for pk in user_ids}
    own = LibraryMember.objects.filter(user__in=held).values_list("user", "library_id")
    groups = LibraryMember.objects.filter(group__user__in=held)
    for user_id, library_id in (*own, *groups.values_list("group__user", "library_id")):
        held[user_id].add(library_id)
    return held


def find_unreadable_documents(user_id: int, document_ids: Collection[UUID]) -> set[UUID]:
    """Those of these documents that are there, but not for this user."""
    there = Document.objects.filter(pk__in=document_ids)
    readable = there.visible_to(User(pk=user_id)).values("pk")
    return set(there.exclude(pk__in=readable).values_list("pk", flat=True))


# Documents


def find_target_library(*, user: User, library_id: UUID | None) -> Library | None:
    """The library into which the user may put documents; None: his private one.

    Raises `LibraryNotFound`.
    """
    if library_id is None:
        return None
    library = Library.objects.contributed_by(user).filter(pk=library_id).first()
    if library is None:
        raise LibraryNotFound
    return library


@transaction.atomic
def move_document(*, document: Document, library: Library | None, actor: User) -> None:
    """Put a document into another library; None: into the private one of its owner.

    Whoever could read it only where it was reads it no longer. Raises `QuotaLibrary`.
    """
    row = Document.objects.select_for_update().get(pk=document.pk)
    before = row.library_id
    after = library.pk if library else None
    if before != after:
        if after is not None:
            quotas.check_library_quota(after, documents=1, size=quotas.count_bytes(row))
        Document.objects.filter(pk=row.pk).update(library=library, moved_at=Now(), updated_at=Now())
        told = {"from": before, "to": after}
        record_event(
            Action.DOCUMENT_MOVED, actor=actor, subject=row.owner, target=row, details=told
        )
        notices.announce_rights_change()
    document.refresh_from_db()
    transaction.on_commit(lambda: notices.notify_document_changed(document), robust=True)


def hand_over_documents(*, owner: User) -> int:
    """Give an account's documents and sources in libraries to others, before it is deleted.

    They go to whoever manages the library, else to whoever adds documents there, else to an
    administrator, the longest-standing first. How many found a new owner; those that found none
    (nobody but the account is left) stay its own, and go with it.
    """
    held = Document.objects.filter(owner=owner, library__isnull=False)
    of_library = defaultdict(list)
    for pk, library_id in held.order_by("pk").select_for_update().values_list("pk", "library_id"):
        of_library[library_id].append(pk)
    for library_id in Source.objects.filter(owner=owner).values_list("library_id", flat=True):
        of_library[library_id] += []  # one that has brought nothing yet goes on as well
    passed = 0
    for library_id, ids in of_library.items():
        heir = _find_successor(library_id, owner)
        if heir is None:
            continue
        Document.objects.filter(pk__in=ids).update(owner=heir)
        Chunk.objects.filter(document__in=ids).update(owner_id=heir.pk)
        Source.objects.filter(owner=owner, library_id=library_id).update(owner=heir)
        told = {"documents": len(ids), "library": str(library_id)}
        record_event(
            Action.DOCUMENT_PASSED_ON, subject=heir, target=f"library:{library_id}", details=told
        )
        passed += len(ids)
    return passed


def _find_successor(library_id: UUID, former: User) -> User | None:
    others = User.objects.filter(is_active=True).exclude(pk=former.pk)
    for role in (LibraryRole.MANAGER, LibraryRole.CONTRIBUTOR):
        members = LibraryMember.objects.filter(library_id=library_id, role=role)
        in_person = others.filter(library_memberships__in=members)
        by_group = others.filter(groups__library_memberships__in=members)
        heir = (
            in_person.order_by("library_memberships__pk").first()
            or by_group.order_by("date_joined", "pk").first()
        )
        if heir is not None:
            return heir
    return others.filter(is_staff=True).order_by("date_joined", "pk").first()
