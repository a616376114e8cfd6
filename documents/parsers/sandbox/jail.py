"""The jail: the rights that a child process gives up for good before it opens a file.

A malicious file may take over its parser, so the kernel limits what the parser's process can do,
in four layers:

- Landlock: read access to the document, code, fonts and recognition data, write access to nothing;
  no TCP; no signals to, and no ptrace of, processes outside.
- seccomp: an allow-list of system calls. No sockets, programs, namespaces or tracing.
- no capabilities, and a network namespace without interfaces.
- limits on memory, CPU time and descriptors; no file may be written.

Where pages are recognised, the child may also start tesseract, which stays in the same jail:
Landlock allows that one program only. Sources: landlock(7), seccomp(2), capabilities(7), and the
system call numbers in the kernel's headers.
"""

import ctypes
import os
import platform
import resource
import shutil
import signal
import struct
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from documents.parsers.base import Confinement, Limits, NotConfined

MAX_OPEN_FILES = 64
ROOT = Path(__file__).resolve().parents[3]
_PYTHON = map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))
CODE = (ROOT / "documents", ROOT / "rag", *map(Path, _PYTHON))
"""Code that is imported late. Never the whole project folder: documents may be stored in it."""
DATA = tuple(
    map(
        Path,
        (
            *("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache"),
            *("/usr/share/fonts", "/usr/local/share/fonts", "/etc/fonts"),
            *("/usr/share/tesseract-ocr", "/usr/share/tessdata", "/usr/share/zoneinfo"),
        ),
    )
)
"""What libraries load late: shared libraries, fonts, language data of tesseract."""
LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
"""Dynamic loaders, needed to start any program."""


@dataclass(frozen=True, slots=True)
class KernelGrants:
    """The means of isolation that the kernel offers."""

    landlock_version: int
    """0 without Landlock."""
    seccomp: bool
    """Whether system calls can be filtered."""

    @property
    def is_sufficient(self) -> bool:
        """Whether a parser that was taken over could neither read, write nor reach anything."""
        return self.landlock_version > 0 and self.seccomp


def enter_jail(limits: Limits, parent: int, file: Path, *, allow_tesseract: bool = False) -> None:
    """Give up everything but reading `file`; die with the process `parent`.

    `allow_tesseract` keeps the right to start tesseract.

    Raises NotConfined if the kernel offers too little and `limits.confinement` requires it.
    """
    libc = _load_libc()
    die_with_parent()
    if os.getppid() != parent:  # the parent died before die_with_parent
        os._exit(1)
    grants = find_grants()
    if limits.confinement == Confinement.REQUIRED and not grants.is_sufficient:
        raise NotConfined(landlock=grants.landlock_version, seccomp=grants.seccomp)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _leave_network(libc)
    _raise_oom_score()
    program = find_tesseract() if allow_tesseract else None
    if grants.landlock_version:
        _restrict_files(libc, grants.landlock_version, file, program)
    _drop_capabilities(libc)
    _limit_resources(limits)
    if grants.seccomp:
        _filter_system_calls(libc, allow_programs=program is not None)


def find_grants() -> KernelGrants:
    """Ask the kernel which means of isolation it offers."""
    libc, numbers = _load_libc(), _NUMBERS.get(platform.machine())
    version = libc.syscall(_LANDLOCK_CREATE_RULESET, 0, 0, _LANDLOCK_VERSION)
    action = ctypes.c_uint32(_RETURN_ERROR)
    has_filters = numbers is not None and not libc.syscall(
        numbers.seccomp, _SECCOMP_GET_ACTION_AVAIL, 0, ctypes.byref(action)
    )
    return KernelGrants(max(0, version), has_filters)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent exits for any reason."""
    _load_libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


@cache
def find_tesseract() -> Path | None:
    """The program's real path, links resolved; None if it is not installed."""
    path = shutil.which("tesseract")
    return Path(path).resolve() if path else None


_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP = 1, 38, 24
_PR_SET_NAME, _PR_SET_VMA = 15, 0x53564D41
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000


def _load_libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _leave_network(libc: ctypes.CDLL) -> None:
    """Enter an empty network namespace; an ordinary user needs a user namespace for it.

    Some kernels and containers refuse both; the other layers must then suffice.
    """
    if libc.unshare(_CLONE_NEWNET) != 0:
        libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET)


def _raise_oom_score() -> None:
    """Have the kernel kill this process first if memory runs out, not the web or the database."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:
        return  # unsupported or not allowed; it is only a preference


def _limit_resources(limits: Limits) -> None:
    cpu_seconds = int(limits.seconds + limits.seconds_per_page * limits.pages) + 1
    for kind, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, MAX_OPEN_FILES),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_AS, limits.memory),
    ):
        hard = resource.getrlimit(kind)[1]
        # never above a limit that is already set
        value = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (value, value))


_CAPABILITY_VERSION_3 = 0x20080522
_MAX_CAPABILITIES = 64


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    """Drop all capabilities, and regain none by starting a program. Raises OSError."""
    for number in range(_MAX_CAPABILITIES):
        libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)  # fails for unknown ones or without the right
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITY_VERSION_3, 0))
    empty_sets = ctypes.create_string_buffer(struct.pack("6I", *(0,) * 6))
    _check_result(libc.capset(header, empty_sets))


# Landlock: landlock(7), include/uapi/linux/landlock.h. The numbers are the same on every machine.

_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_LANDLOCK_VERSION = 1
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""File rights by the first version of Landlock that knows them all."""
_TCP_RIGHTS, _TCP_SINCE = 3, 4
_SCOPES, _SCOPES_SINCE = 3, 6
"""Abstract Unix sockets and signals."""


def _restrict_files(libc: ctypes.CDLL, version: int, file: Path, program: Path | None) -> None:
    """Deny every right that the kernel knows, then grant the few that parsing needs."""
    file_rights = max(rights for since, rights in _FILE_RIGHTS.items() if since <= version)
    tcp_rights = _TCP_RIGHTS if version >= _TCP_SINCE else 0
    scopes = _SCOPES if version >= _SCOPES_SINCE else 0
    attributes = struct.pack("QQQ", file_rights, tcp_rights, scopes)
    size = 24 if scopes else 16 if tcp_rights else 8
    ruleset = _check_result(libc.syscall(_LANDLOCK_CREATE_RULESET, attributes[:size], size, 0))
    _allow_paths(libc, ruleset, _READ_FILE | _READ_DIR, (*CODE, *DATA))
    _allow_paths(libc, ruleset, _READ_FILE, [file])
    _allow_paths(libc, ruleset, _READ_FILE | _WRITE_FILE, [Path(os.devnull)])
    _allow_paths(libc, ruleset, _READ_FILE, [Path("/dev/urandom")])
    if program:
        _allow_paths(libc, ruleset, _READ_FILE | _EXECUTE, [program, *map(Path, LOADERS)])
    _check_result(libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _allow_paths(libc: ctypes.CDLL, ruleset: int, rights: int, paths: Iterable[Path]) -> None:
    """Grant rights to files, or to all below folders; paths that do not exist are skipped."""
    for path in paths:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        path_rights = rights if path.is_dir() else rights & ~_READ_DIR
        rule = struct.pack("=Qi", path_rights, descriptor)
        _check_result(libc.syscall(_LANDLOCK_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0))
        os.close(descriptor)


# seccomp: seccomp(2), and include/uapi/linux/{seccomp,filter,audit}.h for the numbers.

_SECCOMP_SET_MODE_FILTER, _SECCOMP_GET_ACTION_AVAIL = 1, 2
_FILTER_ALL_THREADS = 1
_RETURN_ALLOW, _RETURN_ERROR, _RETURN_KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS = 1, 38
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_GREATER_OR_EQUAL, _JUMP_IF_BITS, _RETURN = 0x20, 0x15, 0x35, 0x45, 6
_AT_NUMBER, _AT_ARCHITECTURE, _AT_FIRST, _AT_SECOND = 0, 4, 16, 24
_X32_BIT = 0x40000000
_CLONE_THREAD, _NAMESPACES = 0x00010000, 0x7E020080
"""All CLONE_NEW* flags: cgroup, user, pid, network, IPC, host name, mounts, time."""
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5450, 0x5451)
"""Terminal queries, FIONREAD and close-on-exec, which Python's file objects use."""

_SYSTEM_CALLS = {
    # name: (x86-64, arm64); None where the architecture has no such call
    "read": (0, 63),
    "write": (1, 64),
    "open": (2, None),
    "close": (3, 57),
    "stat": (4, None),
    "fstat": (5, 80),
    "lstat": (6, None),
    "poll": (7, None),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "pread64": (17, 67),
    "readv": (19, 65),
    "writev": (20, 66),
    "access": (21, None),
    "pipe": (22, None),
    "select": (23, None),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "mincore": (27, 232),
    "madvise": (28, 233),
    "dup": (32, 23),
    "dup2": (33, None),
    "nanosleep": (35, 101),
    "getpid": (39, 172),
    "exit": (60, 93),
    "wait4": (61, 260),
    "uname": (63, 160),
    "fcntl": (72, 25),
    "getcwd": (79, 17),
    "readlink": (89, None),
    "gettimeofday": (96, 169),
    "getrlimit": (97, 163),
    "getrusage": (98, 165),
    "sysinfo": (99, 179),
    "times": (100, 153),
    "getuid": (102, 174),
    "getgid": (104, 176),
    "geteuid": (107, 175),
    "getegid": (108, 177),
    "getppid": (110, 173),
    "getpgrp": (111, None),
    "sigaltstack": (131, 132),
    "arch_prctl": (158, None),
    "gettid": (186, 178),
    "futex": (202, 98),
    "sched_getaffinity": (204, 123),
    "getdents64": (217, 61),
    "set_tid_address": (218, 96),
    "restart_syscall": (219, 128),
    "fadvise64": (221, 223),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "exit_group": (231, 94),
    "epoll_wait": (232, None),
    "epoll_ctl": (233, 21),
    "tgkill": (234, 131),
    "waitid": (247, 95),
    "openat": (257, 56),
    "newfstatat": (262, 79),
    "readlinkat": (267, 78),
    "faccessat": (269, 48),
    "pselect6": (270, 72),
    "ppoll": (271, 73),
    "set_robust_list": (273, 99),
    "get_robust_list": (274, 100),
    "epoll_pwait": (281, 22),
    "eventfd2": (290, 19),
    "epoll_create1": (291, 20),
    "dup3": (292, 24),
    "pipe2": (293, 59),
    "prlimit64": (302, 261),
    "getcpu": (309, 168),
    "getrandom": (318, 278),
    "membarrier": (324, 283),
    "statx": (332, 291),
    "rseq": (334, 293),
    "close_range": (436, 436),
    "faccessat2": (439, 439),
}
_PROGRAM_CALLS = {
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "kill": (62, 129),
}


@dataclass(frozen=True, slots=True)
class _Machine:
    """An architecture: its id in filters, and numbers of calls whose arguments are checked."""

    column: int
    audit: int
    seccomp: int
    clone: int
    clone3: int
    ioctl: int
    prctl: int


_NUMBERS = {
    "x86_64": _Machine(0, 0xC000003E, 317, 56, 435, 16, 157),
    "aarch64": _Machine(1, 0xC00000B7, 277, 220, 435, 29, 167),
}


def _filter_system_calls(libc: ctypes.CDLL, *, allow_programs: bool) -> None:
    """Make every system call that is not listed fail with EPERM."""
    machine = _NUMBERS[platform.machine()]
    instructions = b"".join(_build_filter(machine, allow_programs=allow_programs))
    buffer = ctypes.create_string_buffer(instructions)
    filter_program = struct.pack("HxxxxxxP", len(instructions) // 8, ctypes.addressof(buffer))
    _check_result(
        libc.syscall(machine.seccomp, _SECCOMP_SET_MODE_FILTER, _FILTER_ALL_THREADS, filter_program)
    )


def _build_filter(machine: _Machine, *, allow_programs: bool) -> list[bytes]:
    """The filter's instructions; each call whose argument is checked has its own block."""
    calls = _SYSTEM_CALLS | (_PROGRAM_CALLS if allow_programs else {})
    numbers = [call_numbers[machine.column] for call_numbers in calls.values()]
    refuse, allow = (
        _encode_instruction(_RETURN, _RETURN_ERROR | _EPERM),
        _encode_instruction(_RETURN, _RETURN_ALLOW),
    )
    code = [
        _encode_instruction(_LOAD, _AT_ARCHITECTURE),
        _encode_instruction(_JUMP_IF_EQUAL, machine.audit, 1, 0),
        _encode_instruction(_RETURN, _RETURN_KILL),
        _encode_instruction(_LOAD, _AT_NUMBER),
        _encode_instruction(_JUMP_IF_GREATER_OR_EQUAL, _X32_BIT, 0, 1),
        _encode_instruction(_RETURN, _RETURN_KILL),
        _encode_instruction(_JUMP_IF_EQUAL, machine.clone3, 0, 1),
        _encode_instruction(_RETURN, _RETURN_ERROR | _ENOSYS),  # the C library falls back to clone
    ]
    skip_if_thread = _encode_instruction(_JUMP_IF_BITS, _CLONE_THREAD, 1, 0)
    refuse_namespaces = [
        _encode_instruction(_LOAD, _AT_FIRST),
        _encode_instruction(_JUMP_IF_BITS, _NAMESPACES, 0, 1),
        refuse,
    ]
    code += _build_block(
        machine.clone,
        [*refuse_namespaces, *([] if allow_programs else [skip_if_thread, refuse]), allow],
    )
    code += _build_block(
        machine.ioctl, [_encode_instruction(_LOAD, _AT_SECOND), *_allow_any(_IOCTLS), refuse]
    )
    prctl_options = (_PR_SET_NAME, _PR_SET_VMA)
    code += _build_block(
        machine.prctl, [_encode_instruction(_LOAD, _AT_FIRST), *_allow_any(prctl_options), refuse]
    )
    return [*code, *_allow_any(number for number in numbers if number is not None), refuse]


def _build_block(number: int, body: list[bytes]) -> list[bytes]:
    """Instructions for one system call; another call jumps over them."""
    return [_encode_instruction(_JUMP_IF_EQUAL, number, 0, len(body)), *body]


def _allow_any(values: Iterable[int]) -> Iterable[bytes]:
    """Allow if the loaded value is one of these."""
    for value in values:
        yield _encode_instruction(_JUMP_IF_EQUAL, value, 0, 1)
        yield _encode_instruction(_RETURN, _RETURN_ALLOW)


def _encode_instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One instruction (struct sock_filter)."""
    return struct.pack("HBBI", code, if_true, if_false, value)


def _check_result(result: int) -> int:
    """The result of a C call. Raises OSError with its errno if it failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
