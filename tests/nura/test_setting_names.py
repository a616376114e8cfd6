"""Settings and commands are named to administrators alone: no text for users tells of them."""

import ast
import re

import pytest

from nura.settings import reference
from tests.nura.test_catalogue import (
    FLOORS,
    OURS,
    ROOT,
    read_entries,
    read_texts_of_python,
    read_texts_of_template,
)

SETTINGS = sorted((name for name in reference.describe_names() if "_" in name), key=len)[::-1]
NAMES = re.compile(rf"\b(?:NURA_[A-Z]|(?:{'|'.join(SETTINGS)})\b)|manage\.py")
MATTERS_OF_THE_SERVER = re.compile(
    rf"{NAMES.pattern}|\bREADME\b|(?<!\w)\.env\b|\bdoctor\b|environment variable|환경\s?변수",
    re.IGNORECASE,
)
FOR_ADMINISTRATORS = re.compile(
    r"(?:^|/)admin(?:\.py$|/)|(?:^|/)administration/|/connected/|/management/|"
    r"^documents/spaces\.py$"  # `manage.py doctor` and the page of the embedding spaces
)


def list_files(suffix, *folders):
    """`{name: text}` of our files, without those that only administrators get to see."""
    found = {}
    for path in (path for folder in folders for path in (ROOT / folder).rglob(f"*{suffix}")):
        name = str(path.relative_to(ROOT))
        if not FOR_ADMINISTRATORS.search(name) and "/migrations/" not in name:
            found[name] = path.read_text(encoding="utf-8")
    return found


def list_strings(source):
    """The texts in a Python source, without its docstrings."""
    tree = ast.parse(source)
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.value


def test_the_rule_knows_names_when_it_sees_them():
    assert MATTERS_OF_THE_SERVER.search("관리자가 NURA_LLM_BASE_URL을 설정하면")
    assert MATTERS_OF_THE_SERVER.search("Put it into .env.")
    assert not MATTERS_OF_THE_SERVER.search("관리자에게 알려 주세요.")


def test_no_entry_of_the_catalogue_names_a_setting_unless_it_is_for_administrators():
    meant = set()
    for path in (path for floor in FLOORS for path in (ROOT / floor).rglob("*.py")):
        if FOR_ADMINISTRATORS.search(str(path.relative_to(ROOT))):
            meant |= set(read_texts_of_python(path))
    for path in (ROOT / "templates" / "admin").rglob("*.html"):
        meant |= set(read_texts_of_template(path))
    naming = {
        original
        for original, korean in read_entries(OURS).items()
        if original and MATTERS_OF_THE_SERVER.search(f"{original}\n{korean}")
    }
    assert naming, "the advice for administrators names settings"
    assert not naming - meant


@pytest.mark.parametrize("folder", ["chats", "documents", "rag"])
def test_no_text_of_the_program_names_a_setting(folder):
    sources = list_files(".py", folder)
    naming = {
        (name, text)
        for name, source in sources.items()
        for text in list_strings(source)
        if NAMES.search(text)
    }
    assert not naming


@pytest.mark.parametrize(
    ("suffix", "folder"), [(".html", "templates"), (".txt", "templates"), (".js", "front/js")]
)
def test_no_page_names_a_setting(suffix, folder):
    assert not [name for name, text in list_files(suffix, folder).items() if NAMES.search(text)]


def test_no_answer_that_is_ready_made_names_a_setting():
    replies = list_files(".toml", "rag/replies") | list_files(".txt", "rag/prompts")
    assert {"rag/replies/ko.toml", "rag/replies/en.toml"} <= set(replies)
    assert not [name for name, text in replies.items() if MATTERS_OF_THE_SERVER.search(text)]
