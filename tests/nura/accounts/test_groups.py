"""Groups: kept by hand or by a directory, and what is written down of who comes and goes."""

import re

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from documents.audit import Action, AuditEvent
from nura.accounts.roles import AccountRole, change_memberships, set_role, sync_directory_groups
from nura.models import GroupDetails

pytestmark = pytest.mark.django_db


@pytest.fixture
def browser():
    head = User.objects.create_user("head")
    set_role(user=head, role=AccountRole.ADMINISTRATOR)
    browser = Client()
    browser.cookies["django_language"] = "en"
    browser.force_login(head)
    return browser


@pytest.fixture
def minsu():
    return User.objects.create_user("minsu")


def make(name, directory_name=""):
    group = Group.objects.create(name=name)
    GroupDetails.objects.create(group=group, directory_name=directory_name)
    return group


def to_form(group=None, members=(), gone=(), **fields):
    """The form of a group; `members` are new ones, `gone` rows of those that leave."""
    rows = [*gone, *members]
    made = group and GroupDetails.objects.filter(pk=group.pk).exists()
    form = {
        "name": group.name if group else "인사팀",
        "details-TOTAL_FORMS": 1,
        "details-INITIAL_FORMS": 1 if made else 0,
        "details-0-group": group.pk if group else "",
        "details-0-description": "",
        "details-0-directory_name": "",
        "quota_rules-TOTAL_FORMS": 0,
        "quota_rules-INITIAL_FORMS": 0,
        "User_groups-TOTAL_FORMS": len(rows),
        "User_groups-INITIAL_FORMS": len(gone),
    }
    for number, row in enumerate(rows):
        name = f"User_groups-{number}"
        form |= {f"{name}-group": group.pk if group else ""}
        if row in gone:
            form |= {f"{name}-id": row.pk, f"{name}-user": row.user_id, f"{name}-DELETE": "on"}
        else:
            form |= {f"{name}-id": "", f"{name}-user": row.pk}
    return form | fields


def list_memberships():
    entries = AuditEvent.objects.filter(action=Action.RIGHTS_CHANGED, details__has_key="group")
    return [
        (one.subject_name, one.details["group"], one.details["member"])
        for one in entries.order_by("pk")
    ]


def test_an_administrator_makes_a_group_and_changes_its_members(browser, minsu):
    added = browser.post("/admin/auth/group/add/", to_form(members=[minsu]))
    assert added.status_code == 302, added.context["errors"]
    group = Group.objects.get()
    assert list(group.user_set.all()) == [minsu]
    rows = list(User.groups.through.objects.all())
    address = f"/admin/auth/group/{group.pk}/change/"
    assert browser.post(address, to_form(group, gone=rows)).status_code == 302
    assert not group.user_set.exists()
    assert list_memberships() == [("minsu", "인사팀", True), ("minsu", "인사팀", False)]


def test_the_page_of_a_group_is_korean(browser):
    browser.cookies["django_language"] = "ko"
    page = browser.get("/admin/auth/group/add/").content.decode()
    assert "구성원" in page
    assert ">User" not in re.sub(r"\s+", "", page)


def test_the_page_of_an_account_changes_its_groups(browser, minsu):
    one, two = make("하나"), make("둘")
    minsu.groups.add(one)
    form = {"username": "minsu", "is_active": "on", "groups": [two.pk]}
    form |= {"quota_rules-TOTAL_FORMS": 0, "quota_rules-INITIAL_FORMS": 0}
    assert browser.post(f"/admin/auth/user/{minsu.pk}/change/", form).status_code == 302
    assert list(minsu.groups.all()) == [two]
    assert set(list_memberships()) == {("minsu", "둘", True), ("minsu", "하나", False)}


def test_a_group_that_is_deleted_is_left_by_all(browser, minsu):
    group = make("하나")
    change_memberships(user=minsu, join=[group])
    browser.post(f"/admin/auth/group/{group.pk}/delete/", {"post": "yes"})
    assert not Group.objects.exists()
    assert list_memberships()[-1] == ("minsu", "하나", False)


def test_two_groups_have_not_the_same_name_in_the_directory(browser):
    make("하나", "HR")
    page = browser.post("/admin/auth/group/add/", to_form(**{"details-0-directory_name": "hr"}))
    assert "Another group has this name in the directory" in page.content.decode()


def test_a_directory_moves_people_in_its_own_groups_alone(minsu):
    ours, theirs, also = make("손으로"), make("인사팀", "HR-Team"), make("재무팀", "finance")
    change_memberships(user=minsu, join=[ours, also])
    sync_directory_groups(user=minsu, names=["hr-team", "unknown"], source="oidc")
    assert set(minsu.groups.all()) == {ours, theirs}


def test_who_is_in_the_group_already_joins_silently(minsu):
    group = make("하나")
    for _ in range(2):
        change_memberships(user=minsu, join=[group])
    assert list_memberships() == [("minsu", "하나", True)]


def test_an_auditor_and_a_stranger_see_no_groups(minsu):
    group = make("하나")
    auditor = User.objects.create_user("auditor")
    set_role(user=auditor, role=AccountRole.AUDITOR)
    for user, status in ((auditor, 403), (minsu, 302)):
        browser = Client()
        browser.force_login(user)
        for address in ("/admin/auth/group/", f"/admin/auth/group/{group.pk}/change/"):
            assert browser.get(address).status_code == status


def test_a_member_cannot_be_written_over_by_another_one(browser, minsu):
    group = make("인사팀")
    change_memberships(user=minsu, join=[group])
    row = User.groups.through.objects.get()
    other = User.objects.create_user("other")
    form = to_form(group, gone=[row], **{"User_groups-0-user": other.pk})
    del form["User_groups-0-DELETE"]
    browser.post(f"/admin/auth/group/{group.pk}/change/", form)
    assert list(group.user_set.all()) == [minsu]
    assert list_memberships() == [("minsu", "인사팀", True)]
    assert "minsu" in browser.get(f"/admin/auth/group/{group.pk}/change/").content.decode()
