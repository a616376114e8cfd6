"""Lists of people to invite: tried first, told line by line, hostile ones refused."""

import csv
import re
from io import StringIO

import pytest
from django.contrib.auth.models import Group, User
from django.core import mail
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from nura.accounts.roles import AccountRole, set_role
from nura.accounts.signup import read_invitation_list
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
    return browser.post(ADDRESS, {"tried": tried, "days": days})


def find_links(answer):
    return list(csv.DictReader(StringIO(answer.content.decode("utf-8-sig"))))


def find_problems(text):
    content = text if isinstance(text, bytes) else text.encode()
    return dict(read_invitation_list(content).errors)


def test_a_list_is_tried_without_inviting_anybody(browser):
    page = try_list(browser, LIST).content.decode()
    assert "2 people can be invited" in page
    assert "김하나" in page
    assert not Invitation.objects.exists()


def test_the_links_of_a_list_are_downloaded_and_work(browser):
    rows = find_links(invite(browser, try_list(browser, LIST)))
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


def test_who_presses_twice_invites_once(browser):
    page = try_list(browser, LIST)
    invite(browser, page)
    assert invite(browser, page).status_code == 302
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
    invite(browser, try_list(browser, LIST))
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
