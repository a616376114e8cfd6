"""Passkeys, with the authenticator that Chromium has for tests."""

from types import SimpleNamespace

import pytest
from playwright.sync_api import expect

from tests.e2e.people import PASSWORD, Person

SETTINGS = "/settings/two-step"


@pytest.fixture
def guarded(windows, product, request):
    """A window of somebody new, whose machine makes passkeys and asks for no finger.

    By a name: no passkey is bound to the address of a machine.
    """
    person = Person(product, request.node.name[:30])
    at_name = SimpleNamespace(url=product.url.replace("127.0.0.1", "localhost"))
    page = windows(product=at_name)
    devtools = page.context.new_cdp_session(page)
    devtools.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
    }
    made = devtools.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    page.authenticator = made["authenticatorId"]
    page.devtools, page.person = devtools, person
    page.goto("/accounts/login/")
    sign_in(page)
    expect(page.locator("#composer-input")).to_be_visible()
    return page


def sign_in(page):
    page.locator("[name=login]").fill(page.person.name)
    page.locator("[name=password]").fill(PASSWORD)
    page.locator("[name=password]").press("Enter")


def add_passkey(page, *, alone):
    page.goto(SETTINGS)
    page.get_by_role(
        "link", name="패스키 추가"
    ).click()  # without the password: it was just entered
    page.locator("[name=name]").fill("내 노트북")
    if alone:
        page.locator("[name=passwordless]").check()
    page.get_by_role("button", name="추가").click()
    page.wait_for_url(lambda address: "/webauthn/add" not in address)
    page.goto(SETTINGS)
    expect(page.locator(".settings")).to_contain_text("내 노트북")


def sign_out(page):
    page.locator(".side-user").click()
    page.get_by_role("button", name="로그아웃").click()
    page.goto("/accounts/login/")


def test_a_passkey_signs_in_without_a_password(guarded):
    add_passkey(guarded, alone=True)
    sign_out(guarded)
    guarded.get_by_role("button", name="패스키로 로그인").click()
    expect(guarded.locator("#composer-input")).to_be_visible()
    guarded.goto("/settings/profile")
    expect(guarded.locator(".settings")).to_contain_text(guarded.person.name)


def test_a_passkey_is_the_second_step_after_the_password(guarded):
    add_passkey(guarded, alone=False)
    sign_out(guarded)
    sign_in(guarded)
    guarded.wait_for_url("**/accounts/2fa/authenticate/")
    expect(guarded.locator("#composer-input")).to_have_count(0)
    guarded.get_by_role("button", name="패스키 사용").click()
    expect(guarded.locator("#composer-input")).to_be_visible()


def test_a_machine_that_is_not_the_owners_is_refused_with_a_sentence(guarded):
    add_passkey(guarded, alone=True)
    guarded.devtools.send(
        "WebAuthn.setUserVerified",
        {"authenticatorId": guarded.authenticator, "isUserVerified": False},
    )
    sign_out(guarded)
    guarded.get_by_role("button", name="패스키로 로그인").click()
    expect(guarded.locator("[data-passkey-failed]")).to_be_visible()
    expect(guarded.locator("[name=login]")).to_be_visible()
