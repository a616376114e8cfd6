"""Who is suggested while a name is typed: only people whose names one is shown elsewhere."""

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from documents.libraries import add_member, create_library
from documents.models import LibraryRole
from nura.accounts.roles import AccountRole, set_role
from tests.chats.conftest import client as api_of
from tests.chats.conftest import make_document
from tests.chats.turns import add_turn

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def hana(transactional_db):
    return User.objects.create_user("hana", "hana@example.com", first_name="김하나")


@pytest.fixture
def library(owner):
    return create_library(creator=owner, name="별빛 자료", description="")


def join(library, person, by, role=LibraryRole.READER):
    add_member(library=library, principal=person, role=role, actor=by)


def suggest(user, text):
    answer = api_of(user).get("/api/v1/people", {"q": text})
    assert answer.status_code == 200
    return [person["username"] for person in answer.data]


@pytest.mark.parametrize("text", ["hana", "HA", "하나", "김"])
def test_a_member_of_a_library_is_suggested_to_who_manages_it(owner, hana, library, text):
    assert suggest(owner, text) == []
    join(library, hana, owner)
    assert suggest(owner, text) == ["hana"]
    found = api_of(owner).get("/api/v1/people", {"q": text}).data
    assert found == [{"username": "hana", "name": "김하나"}]


def test_who_added_a_document_is_suggested_to_its_readers(owner, hana, library):
    join(library, hana, owner)
    assert suggest(hana, owner.username) == []
    document = make_document(owner, "규정.md")
    assert suggest(hana, owner.username) == []
    document.library = library
    document.save()
    assert suggest(hana, owner.username) == [owner.username]


def test_whom_one_has_shared_with_is_suggested_again(owner, hana):
    chat = add_turn(owner, "출장비는?", make_document(owner)).chat
    path = f"/api/v1/chats/{chat.pk}/share"
    assert api_of(owner).post(path, {"users": ["hana"]}, format="json").status_code == 201
    assert suggest(owner, "hana") == ["hana"]
    assert suggest(hana, owner.username) == []


def test_a_stranger_is_suggested_nobody_and_to_nobody(owner, hana, stranger, library):
    join(library, hana, owner)
    for name in (owner.username, "hana", "김", "a"):
        assert suggest(stranger, name) == []
    for user in (owner, hana):
        assert suggest(user, stranger.username) == []
    answer = Client().get("/api/v1/people", {"q": "hana"})
    assert answer.status_code == 401


def test_members_who_are_shown_no_list_of_members_are_suggested_none(owner, hana, library):
    """Neither readers of one library nor members of one group see each other anywhere."""
    dul = User.objects.create_user("dul")
    group = Group.objects.create(name="인사팀")
    for person in (hana, dul):
        join(library, person, owner)
        person.groups.add(group)
    assert suggest(hana, "dul") == []


def test_neither_oneself_nor_a_closed_account_is_suggested(owner, hana, library):
    join(library, hana, owner)
    User.objects.filter(pk=hana.pk).update(is_active=False)
    assert suggest(owner, "hana") == []
    assert suggest(owner, owner.username) == []


def test_nothing_typed_lists_nobody(owner, hana, library):
    join(library, hana, owner)
    assert suggest(owner, " ") == []
    assert api_of(owner).get("/api/v1/people").data == []
    assert suggest(owner, "%") == []


def test_an_administrator_is_suggested_everybody(hana, stranger):
    chief = User.objects.create_user("chief")
    set_role(user=chief, role=AccountRole.ADMINISTRATOR)
    assert suggest(chief, "hana") == ["hana"]
    assert suggest(chief, stranger.username) == [stranger.username]
