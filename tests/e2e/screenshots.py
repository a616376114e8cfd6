"""The pictures in docs/pictures, taken from the running product: `python -m tests.e2e.screenshots`.

Those of the README and the guides are whole windows, and committed. docs/pictures/pages has every
page once more, each wide and on a phone, light and dark, on one sheet, for whoever changes how
pages look; git leaves those out.

The documents are the samples that come with Nura and a few files of this repository. The answers
are written here and sent by a stand-in for a language model, which looks up the number of the
passage that each sentence comes from; search, sources and checks are the product's own.
"""

import io
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, expect, sync_playwright

from nura.samples import FOLDER, SAMPLES
from tests.e2e.chat import answer, ask, settle
from tests.e2e.chromium import Chromium, program
from tests.e2e.people import Person
from tests.servers.llm import LLMServer, Stream
from tests.support import ROOT, Product

PICTURES = ROOT / "docs" / "pictures"
SIZE = {"width": 1280, "height": 860}
PHONE = {"width": 375, "height": 740}
OTHER_PAGES = {
    "/assistants": "assistants",
    "/assistants/new": "assistant",
    "/prompts": "prompts",
    "/shared": "shared",
    "/accounts/password/change/": "password",
    "/offline": "offline",
    "/nowhere": "missing",
}
SECTIONS = ".settings-nav a"
SIGNED_OUT = {"/accounts/login/": "login", "/accounts/password/reset/": "password-reset"}
ADMINISTRATION = {
    "": "administration",
    "queue/": "administration-queue",
    "models/": "administration-models",
    "auth/user/": "administration-accounts",
    "quotas/": "administration-quotas",
    "documents/library/": "administration-libraries",
}
LOOKS = [(SIZE, "light"), (PHONE, "light"), (SIZE, "dark"), (PHONE, "dark")]
SHEET_SCALE = 0.6
SHEET_GAP = 12

OTHERS = {
    "ko": {"관리자 설명서.md": "docs/administrator.ko.md", "Apache-2.0.txt": "LICENSE"},
    "en": {
        "Administrator's guide.md": "docs/administrator.md",
        "Apache-2.0.txt": "LICENSE",
    },
}
"""Files of this repository that fill the list of documents, by the names they get."""


TEAMS: dict[str, dict[str, Any]] = {
    "ko": {
        "person": ("minji", "김민지"),
        "members": [("junho", "contributor"), ("seoyeon", "reader")],
        "library": {
            "name": "통합돌봄 사업",
            "description": "2027년 통합돌봄 정보시스템 사업의 공고와 지침",
        },
        "assistants": [
            {
                "name": "입찰 도우미",
                "description": "공고의 자격과 기한을 항목별로 답합니다",
                "instructions": "항목별로 짧게 답하고 기한은 날짜로 쓰세요.",
                "starters": ["입찰 참가 자격은?", "제안서는 언제까지 내나요?"],
            },
            {
                "name": "현장 안내",
                "description": "설명서에서 점검 순서를 찾아 줍니다",
                "instructions": "순서대로 번호를 붙여 답하세요.",
            },
        ],
        "prompt": {
            "title": "주간 보고",
            "folder": "보고",
            "text": "{{주제}}의 이번 주 진행 상황을 세 줄로 정리해 줘",
        },
    },
    "en": {
        "person": ("alex", "Alex Morgan"),
        "members": [("priya", "contributor"), ("tom", "reader")],
        "library": {
            "name": "Field manuals",
            "description": "Gateways and pumps: commissioning, faults and warranties",
        },
        "assistants": [
            {
                "name": "Fault finder",
                "description": "Looks up fault codes and says what to do next",
                "instructions": "Answer in numbered steps.",
                "starters": ["What does F-330 mean?", "How long is the warranty?"],
            },
            {
                "name": "Plain words",
                "description": "Explains clauses so that everybody understands them",
                "instructions": "Answer in short, plain sentences.",
            },
        ],
        "prompt": {
            "title": "Weekly report",
            "folder": "Reports",
            "text": "Sum up this week's progress on {{topic}} in three lines",
        },
    },
}
"""Who works with whom, with what they made for one another."""

KOREAN = """
> 통합돌봄 사업의 입찰 참가 자격과 하도급 제한은?
소프트웨어사업자로 신고한 업체로서 최근 3년 안에 **단일 계약 3억 원 이상** 공공 정보시스템
구축 실적이 1건 이상 있어야 합니다. [3.2 입찰 참가 자격]
공동수급은 주사업자를 포함하여 3개 업체까지 할 수 있습니다. [3.2 입찰 참가 자격]
하도급은 사업 금액의 50%를 넘을 수 없습니다. [3.2 입찰 참가 자격]

> HX-200의 보증 기간은?
무상 보증 기간은 구입한 날부터 **2년**이며, 팬 모터는 5년입니다. [무상 보증 기간]
헤파 필터도 1년 동안 무상으로 바꿔 줍니다. [무상 보증 기간]

> 헤파 필터를 바꾼 뒤에는 뭘 해야 해?
풍량 단추를 **7초 동안** 눌러 사용 시간을 0으로 되돌려야 합니다. [7초 동안]
되돌리지 않으면 새 필터를 끼워도 E-1234 알림이 계속 나옵니다. [7초 동안]

> 그럼 프리필터는 언제 교체해?
프리필터는 2주마다 물로 씻어 그늘에서 말리고, **2년**에 한 번 교체합니다. [| 프리필터 |]
"""

ENGLISH = """
> What does fault F-330 mean?
F-330 means that the **broker refused the certificate**. Compare the site code and request a new
certificate from operations. [F-330]

> How long is the warranty of the TG-4?
The warranty is **36 months** and begins on the date of hand-over. [warranty of 36 months]
It can be extended by 24 months. [warranty of 36 months]

> How often are level and flow sampled?
Level and flow are sampled every **15 seconds** and sent every 5 minutes. [every 15 seconds]

> And what happens when the link is down?
The gateway stores up to **21 days** of readings and sends them oldest first. [21 days of]
After 21 days the oldest readings are overwritten. [21 days of]
"""


@dataclass(frozen=True)
class Scenes:
    """What is asked in one language: a question, one with a doubted answer, one with a follow-up.

    A citation in an answer is given as words of the passage: `[words]` becomes `[3]`.
    """

    language: str
    document: str
    answers: dict[str, str]


def read_scenes(language: str, document: str, dialogue: str) -> Scenes:
    """Scenes from a dialogue: each question after `> `, the lines of its answer below it."""
    turns = [turn.strip().partition("\n") for turn in dialogue.split("> ")[1:]]
    answers = {question: text.replace("\n", " ") for question, _, text in turns}
    return Scenes(language, document, answers)


ALL_SCENES = (
    read_scenes("ko", SAMPLES[0].name, KOREAN),
    read_scenes("en", SAMPLES[2].name, ENGLISH),
)


def main() -> None:
    """Take all pictures, in both languages."""
    (PICTURES / "pages").mkdir(parents=True, exist_ok=True)
    expect.set_options(timeout=30_000)
    answers = {asked: text for scenes in ALL_SCENES for asked, text in scenes.answers.items()}
    with LLMServer() as model, tempfile.TemporaryDirectory() as folder:
        model.default = partial(reply, answers)
        settings = {"NURA_LLM_BASE_URL": model.url, "NURA_LLM_MODEL": "house-model"}
        with Product(Path(folder) / "var", **settings) as product:
            for scenes in ALL_SCENES:
                person = Person(product, TEAMS[scenes.language]["person"][0])
                upload_documents(person, scenes.language)
                with open_page(person, scenes.language) as page:
                    show_name(page, TEAMS[scenes.language]["person"][1])
                    take_pictures(page, person, scenes)
                    take_pictures_of_the_team(page, person, scenes)
                    take_pictures_of_the_shell(page, scenes)
                    page.context.clear_cookies(name="sessionid")
                    for path, name in SIGNED_OUT.items():
                        page.goto(path)
                        save_sheet(page, f"{name}-{scenes.language}")
                take_pictures_of_the_administration(product, scenes.language)


def reply(answers: dict[str, str], request: Any) -> Stream:
    """The answer to the last question of a prompt, citing by the numbers of this prompt."""
    prompt = str(request["messages"][-1]["content"])
    question = max(answers, key=prompt.rfind)
    cite = partial(find_passage, prompt)
    return Stream([re.sub(r"\[(.+?)\]", lambda words: f"[{cite(words[1])}]", answers[question])])


def find_passage(prompt: str, words: str) -> str:
    """The number of the passage that holds these words."""
    for passage in re.split(r"(?m)^(?=\[\d+\](?: |$))", prompt):
        if words in passage and (number := re.match(r"\[(\d+)\]", passage)):
            return number[1]
    raise LookupError(words)


def upload_documents(person: Person, language: str) -> None:
    """The samples with their metadata, and the others."""
    for name, file in OTHERS[language].items():
        person.upload(ROOT / file, name)
    for sample in SAMPLES:
        document = person.upload(FOLDER / sample.file, sample.name)
        person.api(f"documents/{document['id']}", {"metadata": sample.metadata}, "PATCH")
    person.wait_for_documents()


@contextmanager
def open_page(person: Person, language: str) -> Iterator[Page]:
    """A light window in this language, signed in."""
    executable = program()
    if executable is None:
        raise SystemExit("no Chromium on this machine: install the package chromium")
    with sync_playwright() as playwright:
        browser = Chromium(playwright, executable)
        context = browser.new_context(
            base_url=person.product.url,
            viewport=SIZE,
            locale="ko-KR" if language == "ko" else "en-US",
            timezone_id="Asia/Seoul",
            color_scheme="light",
            reduced_motion="reduce",
        )
        context.set_default_timeout(30_000)
        chosen = {"name": "django_language", "value": language, "url": person.product.url}
        context.add_cookies([*person.cookies(), chosen])
        yield context.new_page()
        browser.close_context(context)
        browser.close()


def take_pictures(page: Page, person: Person, scenes: Scenes) -> None:
    """Every picture of one language."""
    language = scenes.language
    question, doubted, first, followup = scenes.answers
    page.goto("/")
    ask(page, question)
    answer(page).locator(".cite").last.click()
    expect(page.locator("#panel .pdf-sentence, #panel .cited").first).to_be_visible()
    save(page, f"answer-{language}")
    save_sheet(page, f"source-{language}")

    page.locator("#panel-close").click()
    answer(page).locator("[data-action=why]").click()
    expect(page.locator("#panel .trace-candidates")).to_be_visible()
    save(page, f"why-{language}")
    save_sheet(page, f"why-{language}")

    page.goto("/")
    ask(page, doubted)
    answer(page).locator(".msg-checks").click()
    expect(page.locator("#panel .trace-checks")).to_be_visible()
    save(page, f"check-{language}")

    page.goto("/")
    ask(page, first)
    answer(page)
    ask(page, followup)
    expect(page.locator(".msg-answer .msg-actions")).to_have_count(2)
    save(page, f"followup-{language}")

    save_sheet(page, f"followup-{language}")

    page.goto("/documents")
    expect(page.get_by_text(scenes.document).first).to_be_visible()
    save(page, f"documents-{language}")
    save_sheet(page, f"documents-{language}")
    page.locator("#layouts [data-layout=cards]").click()
    save_sheet(page, f"documents-cards-{language}")
    page.locator("#layouts [data-layout=table]").click()

    found = person.api("documents?page_size=100")["results"]
    opened = next(one["id"] for one in found if one["name"] == scenes.document)
    page.goto(f"/documents/{opened}")
    shown = page.locator("#document-reader .doc-part, #document-reader .textLayer span")
    expect(shown.first).to_be_visible()
    if scenes.document.endswith(".pdf"):  # whose first page is a title
        page.locator("#document-reader .reader-page").fill("2")
        page.locator("#document-reader .reader-page").press("Enter")
    save(page, f"document-{language}")
    save_sheet(page, f"document-{language}")
    for tab in ("about", "index"):
        page.locator(f"#tab-{tab}").click()
        expect(page.locator(f"#part-{tab}")).to_be_visible()
        save_sheet(page, f"document-{tab}-{language}")


def show_name(page: Page, name: str) -> None:
    """Give the account a name that others read."""
    page.goto("/settings/profile")
    page.locator("[name=first_name]").fill(name)
    with page.expect_navigation():
        page.locator("[name=first_name]").press("Enter")


def take_pictures_of_the_team(page: Page, person: Person, scenes: Scenes) -> None:
    """A library with its members, assistants, prompts and a chat that is shown to others."""
    team, language = TEAMS[scenes.language], scenes.language
    library = person.api("libraries", team["library"])["id"]
    for name, role in team["members"]:
        person.product.add_user(name)
        person.api(f"libraries/{library}/members", {"user": name, "role": role})
    for one in person.api("documents?page_size=100")["results"]:
        if one["name"] in {sample.name for sample in SAMPLES}:
            person.api(f"documents/{one['id']}", {"library_id": library}, "PATCH")
    for one in team["assistants"]:
        person.api("assistants", {**one, "library_ids": [library]})
    person.api("prompts", team["prompt"])
    chat = person.api("chats")["results"][0]["id"]
    person.api(f"chats/{chat}/share", {"everybody": True})

    page.goto(f"/documents?library={library}")
    expect(page.get_by_text(scenes.document).first).to_be_visible()
    save_sheet(page, f"library-{language}")
    page.locator("#library-manage").click()
    expect(page.locator("#member-list li")).to_have_count(len(team["members"]) + 1)
    save(page, f"library-{language}")
    save_sheet(page, f"library-members-{language}")
    page.goto("/assistants")
    save(page, f"assistants-{language}")


def take_pictures_of_the_administration(product: Product, language: str) -> None:
    """What an administrator sees of all this."""
    name = f"admin-{language}"
    product.add_user(name, staff=True)
    with open_page(Person(product, name), language) as page:
        for path, picture in ADMINISTRATION.items():
            page.goto(f"/admin/{path}")
            save_sheet(page, f"{picture}-{language}")
        page.goto("/admin/")
        save(page, f"administration-{language}")


def take_pictures_of_the_shell(page: Page, scenes: Scenes) -> None:
    """What belongs to no document and no answer."""
    language = scenes.language
    page.goto("/")
    save_sheet(page, f"start-{language}")
    page.keyboard.press("Control+k")
    page.keyboard.type(list(scenes.answers)[-1].split()[-2])
    expect(page.locator("#palette-list mark").first).to_be_visible()
    save_sheet(page, f"search-{language}", keep_focus=True)
    page.keyboard.press("Escape")
    page.keyboard.press("Control+/")
    expect(page.locator("#shortcuts")).to_be_visible()
    save_sheet(page, f"shortcuts-{language}")
    page.goto("/settings/profile")
    sections = [one.get_attribute("href") or "" for one in page.locator(SECTIONS).all()]
    settings = {path: f"settings-{path.rpartition('/')[2]}" for path in sections}
    for path, name in (OTHER_PAGES | settings).items():
        page.goto(path)
        save_sheet(page, f"{name}-{language}")


def save(page: Page, name: str) -> None:
    """Write the window as docs/pictures/NAME.png."""
    write_picture(take_shot(page), PICTURES / f"{name}.png")


def save_sheet(page: Page, name: str, *, keep_focus: bool = False) -> None:
    """Write the window in all looks, on one sheet, as docs/pictures/pages/NAME.png."""
    shots = []
    for size, scheme in LOOKS:
        page.set_viewport_size(size)
        page.emulate_media(color_scheme=scheme)
        shot = take_shot(page, keep_focus=keep_focus)
        shots.append(shot.resize([round(side * SHEET_SCALE) for side in shot.size]))
    page.set_viewport_size(SIZE)
    page.emulate_media(color_scheme="light")
    across = shots[0].width + SHEET_GAP + shots[1].width
    down = shots[0].height + SHEET_GAP + shots[2].height
    sheet = Image.new("RGB", (across, down), "#888")
    for number, shot in enumerate(shots):
        at = (
            (number % 2) * (shots[0].width + SHEET_GAP),
            (number // 2) * (shots[0].height + SHEET_GAP),
        )
        sheet.paste(shot, at)
    write_picture(sheet, PICTURES / "pages" / f"{name}.png")


def take_shot(page: Page, *, keep_focus: bool = False) -> Image.Image:
    """The window as it stands, when all is there."""
    page.mouse.move(0, 0)
    if not keep_focus:
        page.evaluate("document.activeElement.blur()")
    expect(page.locator(".hover-card:popover-open")).to_have_count(0)
    settle(page)
    return Image.open(io.BytesIO(page.screenshot(animations="disabled", caret="hide")))


def write_picture(shot: Image.Image, target: Path) -> None:
    """Write it with a palette, to keep it small."""
    shot.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(target, optimize=True)
    print(target.relative_to(ROOT))


if __name__ == "__main__":
    main()
