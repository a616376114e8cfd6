"""What the page of a chat costs a browser: to open it, to read back in it, to follow an answer.

`python -m benchmarks page`. A chat of 200 messages over three documents is opened with nothing
cached; then a model streams 10,000 tokens of Markdown into another chat, and every frame of the
page is timed. Product, model, browser and its drawing share the processors of one machine.
"""

import itertools
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import CDPSession, Page, Request, expect, sync_playwright

from benchmarks import report
from nura.samples import FOLDER, SAMPLES
from tests.e2e.chat import ask
from tests.e2e.chromium import Chromium, program
from tests.e2e.people import Person
from tests.servers.llm import LLMServer, Stream
from tests.support import Product, wait_until

MESSAGES = report.choose_size(200, quick=60)
OPENINGS = report.choose_size(5, quick=1)
TOKENS = report.choose_size(10_000, quick=1_000)
TOKENS_A_SECOND = 200
SIZE = {"width": 1280, "height": 800}
AIMS = {
    "wire_kb": 600,
    "requests": 25,
    "lcp_ms": 800,
    "script_ms": 150,
    "streaming frames over 17 ms": 0,
    "streaming frames over 34 ms": 0,
}
LATE_MS = (17, 34)
LONG_TASK_MS = 50
"""A browser tells of tasks that are longer; it stands for all others."""

OBSERVE = """
window.seen = { lcp: 0, tasks: [] };
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) window.seen.lcp = one.startTime;
}).observe({ type: "largest-contentful-paint", buffered: true });
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) window.seen.tasks.push(one.duration);
}).observe({ type: "longtask", buffered: true });
"""
COUNT_FRAMES = """
() => {
  window.frames_seen = null;
  const times = [];
  const count = (at) => {
    const growing = document.querySelector(".msg-answer[aria-busy]");
    if (times.length || growing?.querySelector(".prose > *")) times.push(at);
    if (times.length > 1 && !growing) window.frames_seen = times;
    else requestAnimationFrame(count);
  };
  requestAnimationFrame(count);
}
"""

SENTENCES = (
    "무상 보증 기간은 구입한 날부터 **2년**이며, 팬 모터는 5년입니다 [1].",
    "하도급은 사업 금액의 50%를 넘을 수 없습니다 [2].",
    "풍량 단추를 7초 동안 누르면 사용 시간이 0으로 돌아갑니다 [1].",
    "되돌리지 않으면 새 필터를 끼워도 `E-1234` 알림이 계속 나옵니다.",
    "자세한 절차는 설명서의 *관리와 교체*를 보시면 됩니다.",
)
LIST = "\n".join(f"{n}. **{n}단계**: {text}" for n, text in enumerate(SENTENCES, 1))
TABLE = "| 항목 | 주기 | 비용 |\n| --- | --- | ---: |\n" + "\n".join(
    f"| 필터 {n} | {n}개월 | {n * 12_500:,}원 |" for n in range(1, 7)
)
CODE = '```python\ndef reset(seconds: int = 7) -> str:\n    return f"hold {seconds}s"\n```'
BLOCKS = (
    " ".join(SENTENCES[:3]), f"## 순서\n\n{LIST}", " ".join(SENTENCES[2:]), f"### 비용\n\n{TABLE}",
    " ".join(SENTENCES), CODE,
)  # fmt: skip


def main() -> None:
    executable = program()
    if executable is None:
        print("\npage: left out, as there is no Chromium")
        return
    with LLMServer() as model:
        settings = {"NURA_LLM_BASE_URL": model.url, "NURA_LLM_MODEL": "stand-in"}
        settings |= {"NURA_LLM_MAX_TOKENS": str(2 * TOKENS), "NURA_CONTEXT_TOKENS": str(8 * TOKENS)}
        with Product(**settings) as product, sync_playwright() as playwright:
            person = Person(product, "bench")
            for sample in SAMPLES:
                person.upload(FOLDER / sample.file, sample.name)
            person.wait_for_documents()
            chat = _fill_chat(person, model)
            browser = Chromium(playwright, executable)
            figures = _measure_opening(browser, person, chat)
            figures["reading_back"] = _measure_reading_back(browser, person, chat)
            figures["streaming"] = _measure_streaming(browser, person, model)
            browser.close()
    _report(figures)


def _fill_chat(person: Person, model: LLMServer) -> str:
    """A chat of so many messages, its answers of all the kinds of blocks; its id."""
    chat = ""
    for turn in range(MESSAGES // 2):
        blocks = [BLOCKS[(turn + step) % len(BLOCKS)] for step in range(1 + turn % 3)]
        model.default = Stream(["\n\n".join(blocks)])
        question = {"content": f"{turn + 1}번째로, 필터는 언제 바꾸나요?"}
        told = person.api("messages", question | ({"chat_id": chat} if chat else {}))
        chat = told["chat_id"]
    return chat


@contextmanager
def _open_window(browser: Chromium, person: Person) -> Iterator[Page]:
    """A window with nothing cached, signed in."""
    context = browser.new_context(
        base_url=person.product.url, viewport=SIZE, locale="ko-KR", timezone_id="Asia/Seoul"
    )
    context.add_cookies(person.cookies())
    context.add_init_script(OBSERVE)
    yield context.new_page()
    browser.close_context(context)


def _measure_opening(browser: Chromium, person: Person, chat: str) -> dict[str, Any]:
    """Medians over some openings, each with nothing cached: wire, paint, work of the page."""
    runs = []
    for _ in range(OPENINGS):
        with _open_window(browser, person) as page:
            loaded: list[Request] = []
            page.context.on("requestfinished", lambda request, kept=loaded: kept.append(request))
            costs = _watch_costs(page)
            _open_chat(page, chat)
            loaded = [request for request in loaded if _is_on_the_wire(request)]
            sizes = [request.sizes() for request in loaded]
            wire = sum(one["responseHeadersSize"] + one["responseBodySize"] for one in sizes)
            seen = page.evaluate("window.seen")
            runs.append(
                {"wire_kb": wire / 1000, "requests": len(loaded), "lcp_ms": seen["lcp"]}
                | {"longest_task_ms": max([LONG_TASK_MS, *seen["tasks"]])}
                | _read_costs(costs)
            )
    return {name: round(statistics.median(run[name] for run in runs), 1) for name in runs[0]}


def _is_on_the_wire(request: Request) -> bool:
    """Whether it is no second sight of one that the service worker passed on."""
    response = request.response()
    return response is not None and not response.from_service_worker


def _open_chat(page: Page, chat: str) -> None:
    """Open it and wait until its end is shown and all is loaded."""
    page.goto(f"/c/{chat}")
    expect(page.locator(".msg-answer").last.locator(".msg-actions")).to_be_visible(timeout=30_000)
    page.wait_for_load_state("networkidle")


def _measure_reading_back(browser: Chromium, person: Person, chat: str) -> dict[str, float]:
    """What it takes to bring in all messages before those that are shown at first."""
    with _open_window(browser, person) as page:
        _open_chat(page, chat)
        before = page.locator(".msg").count()
        costs = _watch_costs(page)
        page.evaluate("window.seen.tasks.length = 0")
        while (count := page.locator(".msg").count()) < MESSAGES:
            page.locator("#earlier").click()
            expect(page.locator(".msg").nth(count)).to_be_attached(timeout=30_000)
        tasks = page.evaluate("window.seen.tasks")
        rest = {"messages": MESSAGES - before, "longest_task_ms": max([LONG_TASK_MS, *tasks])}
        return {name: round(value, 1) for name, value in (rest | _read_costs(costs)).items()}


def _measure_streaming(browser: Chromium, person: Person, model: LLMServer) -> dict[str, float]:
    """Frames of the page while a long answer grows in it."""
    pieces = _cut_answer()
    with _open_window(browser, person) as page:
        page.goto("/")
        model.default = Stream(["네."])
        ask(page, "필터는 언제 바꾸나요?")  # what is loaded and compiled once is
        expect(page.locator(".msg-answer .msg-actions")).to_be_visible(timeout=30_000)
        model.default = Stream(pieces, delay=1 / TOKENS_A_SECOND)
        page.evaluate(COUNT_FRAMES)
        page.evaluate("window.seen.tasks.length = 0")
        costs = _watch_costs(page)
        ask(page, "전부 자세히 설명해 줘")
        expect(page.locator(".msg-answer").nth(1)).to_be_visible(timeout=30_000)
        wait_until(lambda: page.evaluate("window.frames_seen !== null"), 300, step=2.0)
        times, tasks = page.evaluate("[window.frames_seen, window.seen.tasks]")
        work = _read_costs(costs)
        stored = person.messages(page.url.rpartition("/c/")[2].partition("?")[0])[-1]
        assert "answer_cut" not in [one["code"] for one in stored["notices"] or ()], stored[
            "notices"
        ]
    lengths = [later - earlier for earlier, later in itertools.pairwise(times)]
    seconds = (times[-1] - times[0]) / 1000
    return {
        "tokens": len(pieces),
        "seconds": round(seconds, 1),
        "frames/s": round(len(lengths) / seconds, 1),
        **{f"frames over {late} ms": _share_over(lengths, late) for late in LATE_MS},
        "longest_frame_ms": round(max(lengths), 1),
        "longest_task_ms": round(max([LONG_TASK_MS, *tasks]), 1),
        **{name: round(value, 1) for name, value in work.items()},
    }


def _cut_answer() -> list[str]:
    """An answer of blocks of all kinds in so many pieces, about as large as tokens are."""
    pieces: list[str] = []
    for block in itertools.cycle(BLOCKS):
        text = f"{block}\n\n"
        pieces += [text[at : at + 2] for at in range(0, len(text), 2)]
        if len(pieces) >= TOKENS:
            return pieces[:TOKENS]
    raise AssertionError


def _share_over(lengths: list[float], bound: float) -> float:
    """The share of frames that took longer."""
    return round(sum(length > bound for length in lengths) / len(lengths), 4)


def _watch_costs(page: Page) -> tuple[CDPSession, dict[str, float]]:
    """What the page has cost so far, to be read again with `_read_costs`."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    return session, _read_counters(session)


def _read_costs(watched: tuple[CDPSession, dict[str, float]]) -> dict[str, float]:
    """Milliseconds of the main thread since then: scripts, styles and layout, all its tasks."""
    session, before = watched
    now = _read_counters(session)
    spent = {name: (now[name] - before.get(name, 0.0)) * 1000 for name in now}
    return {
        "script_ms": spent["ScriptDuration"],
        "layout_ms": spent["LayoutDuration"] + spent["RecalcStyleDuration"],
        "all_tasks_ms": spent["TaskDuration"],
    }


def _read_counters(session: CDPSession) -> dict[str, float]:
    return {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}


def _report(figures: dict[str, Any]) -> None:
    report.write("page", {"messages": MESSAGES, "openings": OPENINGS, "aim": AIMS} | figures)
    rows: list[list[object]] = []
    for name, value in figures.items():
        parts = value if isinstance(value, dict) else {"": value}
        for part, one in parts.items():
            label = f"{name} {part}".strip()
            rows.append([label, one, AIMS.get(label, "")])
    report.table(f"The page of a chat with {MESSAGES} messages", ["", "measured", "aim"], rows)


if __name__ == "__main__":
    main()
