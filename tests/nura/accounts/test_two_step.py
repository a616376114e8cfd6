"""Two-step sign-in: an app's codes, recovery codes, and what is closed before the second step."""

import re
import time

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import TOTP, format_hotp_value, hotp_value
from django.core.cache import cache
from django.test import Client

from chats.access import Credential, find_principals
from documents.audit import AuditEvent
from tests.nura.accounts.conftest import PASSWORD

pytestmark = pytest.mark.django_db


def make_code(user):
    secret = Authenticator.objects.get(user=user, type="totp")
    key = TOTP(secret).instance.data["secret"]
    from nura.accounts.profile import MFAAdapter

    plain = MFAAdapter().decrypt(key)
    cache.clear()  # a code counts once: this test signs in more often than every 30 seconds
    return format_hotp_value(hotp_value(plain, int(time.time()) // 30))


def sign_in(name="minsu"):
    browser = Client()
    return browser, browser.post("/accounts/login/", {"login": name, "password": PASSWORD})


def turn_on():
    """A browser of Minsu's in which he has set up an app."""
    browser, _answer = sign_in()
    browser.post("/accounts/reauthenticate/", {"password": PASSWORD})
    page = browser.get("/accounts/2fa/totp/activate/").content.decode()
    secret = re.search(r"<pre>(\w+)</pre>", page)[1]
    code = format_hotp_value(hotp_value(secret, int(time.time()) // 30))
    assert browser.post("/accounts/2fa/totp/activate/", {"code": code}).status_code == 302
    return browser


@pytest.fixture
def protected(minsu):
    turn_on()
    return minsu


def test_the_password_alone_lets_nobody_in(protected):
    browser, answer = sign_in()
    assert answer.url == "/accounts/2fa/authenticate/"
    assert browser.get("/settings/profile").status_code == 302
    assert browser.get("/api/v1/me").status_code in {401, 403}


def test_before_the_second_step_a_socket_is_nobodys(protected):
    browser, _answer = sign_in()
    shown = [Credential(session=browser.session.session_key)]
    assert find_principals(shown) == [None]
    browser.post("/accounts/2fa/authenticate/", {"code": make_code(protected)})
    (holder,) = find_principals([Credential(session=browser.session.session_key)])
    assert holder is not None
    assert holder.user == protected


def test_the_code_lets_in_and_a_wrong_one_does_not(protected):
    browser, _answer = sign_in()
    wrong = browser.post("/accounts/2fa/authenticate/", {"code": "000000"})
    assert "코드가 올바르지 않거나" in wrong.content.decode()
    assert browser.post("/accounts/2fa/authenticate/", {"code": make_code(protected)}).url == "/"


def test_the_second_step_has_the_code_typed_at_once_and_offers_no_passkey_that_is_not_there(
    protected,
):
    browser, _answer = sign_in()
    page = browser.get("/accounts/2fa/authenticate/").content.decode()
    field = re.search(r'<input[^>]*name="code"[^>]*>', page)[0]
    assert "autofocus" in field
    assert 'inputmode="numeric"' in field
    assert "data-passkey" not in page


def test_a_recovery_code_lets_in_once(protected):
    from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes

    kept = Authenticator.objects.get(user=protected, type="recovery_codes")
    code = RecoveryCodes(kept).get_unused_codes()[0]
    first, _answer = sign_in()
    assert first.post("/accounts/2fa/authenticate/", {"code": code}).url == "/"
    second, _answer = sign_in()
    assert second.post("/accounts/2fa/authenticate/", {"code": code}).status_code == 200


def test_a_key_for_a_password_needs_the_code_too(protected):
    def ask(**more):
        body = {"username": "minsu", "password": PASSWORD, **more}
        return Client().post("/api/v1/auth/token", body, content_type="application/json")

    assert ask().json()["code"] == "second_step_required"
    assert ask(code="000000").status_code == 401
    assert ask(code=make_code(protected)).status_code == 200


def test_the_secret_is_stored_encrypted(minsu):
    browser, _answer = sign_in()
    browser.post("/accounts/reauthenticate/", {"password": PASSWORD})
    page = browser.get("/accounts/2fa/totp/activate/").content.decode()
    secret = re.search(r"<pre>(\w+)</pre>", page)[1]
    code = format_hotp_value(hotp_value(secret, int(time.time()) // 30))
    browser.post("/accounts/2fa/totp/activate/", {"code": code})
    assert secret not in str(list(Authenticator.objects.values_list("data", flat=True)))


@pytest.mark.django_db(transaction=True)
def test_changes_are_in_the_audit_log_without_secrets(minsu):
    turn_on()
    rows = AuditEvent.objects.filter(action="second_step_changed")
    assert {row.details["change"] for row in rows} >= {"totp_activated"}
    assert not [row for row in rows if "secret" in str(row.details)]


@pytest.mark.parametrize(
    "path",
    [
        *("/accounts/2fa/totp/activate/", "/accounts/2fa/webauthn/add/"),
        "/accounts/2fa/recovery-codes/generate/",
    ],
)
def test_a_change_needs_the_password_again(minsus_client, minsu, path):
    assert minsus_client.get(path).url.startswith("/accounts/reauthenticate/")


def test_pages_of_the_second_step_are_korean(protected):
    browser = turn_on_more(protected)
    for path in (
        "/settings/two-step",
        "/accounts/2fa/totp/deactivate/",
        "/accounts/2fa/recovery-codes/",
        "/accounts/2fa/recovery-codes/generate/",
        "/accounts/2fa/webauthn/add/",
    ):
        page = browser.get(path)
        assert page.status_code == 200, path
        assert re.search("[가-힣]", page.content.decode())


def test_the_form_of_a_passkey_is_korean(protected):
    browser = turn_on_more(protected)
    label = '<label for="id_name">이름</label>'
    assert label in browser.get("/accounts/2fa/webauthn/add/").content.decode()
    key = Authenticator.objects.create(
        user=protected, type="webauthn", data={"name": "k", "credential": {}}
    )
    page = browser.get(f"/accounts/2fa/webauthn/keys/{key.pk}/edit/")
    assert label in page.content.decode()


def turn_on_more(user):
    browser, _answer = sign_in()
    browser.post("/accounts/2fa/authenticate/", {"code": make_code(user)})
    browser.post("/accounts/reauthenticate/", {"password": PASSWORD})
    return browser


def test_staff_without_a_second_step_is_kept_out_where_it_is_demanded(minsu, settings):
    minsu.is_staff = minsu.is_superuser = True
    minsu.save()
    settings.STAFF_TWO_STEP = True
    browser, _answer = sign_in()
    sent = browser.get("/admin/", follow=True)
    assert sent.redirect_chain[-1][0] == "/settings/two-step"
    assert turn_on().get("/admin/").status_code == 200


def test_the_second_step_of_another_account_is_not_there(protected, stranger):
    key = Authenticator.objects.create(
        user=protected, type="webauthn", data={"name": "k", "credential": {}}
    )
    browser, _answer = sign_in("stranger")
    browser.post("/accounts/reauthenticate/", {"password": PASSWORD})
    for action in ("remove", "edit"):
        assert browser.get(f"/accounts/2fa/webauthn/keys/{key.pk}/{action}/").status_code == 404
