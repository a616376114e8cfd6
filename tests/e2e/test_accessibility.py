"""WCAG 2.2 AA by axe: every page in both languages, light and dark, wide and on a phone."""

import itertools
from pathlib import Path

import pytest
from playwright.sync_api import expect

from nura.accounts.preferences import SECTIONS
from tests.e2e.chat import settle
from tests.e2e.people import Person
from tests.support import ROOT

AXE = ROOT / "front" / "node_modules" / "axe-core" / "axe.min.js"
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 375, "height": 740}
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RUN = """(rules) => axe.run(document, {runOnly: rules, resultTypes: ["violations"]}).then((found) =>
  found.violations.flatMap((one) => one.nodes.map((node) =>
    `${one.id}: ${node.target.join(" ")}: ${node.any[0]?.message ?? node.failureSummary}`)))"""
SAMPLE = ("en", "light", WIDE), ("ko", "dark", PHONE)
LOOKS = [
    pytest.param(
        *look,
        id=f"{look[0]}-{look[1]}-{look[2]['width']}",
        marks=() if look in SAMPLE else pytest.mark.whole,
    )
    for look in itertools.product(("ko", "en"), ("light", "dark"), (WIDE, PHONE))
]
"""Each run sees every language, scheme and size once; `--whole` all of them together."""


def is_due(number, size, whole):
    """Whether axe looks at this page of many: in one of a run's two looks, with `--whole` in all.

    What only a phone can break, its width and what is tapped on it, is looked at on every page.
    """
    return whole or number % 2 == (size == PHONE)


OPEN = ["/accounts/login/", "/accounts/signup/", "/accounts/password/reset/", "/offline"]
OWN = [
    "/",
    "/documents",
    "/assistants",
    "/assistants/new",
    "/prompts",
    "/prompts/new",
    "/shared",
    "/nowhere",
    "/accounts/password/change/",
    "/settings/email",
]
OWN += [f"/settings/{one.route.removeprefix('accounts:')}" for one in SECTIONS]

pytestmark = pytest.mark.skipif(not AXE.exists(), reason="npm --prefix front ci installs axe-core")


@pytest.fixture(scope="module")
def places(reader):
    """A chat with an answer from a document, and the documents."""
    chat = reader.api("messages", {"content": "헤파 필터는 언제 교체하나요?"})["chat_id"]
    documents = reader.api("documents")["results"]
    return [f"/c/{chat}", *(f"/documents/{one['id']}" for one in documents[:2])]


@pytest.fixture
def look(windows):
    """Opens a window of this look; axe is in all its pages."""

    def open_window(language, scheme, size, **who):
        page = windows(
            who.get("person"),
            product=who.get("product"),
            viewport=size,
            color_scheme=scheme,
            reduced_motion="reduce",
            has_touch=size == PHONE,
            is_mobile=size == PHONE,
        )
        chosen = {"name": "django_language", "value": language}
        page.context.add_cookies(
            [{**chosen, "url": (who.get("product") or who["person"].product).url}]
        )
        return page

    return open_window


def list_violations(page):
    """What axe finds in the page as it stands; it is run beside the page's own scripts."""
    page.evaluate(Path(AXE).read_text(encoding="utf-8"))
    return page.evaluate(RUN, RULES)


SMALL = """() => [...document.querySelectorAll("a[href], button, input, select, textarea")]
.flatMap((one) => {
  const isChoice = one.matches("[type=radio], [type=checkbox]");
  const target = isChoice ? (one.closest("label") ?? one.labels[0] ?? one) : one;
  const box = target.getBoundingClientRect();
  const isShown = one.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const isInText = one.matches("p a, .prose a, .cite");
  const isWhole = box.top >= 0 && box.bottom <= innerHeight && box.right <= innerWidth;
  if (!isShown || isInText || !isWhole || !box.width || one.closest("[inert]")) return [];
  const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
  const hits = (dx, dy) => {
    const hit = document.elementFromPoint(x + dx, y + dy);
    return !hit || target.contains(hit);
  };
  if (document.elementFromPoint(x, y)?.closest("a, button, input, label") !== target) return [];
  const isTall = box.height >= 43 || (hits(0, -20) && hits(0, 20));
  const isWide = box.width >= 43 || (hits(-20, 0) && hits(20, 0));
  return isTall && isWide ? [] : [`${one.outerHTML.slice(0, 120)} ${box.width}x${box.height}`];
})"""


@pytest.mark.parametrize(("language", "scheme", "size"), LOOKS)
def test_no_page_has_a_violation(language, scheme, size, look, reader, places, whole):
    """What is tapped on a phone is large enough besides."""
    page = look(language, scheme, size, person=reader)
    found = {}
    for number, path in enumerate([*OWN, *places]):
        due = is_due(number, size, whole)
        if not due and size != PHONE:
            continue
        page.goto(path)
        settle(page)
        if path.startswith("/c/"):
            expect(page.locator(".msg-answer .msg-actions")).to_be_visible()
        small = page.evaluate(SMALL) if size == PHONE else []
        if violations := small + (list_violations(page) if due else []):
            found[path] = violations
    reader.api("me/preferences", {"document_layout": "cards"}, "PATCH")
    page.goto("/documents")
    expect(page.locator("#document-table")).to_have_attribute("data-layout", "cards")
    if violations := list_violations(page):
        found["cards"] = violations
    reader.api("me/preferences", {"document_layout": "table"}, "PATCH")
    assert not found, "\n".join(f"{path}\n  " + "\n  ".join(all_) for path, all_ in found.items())


@pytest.mark.parametrize(("language", "scheme", "size"), LOOKS)
def test_no_page_for_everybody_has_a_violation(language, scheme, size, look, product, whole):
    page = look(language, scheme, size, product=product)
    found = {}
    for number, path in enumerate(OPEN):
        if not is_due(number, size, whole):
            continue
        page.goto(path)
        if violations := list_violations(page):
            found[path] = violations
    assert not found, "\n".join(f"{path}\n  " + "\n  ".join(all_) for path, all_ in found.items())


@pytest.mark.parametrize(("language", "scheme", "size"), LOOKS)
def test_what_lies_over_a_page_has_no_violation(language, scheme, size, look, reader, places):
    page = look(language, scheme, size, person=reader)
    found = {}
    page.goto(places[0])
    expect(page.locator(".msg-answer .msg-actions")).to_be_visible()
    page.keyboard.press("Control+k")
    page.keyboard.type("필터")
    expect(page.locator("#palette-list mark").first).to_be_visible()
    found["palette"] = list_violations(page)
    page.keyboard.press("Escape")
    page.keyboard.press("Control+/")
    found["shortcuts"] = list_violations(page)
    page.keyboard.press("Escape")
    page.locator(".msg-answer .cite").first.click()
    expect(page.locator("#panel")).to_be_visible()
    page.mouse.move(0, 0)  # or the tooltip of the marker, which no region may hold, comes up
    expect(page.locator(".hover-card:popover-open")).to_have_count(0)
    found["panel"] = list_violations(page)
    assert not any(found.values()), found


ADMINISTRATION = ["", "usage/", "failures/", "queue/", "storage/", "backup/", "unanswered/"]
ADMINISTRATION += ["evaluation/", "retention/", "version/"]


@pytest.mark.parametrize(("language", "scheme", "size"), LOOKS)
def test_no_page_of_the_administration_has_a_violation(
    language, scheme, size, look, product, whole
):
    name = f"chief-{language}-{scheme}-{size['width']}"
    product.add_user(name, "correct-horse-9", staff=True)
    page = look(language, scheme, size, person=Person(product, name))
    found = {}
    for number, path in enumerate(ADMINISTRATION):
        due = is_due(number, size, whole)
        if not due and size != PHONE:
            continue
        page.goto(f"/admin/{path}")
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], path
        for one in page.locator(".nu-page .sr-only").all():  # is heard, and not seen
            assert one.bounding_box()["width"] <= 1, path
        if due and (violations := list_violations(page)):
            found[path] = violations
    assert not found, "\n".join(f"{path}\n  " + "\n  ".join(all_) for path, all_ in found.items())


def test_what_opens_at_a_tap_is_large_enough(windows, reader, places):
    page = windows(reader, viewport=PHONE, has_touch=True, is_mobile=True)
    found = {}
    page.goto(places[0])
    page.locator(".msg-answer .cite").first.tap()
    expect(page.locator("#panel")).to_be_visible()
    found["panel"] = page.evaluate(SMALL)
    page.goto("/documents")
    page.locator("[data-choose]").first.check()
    found["bulk"] = page.evaluate(SMALL)
    assert not any(found.values()), "\n".join(f"{at} {all_}" for at, all_ in found.items() if all_)
