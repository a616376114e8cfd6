"""The jail: what a child process gives up before it looks at a file; it cannot be taken back.

This is the only place where a process enters it, so a harder isolation is built here.
"""

import ctypes
import os
import resource
import signal
from pathlib import Path

from documents.parsers.base import Limits

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
MAX_OPEN_FILES = 64


def enter_jail(limits: Limits, parent: int) -> None:
    """Take limits on memory, time, files and network; die with the process `parent`."""
    libc = ctypes.CDLL(None, use_errno=True)
    die_with_parent()
    if os.getppid() != parent:  # it died before we asked to be told
        os._exit(1)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _leave_network(libc)
    _volunteer_to_die()
    longest = int(limits.seconds + limits.seconds_per_page * limits.pages) + 1
    for what, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, MAX_OPEN_FILES),
        (resource.RLIMIT_CPU, longest),
        (resource.RLIMIT_AS, limits.memory),
    ):
        _lower_limit(what, value)


def die_with_parent() -> None:
    """Be killed when the process that started this one ends, however it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _leave_network(libc: ctypes.CDLL) -> None:
    """Go into an empty network namespace; as an ordinary user this takes a user namespace too.

    Some kernels and containers refuse both; no parser opens connections by itself anyway.
    """
    if libc.unshare(_CLONE_NEWNET) != 0:
        libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNET)


def _volunteer_to_die() -> None:
    """Under memory pressure the kernel shall take this process, not the web or the database."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000")
    except OSError:
        return  # no such kernel, or not allowed: a preference only


def _lower_limit(what: int, value: int) -> None:
    """Set a limit, never above what is already imposed on us."""
    hard = resource.getrlimit(what)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(what, (value, value))
