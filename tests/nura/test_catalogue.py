"""Every text for people has its Korean, and the compiled catalogues are those of the sources."""

import ast
import gettext
import re
import string
from pathlib import Path

import pytest
from django.conf import settings
from django.utils.translation.template import templatize

ROOT = settings.BASE_DIR
FLOORS = ("nura", "chats", "documents", "jobs", "rag")
PLAIN = {"_", "gettext", "gettext_lazy", "gettext_noop"}
PLURAL = {"ngettext", "ngettext_lazy"}
CALL = re.compile(r"""\b(_|n?gettext)\((u?(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'))""")
OURS = ROOT / "locale/ko/LC_MESSAGES/django.po"
LIBRARIES = ROOT / "locale/libraries/ko/LC_MESSAGES"
CATALOGUES = [OURS, LIBRARIES / "django.po", LIBRARIES / "djangojs.po"]
STANDS_FOR = re.compile(r"%\(\w+\)[sd]|\{\w*\}")


def read_texts_of_python(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
            continue
        first = node.args[0]
        if node.func.id in PLAIN | PLURAL and isinstance(first, ast.Constant):
            yield first.value


def read_texts_of_template(path):
    code = templatize(path.read_text(encoding="utf-8"), origin=str(path))
    for _name, literal in CALL.findall(code):
        yield ast.literal_eval(literal)


def read_texts_of_sources():
    for floor in FLOORS:
        for path in (ROOT / floor).rglob("*.py"):
            if "migrations" not in path.parts:
                yield from read_texts_of_python(path)
    for kind in ("*.html", "*.txt"):
        for path in (ROOT / "templates").rglob(kind):
            yield from read_texts_of_template(path)


def read_entries(path):
    """`{msgid: msgstr}` of a .po file, plural forms under their singular."""
    found, msgid, field = {}, None, None
    for line in path.read_text(encoding="utf-8").splitlines():
        keyword = re.match(r'(msgid_plural|msgid|msgstr)(?:\[0\])? (".*")$', line)
        text = (
            ast.literal_eval(keyword[2] if keyword else line) if keyword or line[:1] == '"' else ""
        )
        if keyword:
            field = keyword[1]
        if field == "msgid" and keyword:
            msgid = text
        elif field == "msgid" and text:
            msgid += text
        elif field == "msgstr" and (keyword or text):
            found[msgid] = found.get(msgid, "") + text
    return found


def read_compiled(path):
    with path.with_suffix(".mo").open("rb") as file:
        catalogue = gettext.GNUTranslations(file)._catalog
    return {key[0] if isinstance(key, tuple) else key: text for key, text in catalogue.items()}


def test_every_text_of_the_sources_has_its_korean():
    korean = read_compiled(OURS)
    missing = {text for text in read_texts_of_sources() if text.strip() and not korean.get(text)}
    assert not missing


def test_the_catalogue_holds_nothing_that_the_sources_do_not():
    left_over = set(read_entries(OURS)) - set(read_texts_of_sources()) - {""}
    assert not left_over


@pytest.mark.parametrize("path", CATALOGUES, ids=["ours", "libraries", "scripts"])
def test_the_compiled_catalogue_is_up_to_date(path: Path):
    written = {key: text for key, text in read_entries(path).items() if key and text}
    made = {key: text for key, text in read_compiled(path).items() if key}
    assert written == made


@pytest.mark.parametrize("path", CATALOGUES, ids=["ours", "libraries", "scripts"])
def test_a_translation_fills_in_what_its_original_fills_in(path: Path):
    for original, korean in read_entries(path).items():
        if original:
            assert set(STANDS_FOR.findall(korean)) <= set(STANDS_FOR.findall(original)), original


def test_a_translation_is_korean_unless_it_is_a_name():
    for original, korean in read_entries(OURS).items():
        if not original or re.search("[가-힣]", korean):
            continue
        letters = set(re.findall(r"[A-Za-z]+", STANDS_FOR.sub("", korean)))
        assert all(word[0] in string.ascii_uppercase for word in letters), original


@pytest.mark.parametrize("path", CATALOGUES, ids=["ours", "libraries", "scripts"])
def test_pages_ask_in_one_tone(path: Path):
    """~해 주세요; to invite ~해 보세요, to warn ~하지 마세요, for later ~해 두세요."""
    for korean in read_entries(path).values():
        assert not re.search(r"(?<! [주두])(?<![보마])세요|십시오|해주세요", korean), korean
