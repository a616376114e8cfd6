"""Text of documents and titles as Markdown that shows it as it is, and nothing more."""

import re

from rag.neutral import neutralise

_MARKS = re.compile(r"([\\`*_\[\]<>~&#|$])")
_LIST = re.compile(r"^([-+=:]|\d{1,9}(?=[.)]))")
_NUMBER_END = re.compile(r"^(\d{1,9})([.)])")
_INDENT = re.compile(r"^[ \t]+")
_CITATION = re.compile(r"\[(\d{1,3})\]")
_FIXED = "\u00a0"
_DEEPEST = 16
LONGEST_TITLE = 120


def plain(text: str) -> str:
    """Every line as it stands: no heading, list, link, markup, or marker of a source.

    Rows of tables stay, since a table hides nothing.
    """
    return "\n".join(_line(line) for line in neutralise(text).splitlines())


def title(said: str) -> str:
    """A title on one line, cut to 120 characters."""
    one = " ".join(neutralise(said).split())
    return plain(one if len(one) <= LONGEST_TITLE else f"{one[: LONGEST_TITLE - 1]}…")


def _line(line: str) -> str:
    line = _CITATION.sub(r"(\1)", line.rstrip())
    row = line.lstrip().startswith("|")
    marked = _MARKS.sub(
        lambda found: found[1] if row and found[1] == "|" else rf"\{found[1]}", line
    )
    indent = _INDENT.match(marked)
    body = marked[indent.end() :] if indent else marked
    depth = min(_DEEPEST, len(indent[0].expandtabs(4))) if indent else 0
    if _LIST.match(body):
        numbered = _NUMBER_END.match(body)
        body = f"{numbered[1]}\\{body[numbered.end(1) :]}" if numbered else f"\\{body}"
    return _FIXED * depth + body
