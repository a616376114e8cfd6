"""What people make for one another, in the browser: assistants, prompts, shared chats."""

import json

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import answer, ask, get_chat_id
from tests.e2e.people import Person
from tests.servers.llm import Stream

INPUT = "#composer-input"
OPTION = "#composer-menu [role=option]"


@pytest.fixture(scope="module")
def colleague(product_with_model):
    return Person(product_with_model, "colleague")


@pytest.fixture(scope="module")
def assistant(talker):
    told = {"name": "규정 도우미", "instructions": "존댓말로", "starters": ["연차는 며칠인가요?"]}
    return talker.api("assistants", told)


def test_an_assistant_begins_a_chat_with_its_first_questions_and_stays(
    talk, talker, llm, assistant
):
    llm.default = Stream(["네"])
    talk.goto("/assistants")
    talk.get_by_role("link", name="규정 도우미", exact=True).click()
    talk.get_by_role("button", name="연차는 며칠인가요?").click()
    talk.locator(INPUT).press("Enter")
    answer(talk)
    expect(talk.locator("#asked-name")).to_have_text("규정 도우미")
    assert talker.api(f"chats/{get_chat_id(talk)}")["assistant_id"] == assistant["id"]


def test_an_at_sign_picks_an_assistant_for_one_question(talk, talker, llm, assistant):
    llm.default = Stream(["네"])
    ask(talk, "첫 질문")
    answer(talk)
    talk.locator(INPUT).press_sequentially("@규정")
    expect(talk.locator(OPTION)).to_contain_text(["규정 도우미"])
    talk.locator(INPUT).press("Enter")
    expect(talk.locator("#asked-name")).to_have_text("규정 도우미")
    ask(talk, "둘째 질문")
    answer(talk, 1)
    expect(talk.locator("#asked")).to_be_hidden()
    told = [one["scope"] for one in talker.messages(get_chat_id(talk)) if one["scope"]]
    assert [bool(one["assistant"]) for one in told] == [False, True]


def test_a_slash_finds_prompts_by_their_folder(talk, talker):
    talker.api("prompts", {"title": "주간 보고", "folder": "업무 보고서", "text": "이번 주 보고"})
    talk.locator("#composer-input").click()
    talk.keyboard.type("/업무")
    option = talk.locator("#composer-menu .option", has_text="주간 보고")
    expect(option).to_contain_text("업무 보고서")
    option.click()
    expect(talk.locator("#composer-input")).to_have_value("이번 주 보고")


def test_a_slash_writes_a_prompt_whose_places_are_filled_in_by_tab(talk, talker):
    talker.api("prompts", {"title": "보고서 초안", "text": "{{주제}}를 {{분량}}로 써 줘"})
    talk.locator(INPUT).press_sequentially("/보고")
    expect(talk.locator(OPTION)).to_contain_text(["보고서 초안"])
    talk.locator(INPUT).press("Enter")
    talk.keyboard.insert_text("휴가")
    talk.keyboard.press("Tab")
    talk.keyboard.insert_text("한 쪽")
    expect(talk.locator(INPUT)).to_have_value("휴가를 한 쪽로 써 줘")
    talk.locator(INPUT).fill("이름은 {{이름}}")
    talk.keyboard.press("Tab")
    expect(talk.locator(INPUT)).not_to_be_focused()


def test_imported_prompts_are_drawn_into_the_list_and_counted(talk):
    talk.goto("/prompts/new")
    talk.locator("[name=title]").fill("회의록")
    talk.locator("[name=text]").fill("회의록을 써 줘")
    talk.get_by_role("button", name="저장").click()
    expect(talk.locator(".messages")).to_have_text("저장했습니다.")
    taken = json.dumps({"prompts": [{"title": "가져온 것", "folder": "", "text": "가져온 글"}]})
    file = {"name": "prompts.json", "mimeType": "application/json", "buffer": taken.encode()}
    with talk.expect_file_chooser() as chooser:
        talk.locator("[data-import-prompts]").click()
    chooser.value.set_files(file)
    expect(talk.locator(".team")).to_contain_text("가져온 글")
    expect(talk.locator(".toast")).to_contain_text("1")
    expect(talk.locator(".messages")).to_have_text("저장했습니다.")
    expect(talk.locator("[data-import-prompts]")).to_be_visible()


def test_a_shared_chat_is_read_copied_and_gone_from_an_open_page_when_it_ends(
    talk, llm, windows, colleague
):
    llm.default = Stream(["하루 5만 원입니다"])
    ask(talk, "출장비는?")
    answer(talk)
    row = talk.locator(f'.side-chat[data-chat-id="{get_chat_id(talk)}"]')
    row.hover()
    row.locator("[data-chat-menu]").click()
    talk.locator("#chat-menu [data-action=share]").click()
    talk.locator("#share-dialog input[name=users]").fill(colleague.name)
    talk.locator("#share-dialog button[type=submit].button-primary").click()
    address = talk.locator("#share-address")
    expect(address).to_be_visible()
    other = windows(colleague)
    other.goto(address.input_value())
    expect(other.locator(".shared-answer")).to_contain_text("하루 5만 원입니다")
    talk.locator("[data-close-share]").first.click()
    talk.locator("#share-open").click()
    talk.locator("#share-dialog [name=end]").click()
    expect(other.locator("#share-ended")).to_be_visible()
    expect(other.locator("body")).not_to_contain_text("하루 5만 원입니다")
    expect(other.locator(".crumbs a")).to_be_visible()


def test_of_several_names_the_one_at_the_caret_is_completed(talk, talker, llm, colleague):
    llm.default = Stream(["네"])
    ask(talk, "출장비는?")
    answer(talk)
    talker.api(f"chats/{get_chat_id(talk)}/share", {"users": [colleague.name]})
    talk.locator("#share-open").click()
    field = talk.locator("#share-dialog input[name=users]")
    field.fill("somebody, coll")
    expect(talk.locator("#share-dialog [role=option]")).to_have_text([colleague.name])
    talk.locator("#share-dialog [role=option]").click()
    expect(field).to_have_value(f"somebody, {colleague.name}, ")
    expect(field).to_be_focused()


def test_the_share_dialog_is_laid_out_alike_over_a_chat_and_over_the_list(talk, talker, llm):
    llm.default = Stream(["하루 5만 원입니다"])
    ask(talk, "출장비는?")
    answer(talk)
    shared = get_chat_id(talk)
    talker.api(f"chats/{shared}/share", {"everybody": True})
    talk.goto("/shared")
    talk.locator(f"[data-share-chat='{shared}']").click()
    words = talk.locator("#share-dialog label[for=id_everybody]")
    expect(words).to_be_visible()
    box = talk.locator("#share-dialog [name=everybody]").bounding_box()
    label = words.bounding_box()
    assert box["x"] < label["x"]
    link = talk.locator("#share-dialog .share-link").bounding_box()
    field = talk.locator("#share-dialog [name=days]").bounding_box()
    assert field["width"] == link["width"]
