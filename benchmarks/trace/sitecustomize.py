"""Notes which functions of the product a process enters. Python imports this at its start.

The benchmark puts this folder on `PYTHONPATH` of the product alone. The file `phase` in
`NURA_TRACE_DIR` names what is traced at the moment; each process writes what it entered meanwhile
to `PHASE.PID.json` once that name changes, with the moment: one clock serves all processes.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path

FOLDER = Path(os.environ["NURA_TRACE_DIR"])
ROOT = os.environ["NURA_TRACE_ROOT"]
PACKAGES = ("chats/", "documents/", "jobs/", "nura/", "rag/")
POLL_SECONDS = 0.01
CO_OPTIMIZED = 1
"""A flag of what is a function: bodies of classes and modules lack it."""

_entered = {}
_phase = ""


def _note(frame, *_):
    if _phase and frame.f_code not in _entered:
        _entered[frame.f_code] = time.monotonic()


def _read_phase():
    try:
        return (FOLDER / "phase").read_text()
    except OSError:  # not begun yet, or over
        return ""


def _follow():
    global _phase
    while True:
        wanted = _read_phase()
        if wanted != _phase:
            ended, _phase = _phase, wanted
            if ended:
                _write(ended)
            _entered.clear()
        time.sleep(POLL_SECONDS)


def _write(phase):
    functions = []
    for code, entered_at in list(_entered.items()):
        path = code.co_filename.removeprefix(ROOT)
        if path.startswith(PACKAGES) and code.co_flags & CO_OPTIMIZED:
            functions.append([path, code.co_qualname, code.co_firstlineno, entered_at])
    whole = FOLDER / f"{phase}.{os.getpid()}.json"
    part = FOLDER / f"{whole.name}.part"
    part.write_text(json.dumps(functions))
    part.rename(whole)


def _begin():
    threading.settrace(_note)  # calls alone: it asks for nothing within a function
    sys.settrace(_note)
    threading.Thread(target=_follow, daemon=True).start()


_begin()
os.register_at_fork(after_in_child=_begin)
