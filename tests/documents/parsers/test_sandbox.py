"""The child process: what it may not do, how its death is told apart, that nothing stays."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from documents.parsers import formats
from documents.parsers.base import (
    EmptyFile,
    Limits,
    OutOfMemory,
    ParserCrashed,
    TimedOut,
    TooLarge,
    TooManyPages,
)
from documents.parsers.sandbox import client, jail, server
from rag.types import Heading, Line, Page
from tests.documents.parsers.reading import shared
from tests.documents.parsers.samples import Pdf


@pytest.fixture(scope="module")
def long_pdf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pdf = Pdf()
    for number in range(400):
        pdf.page(*((50, 780 - 22 * row, f"{number}쪽 {row}줄의 본문입니다.") for row in range(30)))
    return pdf.write(tmp_path_factory.mktemp("long") / "long.pdf")


def has_ended(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_pages_come_as_they_are_read(long_pdf: Path) -> None:
    with client.read_document(long_pdf, formats.PDF) as reading:
        first = next(reading)
        assert first.number == 1
        assert reading.page_total == 400
        pid = reading._child._process.pid
        assert not has_ended(pid)

    assert has_ended(pid)


def test_c96_a_reader_is_what_the_kernel_takes_first_when_memory_runs_out(long_pdf: Path) -> None:
    def score(pid: int) -> int:
        return int(Path(f"/proc/{pid}/oom_score").read_text())

    with client.read_document(long_pdf, formats.PDF) as reading:
        next(reading)
        pid = reading._child._process.pid
        assert Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "1000"
        assert score(pid) > score(os.getpid())


def test_a_child_that_is_killed_is_a_crash_that_may_be_tried_again(long_pdf: Path) -> None:
    with client.read_document(long_pdf, formats.PDF) as reading:
        next(reading)
        os.kill(reading._child._process.pid, signal.SIGKILL)
        with pytest.raises(ParserCrashed) as caught:
            list(reading)

    assert caught.value.retryable


def test_time_is_limited(long_pdf: Path) -> None:
    limits = Limits(seconds=0.1, seconds_per_page=0)

    with (
        client.read_document(long_pdf, formats.PDF, limits=limits) as reading,
        pytest.raises(TimedOut),
    ):
        list(reading)

    assert has_ended(reading._child._process.pid)


def test_pages_are_limited(long_pdf: Path) -> None:
    with (
        client.read_document(long_pdf, formats.PDF, limits=Limits(pages=399)) as reading,
        pytest.raises(TooManyPages) as caught,
    ):
        list(reading)

    assert caught.value.params == {"pages": "400", "limit": "399"}


def test_text_is_limited(long_pdf: Path) -> None:
    limits = Limits(characters=5_000)

    with (
        client.read_document(long_pdf, formats.PDF, limits=limits) as reading,
        pytest.raises(TooLarge),
    ):
        list(reading)


def test_memory_is_limited_and_the_limit_is_the_reason() -> None:
    bomb = shared("bad-inputs/pdf/flate-bomb-1gb.pdf")
    limits = Limits(memory=1 << 30)

    with (
        client.read_document(bomb, formats.PDF, limits=limits) as reading,
        pytest.raises(OutOfMemory),
    ):
        list(reading)


def test_the_memory_used_stays_below_the_limit() -> None:
    bomb = shared("bad-inputs/pdf/flate-bomb-1gb.pdf")
    code = f"""
import os, resource
from pathlib import Path
from documents.parsers import formats
from documents.parsers import base
from documents.parsers.sandbox import client
try:
    list(client.read_document(Path({str(bomb)!r}), formats.PDF))
except base.OutOfMemory:
    client._servers._server._requests.close()
    os.wait()
    print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""

    assert 0 < int(_run(code).split()[-1]) < 2 << 20  # kilobytes, behind what was logged


def test_python_running_out_of_memory_is_the_same_reason(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("가" * 60_000_000)
    limits = Limits(memory=300 << 20, characters=100_000_000)

    with (
        client.read_document(tmp_path / "a.txt", formats.TEXT, limits=limits) as reading,
        pytest.raises(OutOfMemory),
    ):
        list(reading)


def test_what_the_waiting_callback_raises_ends_the_child(long_pdf: Path, monkeypatch) -> None:
    monkeypatch.setattr(client, "TICK_SECONDS", 0.001)

    def cancel() -> None:
        raise InterruptedError

    with (
        client.read_document(long_pdf, formats.PDF, on_wait=cancel) as reading,
        pytest.raises(InterruptedError),
    ):
        list(reading)

    assert has_ended(reading._child._process.pid)


def test_an_empty_file_needs_no_child(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").touch()

    with pytest.raises(EmptyFile):
        client.read_document(tmp_path / "a.pdf", formats.PDF)


def test_the_child_loads_no_framework() -> None:
    code = (
        "import sys, documents.parsers.sandbox.server\n"
        "print([name for name in sys.modules if 'django' in name])"
    )

    assert _run(code) == "[]"


def test_a_page_survives_the_pipe() -> None:
    page = Page(3, "가나\n다", (Heading(0, 1, "가나"),), (Line(0, 2, 0.1, 0.2, (0.1, 0.2, 0.3)),))

    ((kind, value),) = client.take_frames(
        bytearray(server.encode_frame("page", server.to_page_value(page))), 9999
    )

    assert (kind, client.from_page_value(value)) == ("page", page)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [1, 2],
        [1, "가", [], [[0, 9, 0, 0, []]]],
        ["1", "가", [], []],
        [1, "가", [["x", 1, ""]], []],
    ],
)
def test_a_page_that_cannot_be_is_refused(value: object) -> None:
    with pytest.raises(client.BrokenFrame):
        client.from_page_value(value)


def test_a_frame_beyond_the_limit_is_refused() -> None:
    with pytest.raises(client.BrokenFrame):
        list(
            client.take_frames(
                bytearray(server.FRAME_HEADER.pack(1 << 30, server.JSON_BODY)), 1 << 20
            )
        )


ABORTING = "import os; os.abort()"
LOOPING = "while True: pass"
HUNGRY = "x = b'x' * (1 << 20)\nwhile True: x += x"


@pytest.mark.parametrize(
    ("code", "expected"),
    [(ABORTING, ParserCrashed), (LOOPING, TimedOut), (HUNGRY, OutOfMemory)],
)
def test_a_reader_gone_wrong_ends_its_child_alone_and_soon(
    tmp_path: Path, monkeypatch, code: str, expected: type[Exception]
) -> None:
    reading = _read_with_code(code, tmp_path, monkeypatch)
    started = time.monotonic()

    with reading, pytest.raises(expected):
        list(reading)

    assert time.monotonic() - started < SHORT.seconds + 5
    assert has_ended(reading._child._process.pid)


@pytest.mark.skipif(jail.find_tesseract() is None, reason="tesseract is not installed")
@pytest.mark.parametrize("ending", ["os.abort()", "while True: pass"])
def test_programs_that_a_reader_started_end_with_it(
    tmp_path: Path, monkeypatch, ending: str
) -> None:
    code = f"""
import os, subprocess
helper = subprocess.Popen(["tesseract", "stdin", "stdout"], stdin=subprocess.PIPE)
yield Page(helper.pid, "x")
{ending}
"""
    reading = _read_with_code(code, tmp_path, monkeypatch, content_type=formats.PDF)
    with reading:
        helper = next(reading).number or 0
        assert not has_ended(helper)
        with pytest.raises((ParserCrashed, TimedOut)):
            list(reading)

    assert _has_ended_soon(helper)


def test_recognition_extends_the_time_only_as_far_as_allowed(tmp_path: Path, monkeypatch) -> None:
    code = "for _ in range(1000): context.announce_recognition()\nwhile True: pass"
    limits = Limits(seconds=2, recognised_pages=3, seconds_per_recognised_page=1)
    reading = _read_with_code(code, tmp_path, monkeypatch, limits)

    with reading, pytest.raises(TimedOut):
        list(reading)

    assert reading._child.budget > -2


def test_only_as_much_is_kept_of_recognised_pages_as_allowed(tmp_path: Path, monkeypatch) -> None:
    code = "for index in range(9): context.keep_recognised(index, 'x' * (index % 2 << 20))"
    limits = Limits(seconds=20, recognised_pages=4)
    kept = dict[int, bytes]()
    reading = _read_with_code(code, tmp_path, monkeypatch, limits)
    reading._on_recognised = kept.__setitem__

    with reading:
        list(reading)

    assert kept == {0: b'""', 2: b'""'}


@pytest.mark.parametrize("index", ["-1", "5000", "'0'", "None"])
def test_a_recognised_page_that_cannot_be_ends_the_reading(
    tmp_path: Path, monkeypatch, index: str
) -> None:
    reading = _read_with_code(f"context.keep_recognised({index}, [])", tmp_path, monkeypatch)

    with reading, pytest.raises(ParserCrashed):
        list(reading)


SHORT = Limits(memory=600 << 20, seconds=4, seconds_per_page=0)


def _read_with_code(
    code: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    limits: Limits = SHORT,
    content_type: str = formats.TEXT,
) -> client.DocumentReading:
    """A reading by a reader that runs this code, in a copy of the child's program."""
    body = textwrap.indent(code.strip(), "        ")
    (folder / "gone_wrong.py").write_text(
        "from documents.parsers import formats\n"
        "from documents.parsers.sandbox import server\n"
        "from rag.types import Page\n"
        "class Reader:\n"
        "    def parse(self, path, context):\n"
        f"{body}\n"
        "        yield Page(None, 'x')\n"
        "formats.make_parser = lambda *_: Reader()\n"
        "server.main()\n"
    )
    monkeypatch.setattr(client, "PROGRAM", (sys.executable, str(folder / "gone_wrong.py")))
    monkeypatch.setattr(client, "_servers", client._Servers())
    (folder / "a.txt").write_text("본문")
    return client.read_document(folder / "a.txt", content_type, limits=limits)


def _has_ended_soon(pid: int) -> bool:
    """Whether a process that was killed is gone, or waits only for init to take notice."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
    return False


def _run(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=client.ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return result.stdout.strip()
