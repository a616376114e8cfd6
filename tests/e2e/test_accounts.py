"""Signing up, in and out, in Korean and in English."""

from playwright.sync_api import expect

from tests.e2e.people import PASSWORD
from tests.servers import oidc

HANA = {
    "sub": "1001",
    "preferred_username": "hana",
    "name": "김하나",
    "email": "hana@example.com",
    "email_verified": True,
}


def sign_in(page, name, password):
    page.locator("[name=login]").fill(name)
    page.locator("[name=password]").fill(password)
    page.locator("[name=password]").press("Enter")


def test_somebody_who_is_invited_signs_up_out_and_in_again(windows, product):
    page = windows(product=product)
    page.goto("/")
    expect(page.locator("html")).to_have_attribute("lang", "ko")
    expect(page.get_by_role("link", name="회원가입")).to_be_hidden()
    page.goto(product.call("invite", "--url", product.url).stdout.strip())
    page.locator("[name=username]").fill("민수")
    page.locator("[name=email]").fill("minsu@example.com")
    page.locator("[name=password1]").fill(PASSWORD)
    page.locator("[name=password2]").fill(PASSWORD)
    page.get_by_role("button", name="회원가입").click()
    expect(page.locator("#composer-input")).to_be_visible()
    page.locator(".side-user").click()
    page.get_by_role("button", name="로그아웃").click()
    expect(page.locator(".side-user")).to_be_hidden()
    page.goto("/")
    expect(page.locator("[name=login]")).to_be_visible()
    sign_in(page, "민수", PASSWORD)
    expect(page.locator("#composer-input")).to_be_visible()


def test_a_wrong_password_is_answered_with_a_sentence(windows, product, reader):
    page = windows(product=product)
    page.goto("/accounts/login/")
    sign_in(page, reader.name, "not-the-password")
    expect(page.locator(".card-body .errorlist")).to_contain_text("올바르지 않습니다")
    assert "/accounts/login" in page.url


def test_after_signing_in_one_is_where_one_wanted_to_be(windows, product, reader):
    page = windows(product=product)
    page.goto("/documents")
    expect(page.locator("[name=login]")).to_be_visible()
    sign_in(page, reader.name, PASSWORD)
    page.wait_for_url("**/documents")


def test_the_page_speaks_english_when_asked_to(page):
    page.locator(".side-user").click()
    page.get_by_role("button", name="English").click()
    expect(page.locator("html")).to_have_attribute("lang", "en")
    expect(page.locator("#composer-send")).to_have_attribute("aria-label", "Send")
    page.goto("/documents")
    expect(page.get_by_role("heading", name="Documents")).to_be_visible()
    page.locator(".side-user").click()
    page.get_by_role("button", name="한국어").click()
    expect(page.locator("html")).to_have_attribute("lang", "ko")


def test_an_english_browser_gets_the_choice_before_signing_in(windows, product):
    page = windows(product=product)
    page.goto("/accounts/login/")
    page.get_by_role("button", name="English").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_an_api_key_is_shown_once(page):
    page.goto("/settings/keys")
    page.get_by_label("이름").fill("백업")
    page.get_by_role("button", name="키 만들기").click()
    page.get_by_label("비밀번호").fill(PASSWORD)
    page.get_by_role("button", name="계속").click()
    key = page.locator("#new-key").inner_text()
    assert len(key) >= 40
    page.goto("/settings/keys")
    expect(page.locator("body")).not_to_contain_text(key)


def test_an_administrator_sets_up_a_sign_on_server_and_somebody_comes_in_by_it(windows, product):
    product.add_user("keeper", PASSWORD, staff=True)
    with oidc.run_server(person=dict(HANA)) as server:
        page = windows(product=product)
        page.goto("/accounts/login/?next=/admin/nura/signonserver/add/")
        sign_in(page, "keeper", PASSWORD)
        page.wait_for_url("**/signonserver/add/")
        page.locator("[name=name]").fill("사내 통합 로그인")
        page.locator("[name=slug]").fill("company")
        page.locator("[name=issuer]").fill(server.url)
        page.locator("[name=client_id]").fill(oidc.CLIENT_ID)
        page.locator("[name=secret]").fill(oidc.CLIENT_SECRET)
        page.locator("[name=sign_up]").select_option("everybody")
        page.locator("[name=_save]").click()
        page.wait_for_url("**/signonserver/")
        assert oidc.CLIENT_SECRET not in page.content()

        visitor = windows(product=product)
        visitor.goto("/")
        visitor.get_by_role("link", name="사내 통합 로그인").click()
        expect(visitor.locator("#composer-input")).to_be_visible()
        expect(visitor.locator(".side-user")).to_contain_text("김하나")
        (sent_there,) = windows.watches[-1].foreign
        assert sent_there.startswith(f"{server.url}/authorize?")
        windows.watches[-1].foreign.clear()  # that one is what the button is for
