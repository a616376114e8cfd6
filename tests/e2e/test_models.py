"""Models in the page: connected and tested by an administrator, chosen and compared by a reader."""

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import answer, ask, read_answer
from tests.e2e.test_accessibility import AXE, LOOKS, PHONE, is_due, list_violations
from tests.servers.llm import Failure, LLMServer, Stream

BUTTON = "#model-button"
OF_THE_SHELL = ("region:", "landmark-one-main:")
"""What axe says of what stands around the administration's pages."""


@pytest.fixture(scope="module")
def second():
    """Another server, which knows two models."""
    with LLMServer() as server:
        server.replies_by_path["/v1/models"] = Failure(
            200, {"data": [{"id": "second", "max_model_len": 20000}, {"id": "third"}]}
        )
        server.default = Stream(["둘째 모델이 ", "한국어로 ", "쓴 답입니다."], delay=0.02)
        yield server


@pytest.fixture(scope="module")
def chief(product_with_model):
    name = "models-chief"
    product_with_model.add_user(name, "correct-horse-9", staff=True)
    return name


@pytest.fixture
def desk(windows, product_with_model, chief):
    """The administration, in Korean."""
    window = windows(product=product_with_model)
    window.goto("/accounts/login/?next=/admin/models/")
    window.locator("input[name=login]").fill(chief)
    window.locator("input[name=password]").fill("correct-horse-9")
    window.locator("input[name=password]").press("Enter")
    expect(window.locator("#mains")).to_be_visible()
    return window


@pytest.fixture
def connected(desk, second):
    """The second model beside the one of the environment, connected by hand."""
    if desk.locator("code", has_text="second").count():
        return desk
    desk.goto("/admin/models/connections/add/")
    desk.locator("input[name=name]").fill("둘째 서버")
    desk.locator("input[name=base_url]").fill(second.url)
    desk.locator("input[name=api_key]").fill("sk-second-key")
    desk.locator(".nu-form .nu-button").click()
    desk.locator("#model").fill("second")
    desk.locator(".nu-form .nu-button").click()
    expect(desk.locator(".nu-lines")).to_contain_text("둘째 모델이 한국어로 쓴 답입니다.")
    desk.locator("section[aria-labelledby=found] a.nu-button").click()
    desk.locator("input[name=name]").fill("둘째")
    desk.locator(".nu-form .nu-button").click()
    expect(desk.locator("#mains")).to_be_visible()
    expect(desk.locator("code", has_text="second")).to_be_visible()
    return desk


def test_a_model_is_connected_tested_chosen_and_compared(connected, talk, llm):
    llm.default = Stream(["첫째 모델의 답입니다."])
    talk.goto("/")
    expect(talk.locator("#model-text")).to_have_text("stand-in")
    talk.locator(BUTTON).click()
    talk.get_by_role("menuitemradio", name="둘째").click()
    ask(talk, "아무 말이나 해 주세요")
    assert "둘째 모델" in read_answer(answer(talk))
    talk.reload()
    expect(talk.locator("#model-text")).to_have_text("둘째")
    talk.locator(".msg-answer").hover()
    talk.locator(".msg-answer [data-action=more]").click()
    talk.locator("[data-action=compare]").click()
    sides = talk.locator(".compare-side")
    expect(sides).to_have_count(2)
    expect(sides.nth(1)).to_contain_text("첫째 모델의 답입니다.")
    expect(sides.nth(0)).to_contain_text("둘째 모델이")
    sides.nth(1).locator("[data-action=pick]").click()
    expect(talk.locator(".compare")).to_have_count(0)
    expect(talk.locator(".msg-answer .prose")).to_have_text("첫째 모델의 답입니다.")
    expect(talk.locator("#model-text")).to_have_text("stand-in")
    ask(talk, "이어서 물어봅니다")
    expect(talk.locator(".msg-answer")).to_have_count(2)


def test_a_model_that_was_taken_away_loses_no_words(connected, talk, chief):
    talk.goto("/")
    talk.locator(BUTTON).click()
    talk.get_by_role("menuitemradio", name="둘째").click()
    connected.goto("/admin/models/")
    connected.get_by_role("link", name="둘째", exact=True).click()
    connected.locator("input[name=offered]").uncheck()
    connected.locator(".nu-form .nu-button").click()
    expect(connected.locator("#mains")).to_be_visible()
    talk.wait_for_timeout(1500)  # a process looks once a second whether the choice has changed
    talk.locator("#composer-input").fill("사라지면 안 되는 질문")
    talk.locator("#composer-input").press("Enter")
    expect(talk.locator("#composer-note")).to_be_visible()
    expect(talk.locator("#composer-input")).to_have_value("사라지면 안 되는 질문")
    connected.get_by_role("link", name="둘째", exact=True).click()
    connected.locator("input[name=offered]").check()
    connected.locator(".nu-form .nu-button").click()


@pytest.mark.skipif(not AXE.exists(), reason="npm --prefix front ci installs axe-core")
@pytest.mark.parametrize(("language", "scheme", "size"), LOOKS)
def test_the_pages_of_models_have_no_violation(connected, language, scheme, size, whole):
    connected.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    connected.set_viewport_size(size)
    url = connected.url.partition("/admin")[0]
    connected.context.add_cookies([{"name": "django_language", "value": language, "url": url}])
    found = {}
    paths = ("", "connections/add/", "connections/1/", "connections/1/test/", "add/")
    for number, path in enumerate(paths):
        due = is_due(number, size, whole)
        if not due and size != PHONE:
            continue
        connected.goto(f"/admin/models/{path}")
        connected.evaluate(
            "dark => document.documentElement.classList.toggle('dark', dark)", scheme == "dark"
        )
        violations = list_violations(connected) if due else []
        if violations := [one for one in violations if not one.startswith(OF_THE_SHELL)]:
            found[path] = violations
        wide = connected.evaluate(
            "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert wide <= 0, path
    assert not found, found


def test_a_model_is_removed_and_chats_with_it_keep_what_they_hold(connected, talk):
    """The last one: the other tests of this product know one model."""
    talk.goto("/")
    talk.locator(BUTTON).click()
    talk.get_by_role("menuitemradio", name="둘째").click()
    ask(talk, "마지막 질문")
    assert "둘째 모델" in read_answer(answer(talk))
    connected.goto("/admin/models/")
    connected.get_by_role("link", name="둘째", exact=True).click()
    connected.locator(".nu-danger").click()
    expect(connected.locator("code", has_text="second")).to_have_count(0)
    talk.wait_for_timeout(1500)
    talk.reload()
    expect(talk.locator(".msg-answer .prose")).to_contain_text("둘째 모델")
    expect(talk.locator("#model-button.model-gone")).to_be_visible()
    talk.locator(BUTTON).click()
    talk.get_by_role("menuitemradio").first.click()
    ask(talk, "다시 묻습니다")
    expect(talk.locator(".msg-answer")).to_have_count(2)
