"""Lists of people to invite: tried first, told line by line, hostile ones refused."""

import csv
import re
from io import StringIO

import pytest
from django.contrib.auth.models import Group, User
from django.core import mail
from django.core.cache import cache
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from nura.accounts.roles import AccountRole, set_role
from nura.accounts.signup import create_invitation, read_invitation_list, withdraw_invitation
from nura.models import Invitation
from tests.nura.accounts.conftest import PASSWORD

pytestmark = pytest.mark.django_db
ADDRESS = "/admin/invite-list/"
LIST = "이메일,이름,그룹\nhana@example.com,김하나,인사팀;재무팀\ndul@example.com,,\n"


@pytest.fixture(autouse=True)
def groups():
    return [Group.objects.create(name=name) for name in ("인사팀", "재무팀")]


@pytest.fixture
def browser():
    head = User.objects.create_user("head", "head@example.com")
    set_role(user=head, role=AccountRole.ADMINISTRATOR)
    browser = Client()
    browser.cookies["django_language"] = "en"
    browser.force_login(head)
    return browser


def try_list(browser, text):
    content = text if isinstance(text, bytes) else text.encode()
    return browser.post(ADDRESS, {"file": SimpleUploadedFile("people.csv", content)})


def invite(browser, page, days="7"):
    tried = re.search(r'name="tried" value="([^"]+)"', page.content.decode())[1]
    return browser.post(ADDRESS, {"tried": tried, "days": days}, follow=True)


def download_links(browser, page):
    address = re.search(r'href="([^"]+/links/)"', page.content.decode())[1]
    file = browser.get(address)
    assert file["Content-Disposition"] == 'attachment; filename="invitations.csv"'
    return list(csv.DictReader(StringIO(file.content.decode("utf-8-sig"))))


def find_problems(text):
    content = text if isinstance(text, bytes) else text.encode()
    return dict(read_invitation_list(content).errors)


def test_a_list_is_tried_without_inviting_anybody(browser):
    page = try_list(browser, LIST).content.decode()
    assert "2 people can be invited" in page
    assert "김하나" in page
    assert not Invitation.objects.exists()


def test_the_links_of_a_list_are_downloaded_and_work(browser):
    rows = download_links(browser, invite(browser, try_list(browser, LIST)))
    assert [row["email"] for row in rows] == ["hana@example.com", "dul@example.com"]
    visitor = Client()
    visitor.get(rows[0]["link"].removeprefix("http://testserver"))
    page = visitor.get("/accounts/signup/").content.decode()
    assert 'value="김하나"' in page
    form = {"username": "hana", "password1": PASSWORD, "password2": PASSWORD}
    visitor.post("/accounts/signup/", form | {"email": "x@example.com"})
    user = User.objects.get(username="hana")
    assert user.email == "hana@example.com"
    assert user.first_name == "김하나"
    assert {group.name for group in user.groups.all()} == {"인사팀", "재무팀"}


def test_the_page_says_what_was_done_and_its_links_are_downloaded_again(browser):
    done = invite(browser, try_list(browser, LIST))
    assert "2 people have been invited" in done.content.decode()
    assert "2 invitations were not sent by e-mail" in done.content.decode()
    assert download_links(browser, done) == download_links(browser, done)


def test_who_presses_twice_invites_once_and_sees_what_was_done(browser):
    page = try_list(browser, LIST)
    first, second = invite(browser, page), invite(browser, page)
    assert Invitation.objects.count() == 2
    assert second.redirect_chain == first.redirect_chain
    assert "2 people have been invited" in second.content.decode()
    assert download_links(browser, second) == download_links(browser, first)


def test_the_links_are_kept_encrypted_and_for_a_while(browser, monkeypatch):
    kept = {}
    store = cache.set
    monkeypatch.setattr(cache, "set", lambda *values: kept.update(store=values) or store(*values))
    done = invite(browser, try_list(browser, LIST))
    key, value, seconds = kept["store"]
    assert seconds == 1800
    assert "/invitations/" not in str(value)
    cache.delete(key)
    gone = browser.get(done.redirect_chain[0][0], follow=True).content.decode()
    assert "The links are no longer available." in gone


def test_the_links_are_for_who_made_them_alone(browser):
    done = invite(browser, try_list(browser, LIST))
    address = done.redirect_chain[0][0]
    others = {"other": AccountRole.ADMINISTRATOR, "auditor": AccountRole.AUDITOR, "stranger": None}
    for name, role in others.items():
        user = User.objects.create_user(name)
        if role:
            set_role(user=user, role=role)
        client = Client()
        client.force_login(user)
        for path in (address, f"{address}links/"):
            answer = client.get(path, follow=True)
            assert "2 people have been invited" not in answer.content.decode()
            assert "/invitations/" not in answer.content.decode()
            assert "Content-Disposition" not in answer


def test_who_has_an_open_invitation_is_named_and_not_invited_again(browser):
    invite(browser, try_list(browser, LIST))
    assert set(find_problems(LIST)) == {2, 3}
    page = try_list(browser, LIST).content.decode()
    assert page.count("Already invited, until") == 2
    withdraw_invitation(invitation=Invitation.objects.get(email="dul@example.com"), by=None)
    assert set(find_problems(LIST)) == {2}


def test_who_was_invited_since_the_check_is_left_out_and_counted(browser):
    page = try_list(browser, LIST)
    create_invitation(by=None, email="dul@example.com")
    done = invite(browser, page).content.decode()
    assert "1 person has been invited" in done
    assert "1 person has been invited or has got an account in the meantime" in done
    assert Invitation.objects.count() == 2


def test_a_list_is_invited_by_who_tried_it_alone(browser):
    page = try_list(browser, LIST)
    other = User.objects.create_user("other")
    set_role(user=other, role=AccountRole.ADMINISTRATOR)
    second = Client()
    second.force_login(other)
    invite(second, page)
    assert not Invitation.objects.exists()


def test_each_gets_a_mail_where_mail_works(browser, settings):
    settings.EMAIL_BACKEND, settings.MAIL_WORKS = (
        "django.core.mail.backends.locmem.EmailBackend",
        True,
    )
    done = invite(browser, try_list(browser, LIST)).content.decode()
    assert "2 invitations were sent by e-mail." in done
    assert "not sent by e-mail" not in done
    assert {one.to[0] for one in mail.outbox} == {"hana@example.com", "dul@example.com"}


def test_what_is_wrong_is_told_with_the_number_of_its_line(browser):
    User.objects.create_user("known", "known@example.com")
    text = (
        "email;name;groups\n"
        "no address;;\n"
        "known@example.com;;\n"
        "a@example.com;;없는 팀\n"
        "\n"
        "b@example.com;=cmd|' /C calc'!A0;\n"
        "b@example.com;;\n"
        "c@example.com;аdmin;\n"
        "d@example.com;괜찮은이름;인사팀\n"
    )
    assert set(find_problems(text)) == {2, 3, 4, 6, 7, 8}
    assert "없는 팀" in find_problems(text)[4]
    page = try_list(browser, text).content.decode()
    assert "1 person can be invited" in page


def test_groups_that_do_not_exist_are_named_once_with_the_way_to_create_them(browser):
    text = "email,groups\na@example.com,영업팀\nb@example.com,인사팀;영업팀\nc@example.com,법무팀\n"
    page = try_list(browser, text).content.decode()
    assert "These groups do not exist: 법무팀, 영업팀. Create them, then check the list" in page
    section = page[page.index('aria-labelledby="errors"') :]
    assert 'href="/admin/auth/group/"' in section
    for name in ("법무팀", "영업팀"):
        Group.objects.create(name=name)
    page = try_list(browser, text).content.decode()
    assert "not exist" not in page
    assert "3 people can be invited" in page


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp949"])
def test_korean_is_read_as_excel_saves_it(encoding):
    found = read_invitation_list(LIST.encode(encoding))
    assert found.people[0].name == "김하나"
    assert not found.errors


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00\x01" * 10,
        b"email\n\x00",
        b"name,groups\nkim,x\n",
        b'email\n"' + b"a" * 200_000,
        b"email\n" + b"x@example.com\n" * 100_000,
        b"email\n" + b"a" * 3_000_000,
        "email\n".encode("utf-16"),
    ],
    ids=["empty", "binary", "nul", "no column", "huge cell", "100,000 lines", "3 MB", "utf-16"],
)
def test_a_file_that_is_no_list_is_refused_in_words(content, browser):
    found = read_invitation_list(content)
    assert not found.people
    assert found.errors
    assert not Invitation.objects.exists()


def test_a_list_of_two_thousand_is_taken_whole():
    lines = "".join(f"p{number}@example.com\n" for number in range(2000))
    assert len(read_invitation_list(f"email\n{lines}".encode()).people) == 2000


def test_of_many_errors_a_hundred_are_told_and_the_others_counted():
    found = read_invitation_list(b"email\n" + b"wrong\n" * 300)
    assert (len(found.errors), found.left_out) == (100, 200)


def test_nobody_else_invites_a_list():
    for name in ("stranger", "auditor"):
        user = User.objects.create_user(name)
        if name == "auditor":
            set_role(user=user, role=AccountRole.AUDITOR)
        other = Client()
        other.force_login(user)
        assert try_list(other, LIST).status_code in {302, 403}
    assert not Invitation.objects.exists()
