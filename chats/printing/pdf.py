"""What is told of a chat on paper, and its printing in a child process."""

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.utils.timezone import localtime, now
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from chats.errors import ExportFailed, ExportTooLarge
from chats.exporting import line, source_line
from chats.models import Chat, Turn
from chats.printing.tree import breakable, printable, tree

logger = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parents[2]
MOST_CHARACTERS = 1_000_000
"""Of all turns together: about 700 MB of memory and six seconds, timed by hand."""
SECONDS = 120
PATIENCE = 20
"""Seconds that a chat waits for its turn."""
WHEN = "%Y-%m-%d %H:%M"
_SLOT = threading.Lock()
"""One at a time: printing takes a core."""


def as_pdf(chat: Chat, turns: Sequence[Turn]) -> bytes:
    """The chat to print or hand on. Raises `ExportTooLarge` or `ExportFailed`."""
    characters = sum(len(turn.user_text) + len(turn.assistant_text) for turn in turns)
    if characters > MOST_CHARACTERS:
        raise ExportTooLarge(characters=characters, limit=MOST_CHARACTERS)
    told = {
        "title": _shown(line(chat.title)),
        "language": (get_language() or "ko").partition("-")[0],
        "exported": _("Exported on %(when)s") % {"when": localtime(now()).strftime(WHEN)},
        "words": {"sources": _("Sources")},
        "turns": [_turn(turn) for turn in turns],
    }
    if not _SLOT.acquire(timeout=PATIENCE):
        raise ExportFailed
    try:
        return _pressed(json.dumps(told))
    finally:
        _SLOT.release()


def _pressed(told: str) -> bytes:
    """The pages, from a child process."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "chats.printing.press"],
            cwd="/",
            env={"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "PATH": os.defpath},
            input=told.encode(),
            capture_output=True,
            timeout=SECONDS,
            check=True,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        logger.warning("a chat was not printed: %s %r", error, (error.stderr or b"")[-2000:])
        raise ExportFailed from error
    return done.stdout


def _turn(turn: Turn) -> dict[str, Any]:
    return {
        "number": turn.number,
        "when": localtime(turn.ts).strftime(WHEN),
        "question": _shown(turn.user_text),
        "answer": tree(turn.assistant_text),
        "sources": [
            {"slot": ref["slot"], "text": _shown(source_line(ref))} for ref in turn.doc_refs
        ],
    }


def _shown(text: str) -> str:
    return breakable(printable(text))
