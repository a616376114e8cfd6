"""Text of documents and titles as Markdown that shows it as it is, and the way back."""

import re

from rag.tokenize.text import neutralise_text, track_code_fences

_MARKS = re.compile(r"([\\`*_\[\]<>~&#|$])")
_LIST = re.compile(r"^([-+=:]|\d{1,9}(?=[.)]))")
_NUMBER_END = re.compile(r"^(\d{1,9})([.)])")
_INDENT = re.compile(r"^[ \t]+")
_CITATION = re.compile(r"\[(\d{1,4}(?:\s*,\s*\d{1,4})*)\]")
_FRONT = re.compile(r"\A---[ \t]*\n(?:.*\n){0,60}?---[ \t]*(?:\n|\Z)")
_LIVE = re.compile(r"(\\*)([\[<])")
"""What begins a link, a picture or HTML."""
_ALIVE = re.compile(r"[\\`*\[\]]|(?<!\w)_|_(?!\w)|~(?=~)|<(?=[A-Za-z/!?])|&(?=#?\w+;)")
_BEGINS = re.compile(r"^(\d{1,9}(?=[.)]))?([-+=:>#|]+|[.)])(?=\s|$|[-=:>#|])")
"""What begins a list, a heading or a row."""
_FIXED = "\u00a0"
_MAX_INDENT = 16
_LINKED = re.compile(r"!?\[([^\]\n]*)\]\([^)\s]*\)")
_MARKER = re.compile(r"\[\d{1,3}\]")
_RULE = re.compile(r"(?m)^\s*(?:[-*_=|:+]\s*){3,}$")
_BEGINNING = re.compile(r"(?m)^\s*(?:#{1,6}\s+|>\s?|[-*+]\s+(?:\[[ xX]\]\s+)?|```[\w-]*)")
_SIGNS = re.compile(r"\*\*|__|~~|`+")
_CELLS = re.compile(r"\|")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_TABLE_RULE = re.compile(r"(?<=\s)\|?(?:\s*:?-{3,}:?\s*\|)+")
_EMPHASIS = re.compile(r"(?<![\w*])\*(?=\S)([^*\n]+)(?<=\S)\*(?![\w*])")
MAX_TITLE_CHARACTERS = 120


def escape_lines(text: str) -> str:
    """Every line as it stands: no heading, list, link, markup, or marker of a source.

    Rows of tables stay, since a table hides nothing.
    """
    return "\n".join(_escape_all_marks(line) for line in neutralise_text(text).splitlines())


def sanitise_markdown(text: str) -> str:
    """A document that is Markdown itself, without links, pictures, HTML and markers of a source.

    What stands before its text ("---") is shown line by line, code as it is.
    """
    front = _FRONT.match(text)
    head, body = (front[0], text[front.end() :]) if front else ("", text)
    lines, is_open, fence = [], False, ""
    for line, fence, bounds in track_code_fences(neutralise_text(body).splitlines()):
        is_open ^= bounds
        # a fence is not indented: its code would end with the list that it stands in
        lines.append(line.strip() if bounds else line if fence else _sanitise_line(line))
    shown = "\n".join([*lines, fence] if is_open else lines)  # a part may end within code
    return f"{escape_lines(head)}\n\n{shown}" if head else shown


def escape_line(text: str) -> str:
    """One line as Markdown that shows it, with no more escapes than that takes."""
    text = _ALIVE.sub(r"\\\g<0>", _CITATION.sub(r"(\1)", neutralise_text(text)))
    return _BEGINS.sub(lambda found: f"{found[1] or ''}\\{found[2]}", text)


def _sanitise_line(line: str) -> str:
    """A line of Markdown in which nothing leads elsewhere."""
    line = _CITATION.sub(r"(\1)", line)
    return _LIVE.sub(lambda found: found[1] + "\\" * (1 - len(found[1]) % 2) + found[2], line)


def to_title(said: str) -> str:
    """A title on one line, cut to 120 characters."""
    one = " ".join(neutralise_text(said).split())
    return escape_lines(
        one if len(one) <= MAX_TITLE_CHARACTERS else f"{one[: MAX_TITLE_CHARACTERS - 1]}…"
    )


def _escape_all_marks(line: str) -> str:
    line = _CITATION.sub(r"(\1)", line.rstrip())
    row = line.lstrip().startswith("|")
    marked = _MARKS.sub(
        lambda found: found[1] if row and found[1] == "|" else rf"\{found[1]}", line
    )
    indent = _INDENT.match(marked)
    body = marked[indent.end() :] if indent else marked
    depth = min(_MAX_INDENT, len(indent[0].expandtabs(4))) if indent else 0
    if _LIST.match(body):
        numbered = _NUMBER_END.match(body)
        body = f"{numbered[1]}\\{body[numbered.end(1) :]}" if numbered else f"\\{body}"
    return _FIXED * depth + body


def to_plain_text(markdown: str) -> str:
    """What a reader of the page sees of a Markdown text, on one line: no signs, no citations."""
    text = _LINKED.sub(r"\1", markdown)
    text = _MARKER.sub("", text)
    text = _RULE.sub(" ", text)
    text = _BEGINNING.sub(" ", text)
    text = _EMPHASIS.sub(r"\1", text)
    text = _CELLS.sub(" ", _SIGNS.sub("", _TABLE_RULE.sub(" ", text)))
    return " ".join(_ESCAPED.sub(r"\1", text).split())
