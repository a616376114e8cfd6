"""An answer read aloud: by a voice of the browser, or of the server where it has one."""

import io
import json
import wave

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import answer, ask, get_chat_id, load_script
from tests.servers.llm import Stream
from tests.support import wait_until

TEXT = (
    "# 필터 안내\n\n헤파 필터는 6개월마다 교체합니다. The HEPA filter lasts six months. "
    "자세한 것은 [설명서](https://example.com/manual)와 https://example.com/raw 에 있습니다.\n\n"
    "| 항목 | 값 |\n|---|---|\n| 보증 | 2년 |\n\n```python\nsecret_code()\n```\n\n"
    "- API는 JSON입니다."
)
BUTTON = '[data-action="speak"]'


def make_silence():
    """A tenth of a second of sound."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(b"\0\0" * 800)
    return file.getvalue()


@pytest.fixture
def listen(windows, talker, llm):
    """Opens a page with voices and an answer; gives the page."""

    def open_page(*languages, text=TEXT, server=None):
        page = windows(talker)
        page.add_init_script(f"({load_script('voice')})({json.dumps(languages)})")
        if server:
            page.route("**/c/*", open_speaking_page)
            page.route("**/api/v1/messages/*/speech", server)
        llm.default = Stream([text])
        page.goto("/")
        ask(page, "읽어 줄 답")
        answer(page)
        if server:
            get_chat_id(page)
            page.reload()
            answer(page)
        return page

    return open_page


def open_speaking_page(route):
    """The page of a product whose speech endpoint is set."""
    response = route.fetch()
    body = response.text()
    assert '"speech": false' in body
    route.fulfill(response=response, body=body.replace('"speech": false', '"speech": true'))


def list_spoken(page):
    return page.evaluate("window.spoken")


def say_everything(page):
    """Let the voice end one sentence after the other until nothing more comes."""
    button = page.locator(BUTTON)
    expect(button).to_have_attribute("aria-pressed", "true")

    def is_silent():
        page.evaluate("window.sayNext()")
        return button.get_attribute("aria-pressed") == "false"

    wait_until(is_silent)
    return list_spoken(page)


def test_an_answer_is_read_by_sentences_each_in_its_language(listen):
    page = listen("en-US", "ko-KR")
    page.locator(BUTTON).click()
    wait_until(lambda: list_spoken(page))
    assert list_spoken(page) == [{"text": "필터 안내", "lang": "ko-KR"}]
    said = {one["text"]: one["lang"] for one in say_everything(page)}
    assert said["헤파 필터는 6개월마다 교체합니다."] == "ko-KR"
    assert said["The HEPA filter lasts six months."] == "en-US"
    assert said["API는 JSON입니다."] == "ko-KR"


def test_code_addresses_and_bars_are_not_read(listen):
    page = listen("ko-KR")
    page.locator(BUTTON).click()
    said = " ".join(one["text"] for one in say_everything(page))
    assert "설명서" in said
    assert "보증, 2년" in said
    for unspoken in ("http", "example", "secret_code", "|", "#", "[", "`"):
        assert unspoken not in said


def test_a_second_press_stops_and_a_third_begins_anew(listen):
    page = listen("ko-KR")
    button = page.locator(BUTTON)
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-pressed", "false")
    assert not page.evaluate("speechSynthesis.speaking")
    page.keyboard.press("Enter")
    wait_until(lambda: [one["text"] for one in list_spoken(page)] == ["필터 안내"] * 2)


def test_reading_ends_by_itself(listen):
    page = listen("ko-KR", text="한 문장입니다.")
    page.locator(BUTTON).click()
    wait_until(lambda: list_spoken(page))
    page.evaluate("window.sayNext()")
    expect(page.locator(BUTTON)).to_have_attribute("aria-pressed", "false")


def test_the_next_question_ends_the_reading(listen):
    page = listen("ko-KR")
    page.locator(BUTTON).click()
    ask(page, "다음 질문")
    expect(page.locator(BUTTON).first).to_have_attribute("aria-pressed", "false")
    assert not page.evaluate("speechSynthesis.speaking")


def test_a_browser_without_a_voice_offers_no_reading(listen):
    page = listen()
    expect(page.locator('[data-action="copy"]').last).to_be_visible()
    expect(page.locator(BUTTON)).to_be_hidden()


def test_the_voice_of_the_server_comes_first(listen):
    asked = []

    def serve(route):
        asked.append(route.request.method)
        route.fulfill(body=make_silence(), content_type="audio/wav")

    page = listen("ko-KR", server=serve)
    with page.expect_request("**/api/v1/messages/*/speech"):
        page.locator(BUTTON).click()
    expect(page.locator(BUTTON)).to_have_attribute("aria-pressed", "false")
    assert asked == ["POST"]
    assert list_spoken(page) == []
    expect(page.locator(".toast-error")).to_have_text([])  # a busy server may be late for the rest


def test_a_server_that_fails_to_speak_leaves_it_to_the_browser(listen):
    page = listen("ko-KR", server=lambda route: route.fulfill(status=502, json={"code": "x"}))
    page.locator(BUTTON).click()
    wait_until(lambda: list_spoken(page))
    expect(page.locator(BUTTON)).to_have_attribute("aria-pressed", "true")


def test_a_server_that_fails_where_there_is_no_voice_says_why(listen):
    problem = {"code": "speech_failed", "detail": "음성 서버가 답하지 않습니다."}
    page = listen(server=lambda route: route.fulfill(status=502, json=problem))
    page.locator(BUTTON).click()
    expect(page.locator(".toast")).to_contain_text(problem["detail"])
    expect(page.locator(BUTTON)).to_have_attribute("aria-pressed", "false")
