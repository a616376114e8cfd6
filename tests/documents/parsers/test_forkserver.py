"""The server that forks the children: what they share, what not, and whose end ends whom."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from documents.parsers import formats
from documents.parsers.base import Limits, ParserCrashed
from documents.parsers.sandbox import client
from tests.documents.parsers.samples import Pdf
from tests.support import wait_until

READERS = [(kind, formats.PDFIUM) for kind in formats.LABELS]


@pytest.fixture(autouse=True)
def servers(monkeypatch: pytest.MonkeyPatch) -> client._Servers:
    """No server yet."""
    monkeypatch.setattr(client, "_servers", client._Servers())
    return client._servers


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_text("본문입니다.")
    return path


@pytest.fixture
def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A document of as many pages as are read: the server forks children with such a reader."""
    return reader("while True: yield Page(os.getppid(), 'x')", tmp_path, monkeypatch)


def reader(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch, first: str = "") -> Path:
    """A document for the reader that runs this code; its server runs `first` beforehand."""
    program = folder / "program.py"
    program.write_text(
        "import os\n"
        "from documents.parsers import formats\n"
        "from documents.parsers.sandbox import server\n"
        "from rag.types import Page\n"
        "class Reader:\n"
        "    def parse(self, path, context):\n"
        f"{textwrap.indent(code, '        ')}\n"
        "formats.make_parser = lambda *_: Reader()\n"
        f"{first}\n"
        "server.main()\n"
    )
    monkeypatch.setattr(client, "PROGRAM", (sys.executable, str(program)))
    (folder / "a.txt").write_text("본문")
    return folder / "a.txt"


def has_ended(pid: int) -> bool:
    """Whether a process has ended; what nobody has reaped yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def get_server_pid() -> int:
    assert client._servers._server
    return client._servers._server.pid


def wait_for_child_pid(reading: client.DocumentReading) -> int:
    """Its process, which the server may tell after the first page has come."""
    process = reading._child._process
    while process.pid is None:
        assert process.receive()
    return process.pid


def read(path: Path) -> str:
    with client.read_document(path, formats.TEXT) as reading:
        return "".join(page.text for page in reading)


def test_one_server_forks_a_child_for_each_document(tmp_path: Path, monkeypatch) -> None:
    path = reader("yield Page(os.getpid(), str(os.getppid()))", tmp_path, monkeypatch)
    found = []
    for _ in range(2):
        with client.read_document(path, formats.TEXT) as reading:
            found += list(reading)

    assert found[0].number != found[1].number
    assert {page.text for page in found} == {str(get_server_pid())}


def test_a_child_has_nothing_of_its_server_and_of_other_children(
    tmp_path: Path, monkeypatch
) -> None:
    code = """
for number in range(64):
    try:
        os.fstat(number)
    except OSError:
        continue
    yield Page(number, 'x')
"""
    path = reader(code, tmp_path, monkeypatch)
    with client.read_document(path, formats.TEXT) as waiting:
        next(waiting)
        with client.read_document(path, formats.TEXT) as reading:
            descriptors = {page.number for page in reading}

    assert descriptors == {0, 1, 2, 3}  # the standard ones, and where its frames go


def test_a_server_that_was_killed_while_it_waited_is_replaced(text: Path) -> None:
    read(text)
    before = get_server_pid()
    os.kill(before, signal.SIGKILL)
    wait_until(lambda: has_ended(before))

    assert read(text) == "본문입니다."
    assert get_server_pid() != before


def test_a_server_that_nobody_needs_ends_and_is_replaced(tmp_path: Path, monkeypatch) -> None:
    path = reader("yield Page(1, 'x')", tmp_path, monkeypatch, "server.IDLE_SECONDS = 0.01")
    read(path)
    before = get_server_pid()
    wait_until(lambda: has_ended(before))

    assert read(path) == "x"


def test_a_server_does_not_end_while_a_child_of_it_lives(tmp_path: Path, monkeypatch) -> None:
    code = "import time\nwhile True:\n    yield Page(1, 'x')\n    time.sleep(0.05)"
    path = reader(code, tmp_path, monkeypatch, "server.IDLE_SECONDS = 0.01")
    with client.read_document(path, formats.TEXT) as reading:
        for _ in range(20):
            next(reading)


def test_killing_the_server_ends_its_children_and_their_readings(endless: Path) -> None:
    with client.read_document(endless, formats.TEXT) as reading:
        next(reading)
        child = wait_for_child_pid(reading)
        os.kill(get_server_pid(), signal.SIGKILL)
        with pytest.raises(ParserCrashed) as caught:
            list(reading)

    assert caught.value.retryable
    wait_until(lambda: has_ended(child))


def test_after_a_crash_another_server_forks_and_other_readings_go_on(endless: Path) -> None:
    with (
        client.read_document(endless, formats.TEXT) as going_on,
        client.read_document(endless, formats.TEXT) as crashing,
    ):
        first, _ = next(going_on), next(crashing)
        os.kill(wait_for_child_pid(crashing), signal.SIGSEGV)
        with pytest.raises(ParserCrashed):
            list(crashing)
        with client.read_document(endless, formats.TEXT) as reading:
            assert next(reading).number != first.number
        assert next(going_on).number == first.number


def test_a_child_that_is_ended_by_us_is_no_crash(endless: Path) -> None:
    parents = set()
    for _ in range(2):
        with client.read_document(endless, formats.TEXT) as reading:
            parents.add(next(reading).number)

    assert len(parents) == 1


def test_a_child_ends_that_nobody_waited_for(endless: Path) -> None:
    reading = client.read_document(endless, formats.TEXT)
    reading.close()
    with client.read_document(endless, formats.TEXT) as other:  # asked later, so forked later
        server = next(other).number
        children = Path(f"/proc/{server}/task/{server}/children")
        wait_until(lambda: children.read_text().split() == [str(wait_for_child_pid(other))])


def test_a_reading_outlives_the_thread_that_started_its_server(endless: Path) -> None:
    opened: list[client.DocumentReading] = []
    thread = threading.Thread(
        target=lambda: opened.append(client.read_document(endless, formats.TEXT))
    )
    thread.start()
    thread.join()

    with opened[0] as reading:
        for _ in range(1000):
            next(reading)


PARENT = """
import os, sys
from pathlib import Path
from documents.parsers import formats
from documents.parsers.sandbox import client
reading = client.read_document(Path({path!r}), formats.PDF)
next(reading)
while reading._child._process.pid is None:
    reading._child._process.receive()
print(client._servers._server.pid, reading._child._process.pid, flush=True)
{then}
"""


def parent(pdf: Path, then: str) -> subprocess.Popen[str]:
    """A process that reads, has said the ids of its server and its child, and then does this."""
    code = PARENT.format(path=str(pdf), then=then)
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, cwd=client.ROOT, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def long_pdf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pdf = Pdf()
    for number in range(400):
        pdf.page(*((50, 780 - 22 * row, f"{number}쪽 {row}줄의 본문입니다.") for row in range(30)))
    return pdf.write(tmp_path_factory.mktemp("long") / "long.pdf")


@pytest.mark.parametrize("then", ["sys.stdin.read()", "pass", "os._exit(0)"])
def test_server_and_child_end_with_their_parent_however_it_ends(long_pdf: Path, then: str) -> None:
    with parent(long_pdf, then) as process:
        assert process.stdout
        pids = [int(pid) for pid in process.stdout.readline().split()]
        process.kill()

    assert len(pids) == 2
    wait_until(lambda: all(has_ended(pid) for pid in pids))


def test_a_fork_of_the_parent_has_a_server_of_its_own(long_pdf: Path) -> None:
    then = f"""
if os.fork() == 0:
    other = client.read_document(Path({str(long_pdf)!r}), formats.PDF)
    next(other)
    print(client._servers._server.pid, flush=True)
    os._exit(0)
os.wait()
print(len(list(reading)), flush=True)
"""
    with parent(long_pdf, then) as process:
        assert process.stdout
        server, _child, other, pages = process.stdout.read().split()

    assert server != other
    assert pages == "399"


@pytest.mark.parametrize(("kind", "pdf_reader"), [*READERS, (formats.PDF, formats.PYMUPDF)])
def test_a_loaded_reader_starts_no_thread(kind: str, pdf_reader: str) -> None:
    code = f"""
import os
from documents.parsers import formats
from documents.parsers.sandbox import server
formats.preload_parser({kind!r}, {pdf_reader!r})
print(len(os.listdir("/proc/self/task")))
"""
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, cwd=client.ROOT, capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "1"


def test_the_libraries_that_are_loaded_before_are_those_that_are_used(tmp_path: Path) -> None:
    pdf = Pdf().page((50, 700, "본문입니다.")).write(tmp_path / "a.pdf")
    code = f"""
import sys
from pathlib import Path
from documents.parsers import formats
from documents.parsers.sandbox import server
from documents.parsers.base import ReadingContext, Limits
formats.preload_parser(formats.PDF, formats.PDFIUM)
before = set(sys.modules)
context = ReadingContext(formats.PDF, Limits(), lambda *_: None)
list(formats.make_parser(formats.PDF).parse(Path({str(pdf)!r}), context))
places = [str(getattr(sys.modules[name], "__file__", "")) for name in set(sys.modules) - before]
print([place for place in places if "site-packages" in place])
"""
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, cwd=client.ROOT, capture_output=True, text=True, check=True)

    assert found.stdout.strip() == "[]"


def test_time_that_the_start_of_a_server_takes_is_limited(tmp_path: Path, monkeypatch) -> None:
    hanging = "import select; end = select.poll(); end.register(0, select.POLLHUP); end.poll()"
    path = reader("yield Page(1, 'x')", tmp_path, monkeypatch, hanging)
    limits = Limits(seconds=0.2)

    with (
        client.read_document(path, formats.TEXT, limits=limits) as reading,
        pytest.raises(client.TimedOut),
    ):
        list(reading)
