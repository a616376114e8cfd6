"""The child process that sets one chat on pages: data of `chat.typ` in, PDF out.

Started as `python -m chats.printing`. Typst keeps what it has set in memory; a process of its
own gives that back, and one that takes too much ends alone.
"""

import resource
import sys
from pathlib import Path

import typst

from documents.parsers.sandbox.jail import die_with_parent

HERE = Path(__file__).parent
MEMORY = 4 << 30
"""Bytes of address space, of which Typst's threads reserve more than they use."""


def main() -> None:
    """Set what comes on standard input."""
    die_with_parent()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    pdf = typst.compile(
        str(HERE / "chat.typ"),
        root=str(HERE),
        font_paths=[str(HERE / "fonts")],
        ignore_system_fonts=True,
        sys_inputs={"chat": sys.stdin.read()},
    )
    sys.stdout.buffer.write(pdf)


if __name__ == "__main__":
    main()
