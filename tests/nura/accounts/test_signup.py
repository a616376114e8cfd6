"""Who may sign up: by invitation, in the open, or nobody; and what names may be taken."""

import re
from datetime import timedelta
from io import StringIO

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import Group, User
from django.core import mail
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from documents.audit import AuditEvent
from nura.accounts.deletion import delete_account
from nura.accounts.signup import build_path, create_invitation, withdraw_invitation
from nura.models import Invitation
from nura.retention import purge
from tests.nura.accounts.conftest import PASSWORD

pytestmark = pytest.mark.django_db


def make_form(name="hana", email="hana@example.com"):
    return {"username": name, "email": email, "password1": PASSWORD, "password2": PASSWORD}


def sign_up(browser, **given):
    return browser.post("/accounts/signup/", make_form(**given))


def invite(**given):
    """A browser that has opened a new invitation."""
    invitation, secret = create_invitation(by=None, **given)
    browser = Client()
    browser.get(build_path(secret))
    return browser, invitation, secret


def sign_in_twice():
    """A browser whose owner has just shown the password again."""
    browser = Client()
    browser.post("/accounts/login/", {"login": "minsu", "password": PASSWORD})
    browser.post("/accounts/reauthenticate/", {"password": PASSWORD})
    return browser


@pytest.fixture
def open_to_all(settings):
    settings.SIGNUP = "open"


@pytest.fixture
def mail_works(settings):
    settings.MAIL_WORKS, settings.ACCOUNT_EMAIL_VERIFICATION = True, "mandatory"


def test_a_new_installation_takes_nobody_without_an_invitation(client):
    assert sign_up(client).status_code == 200
    assert not User.objects.exists()
    assert "가입" in client.get("/accounts/signup/").content.decode()


def test_an_invitation_makes_one_account_and_no_second_one():
    browser, invitation, secret = invite()
    assert sign_up(browser).url == "/"
    invitation.refresh_from_db()
    assert invitation.used_by.username == "hana"
    other = Client()
    other.get(build_path(secret))
    sign_up(other, name="dul", email="dul@example.com")
    assert [user.username for user in User.objects.all()] == ["hana"]


def test_of_two_who_opened_one_invitation_the_first_gets_the_account():
    first, _invitation, secret = invite()
    second = Client()
    second.get(build_path(secret))
    sign_up(first)
    assert sign_up(second, name="dul", email="dul@example.com").status_code in {200, 302}
    assert User.objects.count() == 1


def test_the_secret_of_an_invitation_is_not_stored():
    _browser, invitation, secret = invite()
    assert secret not in str(Invitation.objects.filter(pk=invitation.pk).values())
    assert len(secret) >= 40


@pytest.mark.parametrize("end", ["expired", "withdrawn", "made up", "closed"])
def test_an_invitation_that_holds_no_longer_lets_nobody_in(end, settings):
    browser, invitation, _secret = invite()
    if end == "expired":
        past = timezone.now() - timedelta(seconds=1)
        Invitation.objects.update(expires_at=past)
    elif end == "withdrawn":
        assert withdraw_invitation(invitation=invitation, by=None)
    elif end == "closed":
        settings.SIGNUP = "closed"
    else:
        browser = Client()
        browser.get("/invitations/made-up")
    sign_up(browser)
    assert not User.objects.exists()


def test_an_invitation_for_an_address_gives_the_account_that_address():
    browser, _invitation, _secret = invite(email="Hana@Example.com")
    sign_up(browser, email="somebody@else.example")
    assert User.objects.get().email == "hana@example.com"


def join_by(secret, name):
    browser = Client()
    browser.get(build_path(secret))
    return sign_up(browser, name=name, email=f"{name}@example.com")


def test_one_link_makes_as_many_accounts_as_it_says_and_no_more():
    invitation, secret = create_invitation(by=None, max_uses=5)
    for number in range(7):
        join_by(secret, f"person{number}")
    assert User.objects.count() == 5
    invitation.refresh_from_db()
    assert (invitation.uses, invitation.used_by) == (5, User.objects.get(username="person4"))
    assert not Invitation.objects.open().exists()


def test_who_joins_by_a_link_joins_its_groups_and_that_is_written_down():
    groups = [Group.objects.create(name=name) for name in ("인사팀", "재무팀", "다른 팀")]
    _invitation, secret = create_invitation(by=None, max_uses=2, groups=groups[:2])
    for name in ("hana", "dul"):
        join_by(secret, name)
        user = User.objects.get(username=name)
        assert set(user.groups.all()) == set(groups[:2])
        rights = AuditEvent.objects.filter(action="rights_changed", subject_id=user.pk)
        assert {entry.details["group"] for entry in rights} == {"인사팀", "재무팀"}


def test_a_link_of_several_outlives_the_account_that_used_it():
    _invitation, secret = create_invitation(by=None, max_uses=2)
    join_by(secret, "hana")
    delete_account(user=User.objects.get())
    join_by(secret, "dul")
    assert User.objects.get().username == "dul"


def test_an_address_is_invited_once():
    invitation, _secret = create_invitation(by=None, email="hana@example.com", max_uses=5)
    assert invitation.max_uses == 1


def test_the_command_makes_a_link_of_several_for_groups():
    Group.objects.create(name="인사팀")
    out = StringIO()
    call_command("invite", "--uses", "5", "--group", "인사팀", stdout=out)
    invitation = Invitation.objects.get()
    assert invitation.max_uses == 5
    assert [group.name for group in invitation.groups.all()] == ["인사팀"]
    with pytest.raises(CommandError, match="없는 팀"):
        call_command("invite", "--group", "없는 팀", stdout=StringIO())


def test_a_made_up_link_is_answered_as_one_that_was_used():
    def answer(secret):
        browser = Client()
        page = browser.get(f"/invitations/{secret}", follow=True)
        return page.redirect_chain, re.sub(r'(nonce|value)="[^"]+"', "", page.content.decode())

    browser, _invitation, secret = invite()
    sign_up(browser)
    assert answer(secret) == answer("made-up")


def test_the_command_prints_a_link_that_works():
    out = StringIO()
    call_command("invite", "--url", "https://nura.example.com/", stdout=out)
    link = out.getvalue().strip()
    assert link.startswith("https://nura.example.com/invitations/")
    browser = Client()
    browser.get(link.removeprefix("https://nura.example.com"))
    assert sign_up(browser).url == "/"


def test_invitations_and_what_comes_of_them_are_in_the_audit_log():
    browser, invitation, _secret = invite()
    sign_up(browser)
    written = AuditEvent.objects.order_by("pk").values_list("action", "target", "subject_name")
    assert ("invitation_changed", f"invitation:{invitation.pk}", "") in written
    assert ("account_created", "", "hana") in written


@pytest.mark.parametrize(
    "options",
    [
        ("--days", "0"),
        ("--email", "x"),
        ("--mail",),
        ("--uses", "0"),
        ("--email", "a@b.kr", "--uses", "2"),
    ],
)
def test_the_command_refuses_what_cannot_be(options):
    with pytest.raises(CommandError):
        call_command("invite", *options, stdout=StringIO())
    assert not Invitation.objects.exists()


def test_staff_make_an_invitation_in_the_administration(client, minsu):
    User.objects.update(is_staff=True, is_superuser=True)
    client.force_login(minsu)
    page = client.post(
        "/admin/nura/invitation/add/", {"email": "", "days": "3", "max_uses": "1"}, follow=True
    )
    link = re.search(r"http://testserver(/invitations/[\w-]+)", page.content.decode())[1]
    assert Invitation.objects.get().created_by == minsu
    browser = Client()
    browser.get(link)
    assert sign_up(browser).url == "/"
    assert link not in client.get("/admin/nura/invitation/").content.decode()


def test_the_page_of_an_invitation_shows_what_has_become_of_it(client, minsu):
    User.objects.update(is_staff=True, is_superuser=True)
    client.force_login(minsu)
    invitation, _secret = create_invitation(by=minsu, days=3, max_uses=2)
    page = client.get(f"/admin/nura/invitation/{invitation.pk}/change/").content.decode()
    assert "0 / 2" in page
    assert str(Invitation._meta.get_field("expires_at").verbose_name) in page
    assert ">Days<" not in " ".join(page.split()).replace("> ", ">").replace(" <", "<")


def test_who_is_no_staff_makes_no_invitation(minsus_client):
    minsus_client.post("/admin/nura/invitation/add/", {"email": "", "days": "3", "max_uses": "1"})
    assert not Invitation.objects.exists()


def test_an_open_installation_takes_everybody(client, open_to_all):
    assert sign_up(client).url == "/"


def test_sign_up_says_who_can_see_conversations(client, open_to_all):
    assert "감사 로그" in client.get("/accounts/signup/").content.decode()


LOOK_ALIKES = [
    "аlice",  # the first letter is Cyrillic
    "аӏісе",  # all of them are
    "ɑlice",
    "αdmin",
    "Ωmega",
    "김ādmіn",
    "aㅣice",
    "ali\u200bce",
    "a\u0335lice",
    "\u202eecila",
]
HONEST = [
    "alice",
    "김민수",
    "kim민수",
    "minsu.kim-2",
    "山田太郎",
    "мария",
    "Ελένη",
    "josé",
    "하나_1",
]


@pytest.mark.parametrize("name", LOOK_ALIKES, ids=ascii)
def test_a_name_that_looks_like_another_is_refused_everywhere(client, open_to_all, minsu, name):
    page = sign_up(client, name=name)
    assert page.status_code == 200
    assert "errorlist" in page.content.decode()
    with pytest.raises(CommandError):
        call_command("create_user", name, "--password", PASSWORD, stdout=StringIO())
    User.objects.filter(pk=minsu.pk).update(is_staff=True, is_superuser=True)
    client.force_login(minsu)
    form = {"username": name, "password1": PASSWORD, "password2": PASSWORD}
    client.post("/admin/auth/user/add/", form | {"usable_password": "true"})
    form = {"username": name, "email": ""}
    form |= {"quota_rules-TOTAL_FORMS": 0, "quota_rules-INITIAL_FORMS": 0}
    client.post(f"/admin/auth/user/{minsu.pk}/change/", form)
    assert [user.username for user in User.objects.all()] == ["minsu"]


@pytest.mark.parametrize("name", HONEST)
def test_names_of_one_script_are_taken(client, open_to_all, name):
    sign_up(client, name=name)
    assert User.objects.get().username == name


def test_a_new_address_is_confirmed_before_the_first_sign_in(client, open_to_all, mail_works):
    assert sign_up(client).url == "/accounts/confirm-email/"
    assert "_auth_user_id" not in client.session
    again = client.post("/accounts/login/", {"login": "hana", "password": PASSWORD})
    assert again.url == "/accounts/confirm-email/"
    link = re.search(r"http://testserver(/accounts/confirm-email/\S+)", mail.outbox[0].body)[1]
    assert "hana@example.com" in client.get(link).content.decode()
    client.post(link)
    assert EmailAddress.objects.get().verified
    signed_in = client.post("/accounts/login/", {"login": "hana", "password": PASSWORD})
    assert signed_in.url == "/"


def test_an_account_from_before_there_was_mail_signs_in_as_ever(client, minsu, mail_works):
    answer = client.post("/accounts/login/", {"login": "minsu", "password": PASSWORD})
    assert answer.url == "/"


def test_an_invitation_by_mail_proves_the_address(mail_works):
    call_command("invite", "--email", "hana@example.com", "--mail", stdout=StringIO())
    path = re.search(r"(/invitations/\S+)", mail.outbox[0].body)[1]
    browser = Client()
    browser.get(path)
    assert sign_up(browser).url == "/"
    assert EmailAddress.objects.get().verified


def test_a_sign_up_that_nobody_confirms_ends_after_a_week(client, open_to_all, mail_works, minsu):
    sign_up(client)
    assert purge()["signups"] == 0
    User.objects.update(date_joined=timezone.now() - timedelta(days=8))
    assert purge(dry_run=True)["signups"] == 1
    assert purge()["signups"] == 1
    assert User.objects.get() == minsu


@pytest.mark.parametrize("taken", [{"name": "minsu"}, {"email": "minsu@example.com"}])
def test_where_mail_works_what_is_taken_is_answered_as_what_is_free(
    open_to_all, mail_works, minsu, taken
):
    def answer(**given):
        browser = Client()
        response = sign_up(browser, **given)
        page = browser.get(response.url).content.decode()
        page = re.sub(r'(nonce|value)="[^"]+"|\w+@example.com', "", page)
        return response.status_code, response.url, page

    free = {"name": "dul", "email": "dul@example.com"}
    assert answer(**free | taken) == answer(name="set", email="set@example.com")
    assert User.objects.count() == 2
    assert len(mail.outbox) == 2


def test_the_mail_tells_that_a_name_is_taken(client, open_to_all, mail_works, minsu):
    sign_up(client, name="minsu")
    assert mail.outbox[0].to == ["hana@example.com"]
    assert "아이디" in mail.outbox[0].body
    assert "minsu@" not in mail.outbox[0].body


def test_without_an_invitation_a_closed_sign_up_answers_alike(minsu):
    def answer(**given):
        response = sign_up(Client(), **given)
        return response.status_code, re.sub(r'(nonce|value)="[^"]+"', "", response.content.decode())

    assert answer(name="minsu", email="minsu@example.com") == answer()


def test_a_new_address_takes_the_place_of_the_old_one_once_confirmed(minsu, mail_works):
    browser = sign_in_twice()
    EmailAddress.objects.create(user=minsu, email=minsu.email, verified=True, primary=True)
    browser.post("/settings/email", {"email": "new@example.com"})
    minsu.refresh_from_db()
    assert minsu.email == "minsu@example.com"
    confirm = next(one for one in mail.outbox if one.to == ["new@example.com"])
    browser.post(re.search(r"http://testserver(/accounts/confirm-email/\S+)", confirm.body)[1])
    minsu.refresh_from_db()
    assert minsu.email == "new@example.com"
    assert any(one.to == ["minsu@example.com"] for one in mail.outbox)


def test_without_mail_an_address_is_changed_at_once(minsu):
    browser = sign_in_twice()
    browser.post("/settings/email", {"email": "new@example.com"})
    minsu.refresh_from_db()
    assert minsu.email == "new@example.com"
    assert not mail.outbox


def test_an_address_is_changed_only_by_who_has_just_shown_the_password(minsus_client, minsu):
    answer = minsus_client.post("/settings/email", {"email": "new@example.com"})
    assert answer.url.startswith("/accounts/reauthenticate/")
    minsu.refresh_from_db()
    assert minsu.email == "minsu@example.com"
