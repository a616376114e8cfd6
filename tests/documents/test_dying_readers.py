"""A picture that kills its reader does not take the text of its document along."""

import sys
from dataclasses import replace

import pytest

from documents.parsers.sandbox import client
from tests.documents.parsers.pictured import chart
from tests.documents.test_described_pictures import again, report, run, uploaded

pytestmark = pytest.mark.django_db(transaction=True)

DYING = """
import os
from documents.parsers import pictures
from documents.parsers.sandbox import server
def reduce_image(image):
    {death}
pictures.reduce_image = reduce_image
server.main()
"""
ABORTING = "os.abort()"
LOOPING = "while True: pass"


@pytest.fixture
def let_readers_die(tmp_path, monkeypatch):
    """Let readers die over the first picture that they decode."""

    def use(death):
        program = tmp_path / "dying.py"
        program.write_text(DYING.format(death=death))
        monkeypatch.setattr(client, "PROGRAM", (sys.executable, str(program)))
        monkeypatch.setattr(client, "_servers", client._Servers())

    return use


@pytest.mark.parametrize("death", [ABORTING, LOOPING])
def test_a_picture_that_kills_its_reader_is_left_out_and_the_text_is_found(
    owner, sent, tiny_engine, tmp_path, settings, let_readers_die, death
):
    settings.READING_LIMITS = replace(settings.READING_LIMITS, seconds=4, seconds_per_page=0)
    let_readers_die(death)
    document = run(uploaded(owner, report(tmp_path, chart(), text="Sales in May")))
    assert (document.status, document.warnings) == ("COMPLETED", ["pictures_skipped"])
    assert "Sales in May" in document.chunks.get().text
    assert not document.pictures.exists()


def test_a_picture_that_no_longer_kills_comes_back_when_the_document_is_processed_again(
    owner, sent, tiny_engine, tmp_path, let_readers_die
):
    let_readers_die(ABORTING)
    document = run(uploaded(owner, report(tmp_path, chart(), text="Sales in May")))
    assert document.warnings == ["pictures_skipped"]
    let_readers_die("return image.convert('RGB')")
    again(document)
    assert (document.warnings, document.pictures.count()) == ([], 1)


def test_a_file_whose_pictures_are_all_it_holds_fails_for_what_killed_its_reader(
    owner, sent, tiny_engine, tmp_path, let_readers_die
):
    let_readers_die(ABORTING)
    document = run(uploaded(owner, report(tmp_path, chart(), text="")))
    assert (document.status, document.stage) == ("PROCESSING", "queued")
    run(document)
    assert (document.status, document.error_code) == ("FAILED", "parser_crashed")
    assert document.attempts == 2
