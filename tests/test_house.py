"""The rules of the house, held over the project's own files."""

import ast
import functools
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT

SUFFIXES = (".py", ".js", ".css", ".html")
NOT_OURS = re.compile(r"(^|/)migrations/|^static/nura/built/|^front/node_modules/")

ROOMS = {
    *("nura", "chats", "documents", "jobs", "rag", "templates", "static", "front", "locale"),
    *("tests", "docs", "deploy", "benchmarks", "requirements"),
}
AT_THE_DOOR = {
    *(
        "Makefile",
        "README.md",
        "README.ko.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "LICENSE",
        "manage.py",
        "pyproject.toml",
        ".gitignore",
        ".ci",
    ),
    *(".env.example", ".dockerignore", ".editorconfig", ".gitattributes"),
    *(".github", ".pre-commit-config.yaml"),
}
OPTIONAL = ("ldap", "django_auth_ldap", "pymupdf", "fitz", "vllm")
"""Libraries of requirements that an installation may lack."""
HEAVY = ("torch", "sentence_transformers", "kiwipiepy", "pypdfium2", "openai", "pdfplumber", "mcp")
ADAPTERS = {
    "torch": 1,
    "sentence_transformers": 1,
    "kiwipiepy": 1,
    "openai": 2,  # embeddings, and what all calls share
    "pypdfium2": 1,
    "pdfplumber": 1,
    "splintr": 1,
    "docx": 1,
    "pymupdf": 1,
    "fitz": 1,
}
"""How many files may import each, all of them inside functions."""

NO_EVENT_THERE = {
    "documents/management/commands/reindex.py",  # the lease of a process that was killed runs out
    "documents/spaces.py",  # others were in the way of a lock, and shall get on
    "documents/sources/kinds/web.py",  # politeness to the servers of others
    "jobs/lease.py",  # the beat of a lease
    "nura/accounts/profile.py",  # takes equally long for all, whatever happens
    "nura/embedded/spawn.py",  # files and answers of a server that just starts
    "nura/management/commands/up.py",  # a port is held: the kernel tells nobody when it is free
}


def listed() -> list[str]:
    """Files that git knows or would take in; without git, all outside of hidden folders."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode == 0 and found.stdout:
        return sorted(name for name in found.stdout.splitlines() if (ROOT / name).is_file())
    paths = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return sorted(str(p) for p in paths if not p.parts[0].startswith(".") and p.parts[0] != "var")


FILES = listed()
SOURCES = [name for name in FILES if name.endswith(SUFFIXES) and not NOT_OURS.search(name)]
PRODUCT = [name for name in SOURCES if not name.startswith(("tests/", "benchmarks/"))]
PYTHON_OF_PRODUCT = [name for name in PRODUCT if name.endswith(".py")]
PYTHON = [name for name in SOURCES if name.endswith(".py")]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def places(pattern: str, names: list[str]) -> list[str]:
    """file:line of every match."""
    compiled = re.compile(pattern)
    return [
        f"{name}:{number}"
        for name in names
        for number, line in enumerate(text(name).splitlines(), 1)
        if compiled.search(line)
    ]


def test_nothing_is_left_to_be_done_later():
    assert not places(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b", SOURCES)


def test_nobody_sleeps_where_an_event_belongs():
    found = places(
        r"\btime\.sleep\(|from time import .*\bsleep\b|threading\.Event\(\)\.wait",
        PYTHON_OF_PRODUCT,
    )
    assert {place.partition(":")[0] for place in found} <= NO_EVENT_THERE


def test_nothing_happens_behind_a_model_by_a_signal():
    pattern = r"django\.db\.models\.signals|django\.dispatch|@receiver\b"
    assert not places(pattern, PYTHON_OF_PRODUCT)


BY_CONVENTION = {"Meta", "Command", "Migration", "Status"}
"""Django's own; `Status` is nested in its model and always named with it."""


@functools.cache
def parse(name: str) -> ast.Module:
    return ast.parse(text(name))


def list_classes(name: str) -> Iterator[str]:
    return (node.name for node in ast.walk(parse(name)) if isinstance(node, ast.ClassDef))


def test_a_class_name_means_one_thing():
    names = Counter(found for name in PYTHON_OF_PRODUCT for found in list_classes(name))
    assert {name for name, times in names.items() if times > 1} <= BY_CONVENTION


def test_each_room_is_on_the_map():
    tops = {name.split("/", 1)[0] for name in FILES}
    assert tops <= ROOMS | AT_THE_DOOR
    assert {"nura", "chats", "documents", "jobs", "rag", "tests"} <= tops


def run_in_a_fresh_process(code: str) -> list[str]:
    """What the code prints, in words, in a process that has loaded nothing of the tests."""
    run = subprocess.run(
        [sys.executable, "-c", f"import django, sys; {code}"],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "nura.settings.test"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def test_light_processes_load_no_heavy_library():
    modules = "chats.socket, nura.asgi, documents.tasks"
    loaded = f"django.setup(); import {modules}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    assert run_in_a_fresh_process(loaded) == []


def test_the_settings_load_little_of_the_engine():
    """`up` and every command read them."""
    parts = {"rag", "rag.config", "rag.errors", "rag.types"}
    loaded = (
        "settings.RAG; print(*(name for name in sys.modules if name.partition('.')[0] == 'rag'))"
    )
    assert set(run_in_a_fresh_process(f"from django.conf import settings; {loaded}")) <= parts


def test_the_product_starts_without_its_optional_libraries():
    """`None` in `sys.modules` lets an import fail as that of a library that is not installed."""
    missing = f"sys.modules.update(dict.fromkeys({OPTIONAL!r}))"
    modules = "nura.urls, nura.tasks, nura.answers, documents.tasks"
    run_in_a_fresh_process(f"{missing}; django.setup(); import {modules}")


def imports_of(name: str) -> Iterator[tuple[str, bool]]:
    """Top names that a file imports, and whether at its import."""
    tree = parse(name)
    inner = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""] if not node.level else []
        else:
            continue
        for found in names:
            yield found.split(".")[0], id(node) not in inner


def test_a_heavy_library_has_one_adapter_and_is_imported_when_it_is_needed():
    users: dict[str, set[str]] = {}
    early = []
    for name in PYTHON_OF_PRODUCT:
        for library, at_import in imports_of(name):
            if library in ADAPTERS:
                users.setdefault(library, set()).add(name)
                early += [f"{name} imports {library}"] if at_import else []
    assert not early
    assert not {name: files for name, files in users.items() if len(files) > ADAPTERS[name]}


def test_no_test_depends_on_a_benchmark():
    tests = [name for name in PYTHON if name.startswith("tests/")]
    assert not [name for name in tests if any(top == "benchmarks" for top, _ in imports_of(name))]


REQUIREMENTS = sorted((ROOT / "requirements").glob("*.txt"))


def pins(path: Path) -> dict[str, str]:
    """Package and version of each line; a line that is no exact pin has no version."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        wanted = line.split(" #")[0].strip()
        if wanted and not wanted.startswith(("#", "-r ", "-c ")):
            exact = re.fullmatch(r"([\w.-]+)(?:\[[\w,-]+\])?==([\w.+!]+)", wanted)
            found[exact[1] if exact else wanted] = exact[2] if exact else ""
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.parametrize("path", REQUIREMENTS, ids=lambda path: path.name)
def test_every_requirement_is_an_exact_version(path):
    assert not [name for name, version in pins(path).items() if not version]


def test_what_we_ask_for_is_what_is_locked():
    locked = {normal(n): v for n, v in pins(ROOT / "requirements" / "lock.txt").items()}
    for name in ("base.txt", "models.txt", "dev.txt"):
        asked = pins(ROOT / "requirements" / name)
        assert not {n: v for n, v in asked.items() if locked.get(normal(n), v) != v}
        assert {normal(n) for n in asked} <= set(locked)


def read_anchors(path: Path) -> set[str]:
    """The anchors of a Markdown file's headings, as forges make them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize(
    "name",
    [name for name in FILES if name.endswith(".md") and "/" not in name]
    + [name for name in FILES if re.match(r"(docs|deploy)/.*\.md$", name)],
)
def test_every_link_between_our_pages_leads_somewhere(name):
    pages = re.sub(r"```.*?```", "", text(name), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", pages):
        if re.match(r"https?:|mailto:", link):
            continue
        target, _, anchor = link.partition("#")
        path = (ROOT / name).parent / target if target else ROOT / name
        assert path.exists(), link
        assert not anchor or anchor in read_anchors(path), link


def test_what_may_fail_after_a_commit_has_a_name_that_django_can_log():
    """Of a `partial` that fails it looks for a name, and that error reaches whoever asked."""
    found = []
    for floor in ("nura", "chats", "documents", "jobs"):
        for path in (ROOT / floor).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                robust = isinstance(node, ast.Call) and any(
                    k.arg == "robust" for k in node.keywords
                )
                if robust and isinstance(node.args[0], ast.Call):
                    found.append(f"{path}:{node.lineno}")
    assert found == []
