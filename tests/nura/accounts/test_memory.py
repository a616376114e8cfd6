"""The section of what is remembered, and the same over REST."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from chats.models import Chat, ProfileSlot
from chats.services.chats import delete_idle_chats
from nura.retention import purge_chats

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "/settings/memory"
API = "/api/v1/me/memory"


@pytest.fixture
def owner():
    return User.objects.create_user("owner", "owner@example.com", "pw")


@pytest.fixture
def stranger():
    return User.objects.create_user("stranger", "stranger@example.com", "pw")


@pytest.fixture
def page(owner):
    browser = Client(headers={"accept-language": "ko"})
    browser.force_login(owner)
    return browser


@pytest.fixture
def api(owner):
    one = APIClient()
    one.force_authenticate(owner)
    return one


@pytest.fixture
def allergy(owner):
    return keep(owner, "allergy", "땅콩", "땅콩", sentence="저는 땅콩 알레르기가 있어요.")


@pytest.fixture
def proposal(owner, allergy):
    return keep(owner, "allergy", "땅콩", "땅콩", status="proposed", effect="end", replaces=allergy)


def keep(owner, kind, key, value, **fields):
    return ProfileSlot.objects.create(
        owner=owner, kind=kind, key=key, value=value, noted_at=timezone.now(), **fields
    )


def read_page(page):
    return page.get(PAGE).content.decode()


# The page


def test_the_page_shows_what_is_known_by_kind_with_the_sentence_it_comes_from(page, allergy):
    text = read_page(page)
    assert "알레르기" in text
    assert "저는 땅콩 알레르기가 있어요." in text


def test_a_proposal_stands_first_and_is_settled_by_a_tap(page, proposal, allergy):
    assert "이제 ‘땅콩’은(는) 해당하지 않나요?" in read_page(page)
    page.post(f"{PAGE}/{proposal.pk}", {"do": "no"})
    assert [(one.status, one.value) for one in ProfileSlot.objects.all()] == [("active", "땅콩")]


def test_a_proposal_that_is_confirmed_ends_what_was_known_and_keeps_its_history(
    page, proposal, allergy
):
    page.post(f"{PAGE}/{proposal.pk}", {"do": "yes"})
    (slot,) = ProfileSlot.objects.all()
    assert (slot.pk, slot.status) == (allergy.pk, "past")
    assert [entry["status"] for entry in slot.history] == ["active"]


def test_a_value_is_corrected_by_hand(page, allergy):
    page.post(f"{PAGE}/{allergy.pk}", {"do": "edit", "value": "호두", "unit": ""})
    allergy.refresh_from_db()
    assert (allergy.value, allergy.history[0]["value"]) == ("호두", "땅콩")


def test_one_thing_or_everything_is_forgotten(page, owner, allergy):
    keep(owner, "fact", "서버", "A동")
    page.post(f"{PAGE}/{allergy.pk}", {"do": "forget"})
    assert [slot.key for slot in ProfileSlot.objects.all()] == ["서버"]
    page.post(f"{PAGE}/forget")
    assert not ProfileSlot.objects.exists()


def test_something_is_added_by_hand(page):
    page.post(f"{PAGE}/add", {"kind": "fact", "key": "서버", "value": "A동"})
    assert "A동" in read_page(page)


def test_memory_is_switched_off_and_on(page):
    page.post(f"{PAGE}/switch", {"enabled": "false"})
    assert "기억하기가 꺼져 있습니다" in read_page(page)
    page.post(f"{PAGE}/switch", {"enabled": "true"})
    assert "기억하기가 꺼져 있습니다" not in read_page(page)


def test_the_page_of_another_user_shows_nothing_and_changes_nothing(stranger, allergy):
    other = Client()
    other.force_login(stranger)
    assert "땅콩" not in read_page(other)
    assert other.post(f"{PAGE}/{allergy.pk}", {"do": "forget"}).status_code == 404
    other.post(f"{PAGE}/forget")
    assert ProfileSlot.objects.filter(pk=allergy.pk).exists()


# Over REST


def test_slots_are_listed_with_their_source_and_history(api, allergy):
    told = api.get(API).data
    assert (told["count"], told["enabled"]) == (1, True)
    (slot,) = told["results"]
    assert {"id", "kind", "key", "value", "status", "sentence", "history"} <= set(slot)
    assert slot["sentence"] == "저는 땅콩 알레르기가 있어요."


def test_what_waits_is_listed_by_its_status(api, proposal):
    assert [one["id"] for one in api.get(API, {"status": "proposed"}).data["results"]] == [
        proposal.pk
    ]


def test_a_slot_is_made_changed_and_forgotten(api):
    made = api.post(API, {"kind": "fact", "key": "서버", "value": "A동"}, format="json")
    assert made.status_code == 201
    one = f"{API}/{made.data['id']}"
    assert api.patch(one, {"value": "B동"}, format="json").data["value"] == "B동"
    assert api.delete(one).status_code == 204
    assert api.get(API).data["count"] == 0


def test_a_kind_that_is_not_remembered_here_is_refused(api):
    made = api.post(API, {"kind": "shoe", "key": "size", "value": "42"}, format="json")
    assert made.status_code == 400


def test_a_proposal_is_confirmed_or_rejected(api, proposal, allergy):
    path = f"{API}/{proposal.pk}/confirm"
    held = api.post(path, {"accept": False}, format="json")
    assert (held.data["id"], held.data["status"]) == (allergy.pk, "active")
    assert api.post(path, {"accept": True}, format="json").status_code == 404


def test_memory_is_switched_and_emptied_over_rest(api, allergy):
    assert api.patch(API, {"enabled": False}, format="json").data == {"enabled": False}
    assert api.get(API).data["enabled"] is False
    assert api.delete(API).status_code == 204
    assert not ProfileSlot.objects.exists()


def test_all_of_it_is_one_file(api, allergy):
    file = api.get(f"{API}/export")
    assert "attachment" in file["Content-Disposition"]
    assert file.json()["slots"][0]["value"] == "땅콩"


def test_a_stranger_finds_no_slot_of_somebody_else(stranger, allergy):
    other = APIClient()
    other.force_authenticate(stranger)
    one = f"{API}/{allergy.pk}"
    assert other.patch(one, {"value": "x"}, format="json").status_code == 404
    assert other.delete(one).status_code == 404
    assert other.post(f"{one}/confirm", {"accept": True}, format="json").status_code == 404
    assert other.get(API).data["count"] == 0
    assert other.get(f"{API}/export").json()["slots"] == []


# Chats


def test_a_chat_says_whether_it_uses_memory(api):
    made = api.post("/api/v1/chats", {"use_memory": False}, format="json").data
    assert (made["use_memory"], made["temporary"]) == (False, False)
    changed = api.patch(f"/api/v1/chats/{made['id']}", {"use_memory": True}, format="json")
    assert changed.data["use_memory"] is True


def test_a_temporary_chat_stands_in_no_list_and_goes_for_good(api):
    made = api.post("/api/v1/chats", {"temporary": True}, format="json").data
    assert made["temporary"] is True
    assert api.get("/api/v1/chats").data["count"] == 0
    assert api.get(f"/api/v1/chats/{made['id']}").status_code == 200
    assert delete_idle_chats() == 0, "it is in use"
    Chat.objects.update(updated_at=timezone.now() - timedelta(days=2))
    purge_chats()
    assert not Chat.objects.exists()
