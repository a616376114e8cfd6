"""The words that the scripts of the pages ask for are in the pages."""

import json
import re

import pytest
from django.utils import translation

from nura.templatetags.page_strings import PAGES, page_strings
from tests.support import ROOT

SCRIPTS = sorted((ROOT / "front" / "js").glob("*.js"))
ASKED = re.compile(r"""\b(?:t|tn|hasString)\("([\w.]+)"[,)]""")


def test_every_sentence_that_a_script_asks_for_by_name_is_in_a_page():
    known = set().union(*PAGES.values())
    asked = {key for path in SCRIPTS for key in ASKED.findall(path.read_text(encoding="utf-8"))}
    assert len(asked) > 100
    assert asked <= known


@pytest.mark.parametrize("page", PAGES)
def test_a_page_holds_its_words_in_the_language_of_the_reader(page):
    with translation.override("ko"):
        found = re.fullmatch(r"<script id=\"strings\"[^>]*>(.*)</script>", page_strings(page))
    assert found
    words = json.loads(found[1])
    assert words.keys() == PAGES[page].keys()
    assert words["close"] == "닫기"


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("end.STOPPED", "The answer was stopped."),
        ("end.STOPPED.partial", "The answer was stopped here."),
        ("scope_next.gone", "Documents no longer available"),
    ],
)
def test_who_has_left_a_library_is_not_told_that_they_stopped_or_deleted_something(key, words):
    with translation.override("en"):
        assert str(PAGES["chat"][key]) == words
