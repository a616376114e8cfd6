"""Libraries: who reads and changes what in them, and what becomes of their documents."""

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import Group, User
from django.core.files.base import ContentFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from documents import libraries, notices, services
from documents.audit import AuditEvent
from documents.errors import LastManager, LibraryNotFound, MemberExists, NoSuchMember
from documents.libraries import DocumentFate
from documents.models import Document, Library, LibraryMember, LibraryRole
from nura.accounts.deletion import delete_account

pytestmark = pytest.mark.django_db

READER, CONTRIBUTOR, MANAGER = LibraryRole


def user(name):
    return User.objects.create_user(name)


def add(owner, library=None, text="본문"):
    file = ContentFile(text.encode(), name="문서.md")
    return services.upload_document(owner=owner, name="문서.md", content=file, library=library)[0]


def may_read(who, document):
    return Document.objects.visible_to(who).filter(pk=document.pk).exists()


def may_change(who, document):
    return Document.objects.owned_by(who).filter(pk=document.pk).exists()


@pytest.fixture
def manager():
    return user("manager")


@pytest.fixture
def library(manager):
    return libraries.create_library(creator=manager, name="규정")


def join(library, principal, role, manager):
    return libraries.add_member(library=library, principal=principal, role=role, actor=manager)


def test_who_makes_a_library_manages_it(library, manager):
    for found in (
        Library.objects.visible_to(manager),
        Library.objects.writable_by(manager),
        Library.objects.managed_by(manager),
    ):
        assert list(found) == [library]


def test_a_member_is_found_by_a_confirmed_address_and_no_other():
    EmailAddress.objects.create(user=user("hana"), email="hana@example.com", verified=True)
    EmailAddress.objects.create(user=user("mallory"), email="boss@example.com", verified=False)
    assert libraries.find_principal(user="Hana@example.com").username == "hana"
    with pytest.raises(NoSuchMember):
        libraries.find_principal(user="boss@example.com")
    User.objects.update(is_active=False)
    with pytest.raises(NoSuchMember):
        libraries.find_principal(user="hana@example.com")


def test_a_reader_reads_and_changes_nothing(library, manager):
    reader, document = user("reader"), add(manager, library)
    join(library, reader, READER, manager)
    assert may_read(reader, document)
    assert not may_change(reader, document)
    assert not Library.objects.writable_by(reader).exists()


def test_a_contributor_changes_only_what_is_his(library, manager):
    contributor = user("contributor")
    join(library, contributor, CONTRIBUTOR, manager)
    his, other = add(contributor, library), add(manager, library, "다른 본문")
    assert may_change(contributor, his)
    assert may_read(contributor, other)
    assert not may_change(contributor, other)
    assert may_change(manager, his)


def test_a_contributor_who_becomes_a_reader_changes_his_documents_no_more(library, manager):
    contributor = user("contributor")
    member = join(library, contributor, CONTRIBUTOR, manager)
    his = add(contributor, library)
    libraries.change_member(member=member, role=READER, actor=manager)
    assert may_read(contributor, his)
    assert not may_change(contributor, his)


def test_a_former_member_does_not_read_even_what_he_added(library, manager):
    former = user("former")
    member = join(library, former, CONTRIBUTOR, manager)
    his = add(former, library)
    libraries.remove_member(member=member, actor=manager)
    assert not may_read(former, his)
    assert not may_change(former, his)
    assert not Library.objects.visible_to(former).exists()


def test_a_group_lets_its_people_in_and_nobody_else(library, manager):
    group, other = Group.objects.create(name="영업"), Group.objects.create(name="개발")
    inside, outside = user("inside"), user("outside")
    inside.groups.add(group)
    outside.groups.add(other)
    document = add(manager, library)
    join(library, group, READER, manager)
    assert may_read(inside, document)
    assert not may_read(outside, document)
    inside.groups.remove(group)
    assert not may_read(inside, document)


def test_of_several_roles_the_highest_counts(library, manager):
    group, both = Group.objects.create(name="편집"), user("both")
    both.groups.add(group)
    join(library, both, READER, manager)
    join(library, group, MANAGER, manager)
    assert Library.objects.annotate_for(both).get().role == MANAGER
    assert Library.objects.managed_by(both).get() == library
    assert Library.objects.visible_to(both).count() == 1


def test_a_private_document_is_its_owners_alone(library, manager):
    reader = user("reader")
    join(library, reader, READER, manager)
    assert not may_read(reader, add(manager))


def test_the_last_manager_can_neither_go_nor_step_down(library, manager):
    member = LibraryMember.objects.get(user=manager)
    with pytest.raises(LastManager):
        libraries.remove_member(member=member, actor=manager)
    with pytest.raises(LastManager):
        libraries.change_member(member=member, role=READER, actor=manager)
    assert Library.objects.managed_by(manager).exists()


def test_somebody_is_a_member_once(library, manager):
    with pytest.raises(MemberExists):
        join(library, manager, READER, manager)


def test_nobody_is_found_by_a_wrong_name_or_a_closed_account(manager):
    User.objects.create_user("gone", is_active=False)
    for wrong in ({"user": "gone"}, {"user": "nobody"}, {"group": "nobody"}):
        with pytest.raises(NoSuchMember):
            libraries.find_principal(**wrong)


def test_a_reader_puts_nothing_into_a_library(library, manager):
    reader = user("reader")
    join(library, reader, READER, manager)
    with pytest.raises(LibraryNotFound):
        libraries.find_target_library(user=reader, library_id=library.pk)


def test_what_is_moved_follows_the_rights_of_where_it_is(library, manager):
    reader, document = user("reader"), add(manager)
    join(library, reader, READER, manager)
    libraries.move_document(document=document, library=library, actor=manager)
    assert may_read(reader, document)
    libraries.move_document(document=document, library=None, actor=manager)
    assert not may_read(reader, document)
    assert may_read(manager, document)


def test_the_same_file_is_one_document_of_a_library_and_another_in_private(library, manager):
    contributor = user("contributor")
    join(library, contributor, CONTRIBUTOR, manager)
    shared = add(manager, library)
    assert add(contributor, library) == shared
    assert add(contributor) != shared


@pytest.mark.parametrize("choice", list(DocumentFate))
def test_who_deletes_a_library_decides_about_its_documents(library, manager, choice):
    contributor = user("contributor")
    join(library, contributor, CONTRIBUTOR, manager)
    his = add(contributor, library)
    libraries.delete_library(library=library, actor=manager, documents=choice)
    assert not Library.objects.exists()
    assert may_read(contributor, his) == (choice == DocumentFate.OWNERS)
    assert not may_read(manager, his)


def test_what_an_account_shared_outlives_it_with_a_manager(library, manager):
    leaver = user("leaver")
    join(library, leaver, CONTRIBUTOR, manager)
    shared, private = add(leaver, library), add(leaver)
    delete_account(user=leaver)
    assert Document.objects.get(pk=shared.pk).owner == manager
    assert not Document.objects.filter(pk=private.pk).exists()


def test_what_the_only_manager_shared_goes_to_a_manager_by_group_first(library, manager):
    group, heir, contributor = Group.objects.create(name="후임"), user("heir"), user("other")
    heir.groups.add(group)
    join(library, contributor, CONTRIBUTOR, manager)
    join(library, group, MANAGER, manager)
    shared = add(manager, library)
    delete_account(user=manager)
    assert Document.objects.get(pk=shared.pk).owner == heir


def test_every_change_of_members_is_in_the_audit_log(library, manager):
    reader = user("reader")
    member = join(library, reader, READER, manager)
    libraries.change_member(member=member, role=MANAGER, actor=manager)
    libraries.remove_member(member=member, actor=manager)
    actions = AuditEvent.objects.order_by("pk").values_list("action", "actor_name", "target")
    target = f"library:{library.pk}"
    names = ("library_created", "member_added", "member_changed", "member_removed")
    assert list(actions) == [(name, "manager", target) for name in names]


def test_a_row_given_to_another_account_ends_one_membership_and_begins_another(
    admin_client, library, manager
):
    former, follower = user("former"), user("follower")
    member = join(library, former, CONTRIBUTOR, manager)
    give_row(admin_client, member, follower)
    assert add(manager, library) not in Document.objects.visible_to(former)
    events = AuditEvent.objects.filter(action__startswith="member_").order_by("pk")
    told = events.values_list("action", "subject_name", "details__role")
    assert [*told][-2:] == [
        ("member_removed", "former", "contributor"),
        ("member_added", "follower", "contributor"),
    ]


def give_row(client, member, follower):
    """Write another account into the row of a membership, in the administration."""
    form = {"name": member.library.name, "description": ""}
    form |= {"quota_rules-TOTAL_FORMS": 0, "quota_rules-INITIAL_FORMS": 0}
    rows = [*LibraryMember.objects.filter(library=member.library)]
    form |= {"members-TOTAL_FORMS": len(rows), "members-INITIAL_FORMS": len(rows)}
    for number, row in enumerate(rows):
        principal = follower.pk if row == member else row.user_id
        values = {"id": row.pk, "library": row.library_id, "user": principal, "role": row.role}
        form |= {f"members-{number}-{name}": value for name, value in values.items()}
    address = f"/admin/documents/library/{member.library_id}/change/"
    assert client.post(address, form).status_code == 302
    assert LibraryMember.objects.get(pk=member.pk).user == follower


def test_rights_are_looked_up_once_a_query(library, manager):
    add(manager, library)
    with CaptureQueriesContext(
        connection,
    ) as asked:
        list(Document.objects.visible_to(manager))
    assert len(asked) == 1
    assert "ANY(ARRAY(" in asked[0]["sql"]


@pytest.mark.parametrize("rows", ["visible_to", "owned_by"])
def test_a_list_does_not_read_the_documents_of_others(library, manager, rows):
    """Few libraries hold everything, and the reader is in none of them."""
    others = [library, *(Library.objects.create(name=str(number)) for number in range(4))]
    Document.objects.bulk_create(
        Document(owner=manager, library=others[number % 5], name=f"{number}.md", size=1)
        for number in range(2000)
    )
    mine = getattr(Document.objects, rows)(user("alone")).order_by("-created_at", "id")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE documents_document")
        sql, parameters = mine[:50].query.sql_with_params()
        cursor.execute(f"EXPLAIN {sql}", parameters)
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Bitmap Index Scan" in plan
    assert "Seq Scan on documents_document" not in plan


def test_who_has_left_a_library_hears_nothing_of_what_he_added(library, manager):
    former = user("former")
    member = join(library, former, CONTRIBUTOR, manager)
    his = add(former, library)
    assert notices.is_open_to_owner(his)
    libraries.remove_member(member=member, actor=manager)
    assert not notices.is_open_to_owner(his)
    assert notices.is_open_to_owner(add(former))


# Over REST


def make_client(who):
    client = APIClient()
    client.force_authenticate(who)
    return client


def test_libraries_over_rest(manager):
    client = make_client(manager)
    made = client.post("/api/v1/libraries", {"name": "규정"}, format="json")
    assert made.status_code == 201
    assert made.json()["role"] == "manager"
    address = f"/api/v1/libraries/{made.json()['id']}"
    user("reader")
    body = {"user": "reader", "role": "reader"}
    member = client.post(f"{address}/members", body, format="json").json()
    assert member["user"] == "reader"
    assert member["group"] is None
    assert client.post(f"{address}/members", body, format="json").status_code == 409
    changed = client.patch(f"{address}/members/{member['id']}", {"role": "manager"}, format="json")
    assert changed.json()["role"] == "manager"
    assert client.get(f"{address}/members").json()["count"] == 2
    assert client.delete(f"{address}/members/{member['id']}").status_code == 204
    assert client.patch(address, {"name": "새 규정"}, format="json").json()["name"] == "새 규정"
    assert client.delete(address).status_code == 204
    assert client.get("/api/v1/libraries").json()["count"] == 0


def test_others_read_the_name_that_an_account_chose(library, manager):
    reader, document = user("reader"), add(manager, library)
    join(library, reader, READER, manager)
    join(library, Group.objects.create(name="입찰팀"), READER, manager)
    User.objects.filter(pk=manager.pk).update(first_name="김민지")
    members = make_client(manager).get(f"/api/v1/libraries/{library.pk}/members").json()["results"]
    assert {(one["user"], one["name"]) for one in members} == {
        (manager.username, "김민지"),
        ("reader", "reader"),
        (None, "입찰팀"),
    }
    shown = make_client(reader).get(f"/api/v1/documents/{document.pk}").json()
    assert (shown["owner"], shown["owner_name"]) == (manager.username, "김민지")
    page = Client()
    page.force_login(reader)
    for address in (f"/documents?library={library.pk}", f"/documents/{document.pk}"):
        assert "김민지" in page.get(address, follow=True).content.decode()


def test_a_reader_sees_a_library_and_changes_none_of_it_over_rest(library, manager):
    reader, document = user("reader"), add(manager, library)
    join(library, reader, READER, manager)
    client, address = make_client(reader), f"/api/v1/libraries/{library.pk}"
    shown = client.get(address).json()
    assert (shown["role"], shown["document_count"]) == ("reader", 1)
    body = {"name": "x", "role": "manager", "user": "reader"}
    refused = [
        client.patch(address, body, format="json"),
        client.delete(address),
        client.get(f"{address}/members"),
        client.post(f"{address}/members", body, format="json"),
        client.patch(f"/api/v1/documents/{document.pk}", {"name": "x.md"}, format="json"),
        client.delete(f"/api/v1/documents/{document.pk}"),
    ]
    assert [one.status_code for one in refused] == [404] * 6


def test_documents_are_uploaded_to_moved_between_and_listed_by_libraries(library, manager):
    client = make_client(manager)
    file = ContentFile(b"# hello", name="hello.md")
    body = {"file": file, "library_id": str(library.pk)}
    sent = client.post("/api/v1/documents", body, format="multipart").json()
    assert sent["library_id"] == str(library.pk)

    def count(where):
        return client.get("/api/v1/documents", {"library": where}).json()["count"]

    assert (count(library.pk), count("private")) == (1, 0)
    address = f"/api/v1/documents/{sent['id']}"
    assert client.patch(address, {"library_id": None}, format="json").json()["library_id"] is None
    assert (count(library.pk), count("private")) == (0, 1)
    assert client.get("/api/v1/documents", {"library": "x"}).status_code == 400
