"""Text recognition beside the reading of further pages, with a stand-in for its program."""

import os
import sys
from pathlib import Path

import pytest
from PIL import Image, ImageDraw

from documents.parsers import formats
from documents.parsers.base import Limits
from documents.parsers.sandbox import client
from tests.documents.parsers.samples import Pdf
from tests.support import wait_until

LIMITS = Limits(seconds=120)
WORDS = "level\\n5\\t1\\t1\\t1\\t1\\t1\\t100\\t1000\\t400\\t40\\t95\\tRecognised"
"""A table of one word in the middle of a page."""


class Recognising:
    """Readings whose recognition is this script; `cores` may be used."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder, self._monkeypatch = folder, monkeypatch

    def by(self, script: str, cores: int = 2) -> None:
        """The script finds what it needs in its own folder."""
        stand_in, program = self._folder / "stand-in", self._folder / "program.py"
        stand_in.write_text(f"#!/bin/sh\ncd {self._folder}\n{script}\nprintf '{WORDS}'\n")
        stand_in.chmod(0o755)
        program.write_text(
            "import os\n"
            "from documents.parsers.sandbox import server\n"
            "from documents.parsers.pdf import ocr\n"
            "server.enter_jail = lambda *_, **__: None  # it lets tesseract alone run\n"
            f"ocr.find_program = lambda: {str(stand_in)!r}\n"
            f"os.sched_getaffinity = lambda _: set(range({cores}))\n"
            "server.main()\n"
        )
        self._monkeypatch.setattr(client, "PROGRAM", (sys.executable, str(program)))
        self._monkeypatch.setattr(client, "_servers", client._Servers())


@pytest.fixture
def recognising(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recognising:
    return Recognising(tmp_path, monkeypatch)


def write_document(folder: Path, *pages: str) -> Path:
    """A PDF of these pages; one without text is a scan."""
    import pypdfium2

    whole = pypdfium2.PdfDocument.new()
    for number, text in enumerate(pages):
        path = folder / f"{number}.pdf"
        if text:
            Pdf().page((50, 700, text)).write(path)
        else:
            picture = Image.new("L", (1240, 1754), 255)
            ImageDraw.Draw(picture).rectangle((150, 200 + number, 900, 260))
            picture.save(path, resolution=150)
        whole.import_pages(pypdfium2.PdfDocument(path))
    whole.save(folder / "a.pdf")
    return folder / "a.pdf"


def read_texts(path: Path, limits: Limits = LIMITS) -> tuple[list[str], list[str]]:
    """Texts of the pages, and warnings."""
    with client.read_document(path, formats.PDF, limits=limits) as reading:
        pages = list(reading)
    assert [page.number for page in pages] == list(range(1, len(pages) + 1))
    return [page.text for page in pages], reading.warnings


MEETING = """
cat > /dev/null
if mkdir first 2> /dev/null; then read _ < meeting
elif mkdir second 2> /dev/null; then echo > meeting
fi
"""
"""The first waits for a second."""


def test_pages_are_read_while_one_before_them_is_recognised(
    recognising: Recognising, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "meeting")
    recognising.by(MEETING)

    found, warnings = read_texts(write_document(tmp_path, "", "Between", "", "After"))

    assert found == ["Recognised", "Between", "Recognised", "After"]
    assert warnings == []


ALONE = "cat > /dev/null\nmkdir at-work || exit 1\nrmdir at-work"


def test_no_more_are_recognised_at_once_than_there_are_cores(
    recognising: Recognising, tmp_path: Path
) -> None:
    recognising.by(ALONE, cores=1)

    assert read_texts(write_document(tmp_path, "", "", "")) == (["Recognised"] * 3, [])


def test_a_page_that_takes_too_long_to_recognise_is_left_out(
    recognising: Recognising, tmp_path: Path
) -> None:
    recognising.by("exec sleep 600")
    limits = Limits(seconds=120, seconds_per_recognised_page=0.2)

    found, warnings = read_texts(write_document(tmp_path, "", "After"), limits)

    assert found == ["", "After"]
    assert warnings == ["page_unreadable"]


def test_recognition_that_fails_leaves_out_its_page(
    recognising: Recognising, tmp_path: Path
) -> None:
    recognising.by("exit 1")

    assert read_texts(write_document(tmp_path, "", "After")) == (["", "After"], ["page_unreadable"])


@pytest.mark.parametrize("words", ["", "cat > /dev/null\n"])
def test_the_program_of_recognition_ends_with_its_reading(
    recognising: Recognising, tmp_path: Path, words: str
) -> None:
    os.mkfifo(tmp_path / "begun")
    recognising.by(f"{words}echo $$ > begun\nexec sleep 600")
    with client.read_document(write_document(tmp_path, "", "After"), formats.PDF) as reading:
        frames = reading._child.iterate_frames()
        assert next(frames)[0] == "page_total"
        pid = int((tmp_path / "begun").read_text())
        assert Path(f"/proc/{pid}").exists()

    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def test_pictures_come_with_their_pages_in_order(recognising: Recognising, tmp_path: Path) -> None:
    recognising.by("cat > /dev/null")
    pages = []
    with client.read_document(
        write_document(tmp_path, "", "Between", "", "", "After"), formats.PDF
    ) as reading:
        for _ in reading:
            pages += [picture.page for picture in reading.pictures]

    assert pages == [1, 3, 4]


def test_a_page_that_was_recognised_before_is_not_recognised_again(
    recognising: Recognising, tmp_path: Path
) -> None:
    path, kept = write_document(tmp_path, "", "Between", "", ""), dict[int, bytes]()
    recognising.by("cat > /dev/null")
    with client.read_document(
        path, formats.PDF, limits=LIMITS, on_recognised=kept.__setitem__
    ) as reading:
        before = list(reading)
    assert sorted(kept) == [0, 2, 3]

    recognising.by("cat > /dev/null\necho once >> calls", cores=1)
    given = b'{"0": %s, "2": %s}' % (kept[0], kept[2])
    again, begun = dict[int, bytes](), list[None]()
    with client.read_document(
        path,
        formats.PDF,
        limits=LIMITS,
        on_recognition=lambda: begun.append(None),
        on_recognised=again.__setitem__,
        recognised=given,
    ) as reading:
        assert list(reading) == before
    assert (len(begun), list(again)) == (1, [3])
    assert set((tmp_path / "calls").read_text().split()) == {"once"}
