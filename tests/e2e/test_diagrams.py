"""Diagrams of answers: drawn in a frame that reaches nothing, whatever they are made to do."""

from playwright.sync_api import expect

from tests.e2e.test_looks import PHONE, measure_overflow
from tests.e2e.test_reading import reply

FLOW = """흐름입니다.

```mermaid
flowchart TD
  A[신청서 접수] --> B{서류가 모두 있나요?}
  B -- 예 --> C[심사]
  B -- 아니요 --> A
```
"""
HOSTILE = """
```mermaid
graph TD
  A["<img src='https://canary.invalid/a.png' onerror='parent.document.title=1'>x"] --> B[y]
  C["<script>parent.foul=1</script>z"] --> B
  click B "https://canary.invalid/b" _top
  click A call alert(1)
  classDef bad fill:url(https://canary.invalid/c.svg)
  class A bad
```

```mermaid
graph TD
  A["<iframe src='https://canary.invalid/d'></iframe>"] --> B
  C["<form action='https://canary.invalid/e'><button>z</button></form>"] --> B
  click B href "javascript:parent.foul=1"
```

```mermaid
%%{init: {"securityLevel": "loose", "themeCSS": "@import url(https://canary.invalid/a.css);"}}%%
graph TD
  A --> B
```
"""


def test_a_diagram_is_drawn_and_its_code_is_a_tap_away(talk, llm):
    prose = reply(talk, llm, FLOW)
    drawn = prose.frame_locator("iframe.diagram").locator("svg")
    expect(drawn).to_contain_text("신청서 접수")
    expect(prose.locator("pre")).to_be_hidden()
    high = prose.locator("iframe.diagram").bounding_box()["height"]
    assert 150 < high < 900
    prose.get_by_role("button", name="코드", exact=True).click()
    expect(prose.locator("pre")).to_contain_text("flowchart TD")
    expect(prose.locator("iframe.diagram")).to_be_hidden()
    prose.get_by_role("button", name="코드", exact=True).click()
    expect(drawn).to_be_visible()


def test_a_diagram_fits_a_phone_and_follows_the_theme(windows, talker, llm):
    page = windows(talker, viewport=PHONE, color_scheme="dark")
    page.goto("/")
    prose = reply(page, llm, FLOW)
    frame = prose.frame_locator("iframe.diagram")
    scheme = "(one) => getComputedStyle(one.ownerDocument.documentElement).colorScheme"
    expect(frame.locator("svg")).to_be_visible()
    assert frame.locator("svg").evaluate(scheme) == "dark"
    page.emulate_media(color_scheme="light")
    expect(frame.locator("#diagram-2")).to_be_visible()
    assert frame.locator("svg").evaluate(scheme) == "light"
    assert measure_overflow(page) <= 0


def test_what_is_no_diagram_stays_code_and_says_so(talk, llm):
    prose = reply(talk, llm, "```mermaid\n이것은 도표가 아님 ->>\n```\n")
    expect(prose.locator(".code-head")).to_contain_text("그릴 수 없는 도표")
    expect(prose.locator("pre")).to_be_visible()
    expect(prose.locator("iframe")).to_have_count(0)


def test_a_hostile_diagram_does_nothing(talk, llm, windows):
    [watch] = windows.watches
    before = talk.url
    prose = reply(talk, llm, HOSTILE)
    frames = prose.locator("iframe.diagram")
    frame = frames.nth(1).content_frame
    expect(frame.locator("svg")).to_be_visible()
    for number in range(frames.count()):
        inside = frames.nth(number).content_frame
        expect(inside.locator("a, script:not([src]), iframe, form, button, img")).to_have_count(0)
    assert frame.locator("svg").evaluate("() => self.origin") == "null"
    frame.locator(".node").last.click(force=True)
    assert talk.evaluate("[self.foul ?? null, document.title === '1']") == [None, False]
    assert "canary" not in talk.url
    assert talk.url.startswith(before)
    assert not watch.dialogs
    assert not watch.foreign
    watch.breaches.clear()  # what the frame's policy refused


def test_no_page_without_a_diagram_loads_what_draws_them(talk, llm):
    asked = []
    talk.on("request", lambda request: asked.append(request.url))
    reply(talk, llm, "```python\nprint(1)\n```\n\n그림은 없습니다.")
    talk.reload()
    expect(talk.locator(".code-box")).to_be_visible()
    assert not [url for url in asked if "diagram" in url]
