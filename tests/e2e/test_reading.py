"""What answers hold beyond plain sentences: tables, formulas, tasks, footnotes, addresses."""

import re

import pytest
from playwright.sync_api import expect

from tests.e2e.chat import answer, ask, load_script
from tests.e2e.test_looks import PHONE, measure_overflow
from tests.servers.llm import Stream

TABLE = """| 지역 | 2019년 | 2020년 | 2021년 | 2022년 | 2023년 | 2024년 | 교체 비용 | 증감률 |
|---|---|---|---|---|---|---|---|---|
| 서울특별시 강남구 | 1,200 | 1,300 | 1,350 | 1,400 | 1,500 | 1,620 | 12,000원 | 8.0% |
| 부산 | 900 | 880 | 870 | 910 | 930 | 1,010 | 9,500원 | △1.2% |
"""
RICH = r"""넓이는 $\pi r^2$이고 요금은 $5에서 $10로 올랐습니다.[^주] 자세한 것은 https://example.com/a에서.

$$
\int_0^1 x^2\,dx = \frac{1}{3}
$$

- [x] 필터 주문
- [ ] 필터 교체

[^주]: 부가세 **별도**입니다.
"""


def reply(page, llm, text, question="지역별 교체 비용을 알려 줘"):
    """The words of an answer that says `text`."""
    llm.default = Stream([text[at : at + 9] for at in range(0, len(text), 9)])
    ask(page, question)
    return answer(page).locator(".prose")


@pytest.mark.parametrize("size", [{"width": 1024, "height": 768}, PHONE])
def test_a_wide_table_keeps_its_first_column_and_shows_the_one_that_was_asked(
    windows, talker, llm, size
):
    page = windows(talker, viewport=size, has_touch=size is PHONE)
    page.goto("/")
    prose = reply(page, llm, TABLE)
    table = prose.locator(".table-wrap")
    expect(prose.locator(".table-box")).to_have_class("table-box table-wide more-before more-after")
    box = table.bounding_box()
    first = table.locator("tbody td").first.bounding_box()
    assert abs(first["x"] - box["x"]) < 3
    asked = table.get_by_role("columnheader", name="교체 비용").bounding_box()
    assert first["x"] + first["width"] <= asked["x"] + 1
    assert asked["x"] + asked["width"] <= box["x"] + box["width"] + 1
    assert measure_overflow(page) <= 0


def test_the_column_that_was_asked_stays_in_sight_as_the_table_narrows(windows, talker, llm):
    page = windows(talker, viewport={"width": 1280, "height": 768})
    page.goto("/")
    table = reply(page, llm, TABLE).locator(".table-wrap")
    asked = table.get_by_role("columnheader", name="교체 비용")
    expect(asked).to_be_in_viewport(ratio=0.99)
    page.set_viewport_size({"width": 700, "height": 768})
    expect(asked).to_be_in_viewport(ratio=0.99)
    table.evaluate("(wrap) => wrap.scrollTo(0, 0)")
    expect(asked).not_to_be_in_viewport()
    page.set_viewport_size({"width": 660, "height": 768})
    expect(table.locator("..")).not_to_have_class(
        re.compile("more-before")
    )  # as the reader left it


def test_columns_of_figures_stand_to_the_right_and_names_to_the_left(talk, llm):
    prose = reply(talk, llm, TABLE)
    cells = prose.locator("tbody tr").first.locator("td")
    aligned = cells.evaluate_all("(all) => all.map((one) => getComputedStyle(one).textAlign)")
    assert aligned == ["start", *["end"] * 8]


def test_a_table_is_copied_for_a_spreadsheet_and_opened_large(talk, llm):
    talk.context.grant_permissions(["clipboard-read", "clipboard-write"])
    prose = reply(talk, llm, TABLE)
    prose.locator(".table-box").hover()
    prose.locator("[data-table=copy]").click()
    expect(prose.locator("[data-table=copy] use")).to_have_attribute("href", re.compile("#check$"))
    copied = talk.evaluate("navigator.clipboard.readText()").split("\n")
    assert copied[2].split("\t") == [
        *("부산", "900", "880", "870", "910", "930", "1,010", "9,500원", "△1.2%")
    ]
    opener = prose.locator("[data-table=open]")
    opener.focus()
    talk.keyboard.press("Enter")
    dialog = talk.locator(".table-dialog")
    expect(dialog.get_by_role("columnheader", name="증감률")).to_be_in_viewport()
    talk.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(opener).to_be_focused()


def test_formulas_are_drawn_and_money_is_left_alone(talk, llm, windows):
    prose = reply(talk, llm, RICH)
    expect(prose.locator(".math-drawn")).to_have_count(2)
    expect(prose.locator(".math-block .katex-display")).to_be_visible()
    expect(prose).to_contain_text("요금은 $5에서 $10로 올랐습니다.")
    fonts = "[...document.fonts].filter((one) => one.status === 'loaded').map((one) => one.family)"
    talk.wait_for_function(f"{fonts}.some((name) => name.includes('KaTeX'))")
    assert not windows.watches[0].foreign
    talk.reload()
    expect(talk.locator(".prose .math-drawn")).to_have_count(2)


def test_tasks_footnotes_and_bare_addresses_read_as_such(talk, llm):
    prose = reply(talk, llm, RICH)
    expect(prose.locator("li.task")).to_have_text(["☑ 필터 주문", "☐ 필터 교체"])
    link = prose.locator("a")
    expect(link).to_have_attribute("href", "https://example.com/a")
    expect(link).to_have_text("https://example.com/a")
    prose.locator(".footnote-link").click()
    note = prose.locator(".footnote")
    expect(note).to_be_focused()
    expect(note).to_have_text("주 부가세 별도입니다.")


def test_a_formula_that_leads_elsewhere_leads_nowhere(talk, llm):
    text = (
        r"$\href{https://canary.invalid}{x}$ $\includegraphics{https://canary.invalid/a.png}$ $x$"
    )
    prose = reply(talk, llm, text)
    expect(prose.locator(".math-drawn").last).to_be_visible()
    expect(prose.locator("a, img")).to_have_count(0)
    assert prose.evaluate(load_script("foul")) == []


def test_formulas_of_a_question_are_drawn_and_all_else_of_it_is_text(talk, llm):
    hostile = r"$\href{https://canary.invalid}{x}$ <img src=x onerror=alert(1)> **굵게** `$b$` $5"
    question = rf"\(E = mc^2\)일 때 $$\int_0^1 x\,dx$$ {hostile}"
    llm.default = Stream(["네."])
    talk.goto("/")
    ask(talk, question)
    bubble = talk.locator(".bubble")
    for _ in range(2):
        expect(bubble.locator(".math-drawn")).to_have_count(3)
        expect(bubble.locator(".math-block .katex-display")).to_be_visible()
        expect(bubble).to_contain_text("<img src=x onerror=alert(1)> **굵게** `$b$` $5")
        expect(bubble.locator("a, img, strong, code")).to_have_count(0)
        expect(answer(talk).locator(".prose")).to_have_text("네.")
        talk.reload()
    talk.locator("[data-action=edit]").click()
    expect(talk.locator(".question-editor textarea")).to_have_value(question)


def test_code_tells_its_language_and_is_copied(talk, llm):
    talk.context.grant_permissions(["clipboard-read", "clipboard-write"])
    prose = reply(talk, llm, "```python\nprint(1)\n```\n")
    expect(prose.locator(".code-head")).to_contain_text("python")
    prose.locator(".code-copy").click()
    talk.wait_for_function("navigator.clipboard.readText().then((text) => text === 'print(1)\\n')")
