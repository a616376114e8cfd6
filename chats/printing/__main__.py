"""The child process that typesets one chat: data for `chat.typ` in, PDF out.

Started as `python -m chats.printing`. Typst keeps its work in memory; a process of its own frees
it, and if it takes too much, only that process dies.
"""

import resource
import sys
from pathlib import Path

import typst

from documents.parsers.sandbox.jail import die_with_parent

HERE = Path(__file__).parent
MEMORY = 4 << 30
"""Bytes of address space; Typst's threads reserve more than they use."""


def main() -> None:
    """Typeset the data on standard input."""
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
