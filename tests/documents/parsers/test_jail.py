"""A parser that a file has taken over, in the jail of every format: it gains nothing."""

import ctypes
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from documents.parsers import formats
from documents.parsers.base import Confinement, Limits, NotConfined
from documents.parsers.sandbox import client, jail

pytestmark = pytest.mark.skipif(
    not jail.find_grants().is_sufficient, reason="this kernel has no Landlock or no seccomp"
)

ATTACKS = """
import ctypes, json, os, platform, socket, subprocess, sys, threading
LIBC = ctypes.CDLL(None, use_errno=True)
"x".encode("idna")  # another user may not read the code that is loaded late

def call(name, *arguments):
    if getattr(LIBC, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), name)

def connect(path):
    socket.socket(socket.AF_UNIX).connect(path)

def load(program, loader):
    said = subprocess.run([loader, program], capture_output=True, text=True)
    if "Permission denied" in said.stderr:
        raise PermissionError(program)

def attacks(place):
    '''Name to what is tried; `place` names what lies outside.'''
    yield "read secret", lambda: open(place["secret"]).read()
    yield "read another's file", lambda: open(place["other"]).read()
    yield "read the environment of another process", (
        lambda: open(f"/proc/{place['pid']}/environ").read())
    yield "read the memory of another process", lambda: open(f"/proc/{place['pid']}/mem", "rb")
    yield "list the folder", lambda: os.listdir(os.path.dirname(place["secret"]))
    yield "write a file", lambda: open(place["secret"] + ".new", "w").write("x")
    yield "write its own file", lambda: open(place["mine"], "r+").write("x")
    yield "delete", lambda: os.unlink(place["other"])
    yield "rename", lambda: os.rename(place["other"], place["other"] + "2")
    yield "link", lambda: os.symlink(place["other"], place["other"] + "2")
    yield "make a folder", lambda: os.mkdir(place["secret"] + ".d")
    yield "change rights", lambda: os.chmod(place["mine"], 0o777)
    yield "Unix socket", lambda: connect(place["socket"])
    yield "abstract socket", lambda: connect("\\0" + place["abstract"])
    yield "network", lambda: socket.create_connection(("127.0.0.1", place["port"]), 2)
    yield "datagram", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    yield "shell", lambda: subprocess.run(["/bin/sh", "-c", "true"], check=True)
    yield "python", lambda: subprocess.run([sys.executable, "-c", ""], check=True)
    yield "loader", lambda: load("/bin/true", place["loader"])
    yield "program from memory", lambda: os.memfd_create("x")
    yield "ptrace", lambda: call("ptrace", 16, place["pid"], 0, 0)
    yield "process_vm_readv", lambda: call("process_vm_readv", place["pid"], 0, 0, 0, 0, 0)
    yield "signal", lambda: os.kill(place["pid"], 0)
    yield "pidfd", lambda: os.pidfd_open(place["pid"])
    yield "namespace", lambda: call("unshare", 0x10000000)
    yield "mount", lambda: call("mount", b"none", b"/tmp", b"tmpfs", 0, 0)
    yield "become root", lambda: os.setuid(0)
    yield "io_uring", lambda: call("syscall", 425, 8, 0)
    if platform.machine() == "x86_64":
        yield "keys of the kernel", lambda: call("syscall", 250, 0, -3, 0)
        yield "bpf", lambda: call("syscall", 321, 0, 0, 0)
    yield "leave the session", lambda: os.setsid()

def try_all(place):
    '''What succeeded, and errors that are no refusals.'''
    found = {}
    for name, attack in attacks(place):
        try:
            attack()
            found[name] = "succeeded"
        except PermissionError:
            pass
        except BaseException as error:
            found[name] = repr(error)
    return found
"""

SERVER = """
from documents.parsers import formats
from documents.parsers.sandbox import server
from rag.types import Page

class TakenOver:
    def parse(self, path, context):
        yield Page(1, "RESULT" + json.dumps(try_all({place!r})), (), (), (), ())

make = formats.make_parser
def make_parser(*arguments):
    make(*arguments)
    return TakenOver()
formats.make_parser = make_parser
server.main()
"""


@contextmanager
def _outside(folder: Path) -> Iterator[dict[str, object]]:
    """What a parser must not reach: secrets, others' files, sockets, a process of the same user."""
    names = {name: folder / name for name in ("secret", "other", "mine")}
    for path in names.values():
        path.write_text("안에 있는 글")
        path.chmod(0o666)
    abstract = f"nura-{os.getpid()}"
    with (
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as hidden,
        socket.create_server(("127.0.0.1", 0)) as server,
        subprocess.Popen(["/bin/sleep", "60"]) as process,
    ):
        unix.bind(str(folder / "socket"))
        unix.listen()
        hidden.bind("\0" + abstract)
        hidden.listen()
        yield {
            **{name: str(path) for name, path in names.items()},
            "socket": str(folder / "socket"),
            "abstract": abstract,
            "port": server.getsockname()[1],
            "pid": process.pid,
            "loader": next(one for one in jail.LOADERS if Path(one).exists()),
        }
        process.kill()


@pytest.mark.parametrize("content_type", sorted(formats.LABELS))
def test_a_parser_that_was_taken_over_reaches_nothing(
    content_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.py"
    with _outside(tmp_path) as place:
        program.write_text(ATTACKS + SERVER.format(place=place))
        monkeypatch.setattr(client, "PROGRAM", (sys.executable, str(program)))
        monkeypatch.setattr(client, "_servers", client._Servers())
        with client.read_document(Path(str(place["mine"])), content_type) as reading:
            text = next(reading).text

    assert json.loads(text.removeprefix("RESULT")) == {}
    assert (tmp_path / "mine").read_text() == "안에 있는 글"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("allow_tesseract", [False, True])
def test_the_jail_holds_for_an_ordinary_user_too(*, allow_tesseract: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, _outside(Path(folder)) as place:
        Path(folder).chmod(0o755)
        code = f"""{ATTACKS}
from pathlib import Path
from documents.parsers.base import Limits
from documents.parsers.sandbox import jail
if os.fork() == 0:
    os.setgroups([])
    os.setresuid(65534, 65534, 65534)
    server = os.getpid()
    if os.fork() == 0:
        try:
            mine = Path({place["mine"]!r})
            jail.enter_jail(Limits(), server, mine, allow_tesseract={allow_tesseract})
            sys.stdout.write(json.dumps([open({place["mine"]!r}).read(), try_all({place!r})]))
            sys.stdout.flush()
        finally:
            os._exit(0)
    os.wait()
    os._exit(0)
os.wait()
"""
        said = subprocess.run(
            [sys.executable, "-c", code],
            cwd=client.ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )

    assert json.loads(said.stdout) == ["안에 있는 글", {}], said.stderr


def test_what_the_filter_says_of_numbers_is_what_the_kernel_calls_them() -> None:
    """Calls that do nothing, by the numbers of the table, against the C library's own."""
    libc = ctypes.CDLL(None)
    column = jail._NUMBERS[platform.machine()].column
    for name in ("getpid", "getppid", "gettid", "getuid", "geteuid", "getgid", "getegid"):
        number = jail._SYSTEM_CALLS[name][column]
        assert libc.syscall(number) == getattr(libc, name)(), name


def test_a_kernel_that_confines_too_little_reads_no_file_unless_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from documents.parsers.sandbox import jail, server\n"
        "jail.find_grants = lambda: jail.KernelGrants(0, False)\n"
        "server.main()\n"
    )
    monkeypatch.setattr(client, "PROGRAM", (sys.executable, str(program)))
    monkeypatch.setattr(client, "_servers", client._Servers())
    (tmp_path / "a.txt").write_text("본문입니다.")

    with (
        client.read_document(tmp_path / "a.txt", formats.TEXT) as reading,
        pytest.raises(NotConfined),
    ):
        list(reading)
    limits = Limits(confinement=Confinement.BEST)
    with client.read_document(tmp_path / "a.txt", formats.TEXT, limits=limits) as reading:
        assert next(reading).text == "본문입니다."
