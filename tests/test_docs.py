"""The documentation names only files, modules and headings that exist."""

import re
from pathlib import Path

import pytest

from tests.support import ROOT

PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
]
NAMES_OF_BEFORE = {"CHANGELOG.md"}
FLOORS = ("nura", "chats", "documents", "jobs", "rag", "tests", "benchmarks", "deploy", "docs")
FAULTS = ROOT / "docs" / "faults.md"
MADE_LATER = ("front/node_modules", "var/")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", page.read_text("utf-8")):
        file, _, heading = target.partition("#")
        place = (page.parent / file).resolve() if file else page
        assert place.exists(), target
        if heading:
            assert heading in headings(place), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_and_module_named_exists(page):
    if page.name in NAMES_OF_BEFORE:
        pytest.skip("names what was there before")
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for words in re.findall(r"`([^`\n]+)`", text):
        for path in re.findall(r"^[\w./*-]+/[\w./*-]+$", words):
            if path.split("/")[0] in FLOORS and not path.startswith(MADE_LATER):
                assert list(ROOT.glob(path.rstrip("/"))), path
        if module := re.fullmatch(r"python -m ([\w.]+).*", words):
            place = ROOT / module[1].replace(".", "/")
            assert place.is_dir() or place.with_suffix(".py").exists(), words


def test_every_test_named_exists():
    for page in PAGES:
        for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text("utf-8")):
            assert re.search(rf"def {name}\(", (ROOT / path).read_text("utf-8")), (page, path, name)


def test_each_fault_has_a_test_or_the_reason_why_not():
    rows = re.findall(r"(?m)^\| (\d+) \| .+? \| (.*)\| (.+) \|$", FAULTS.read_text("utf-8"))
    assert [int(number) for number, _, _ in rows] == list(range(1, 101))
    for number, tests, verdict in rows:
        assert re.match(r"held\b|(partly|not): ", verdict), number
        assert tests or verdict.startswith("not: "), number


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as forges make them."""
    titles = re.findall(r"(?m)^#+ (.+)$", page.read_text("utf-8"))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
