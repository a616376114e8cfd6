"""Text of documents and titles as Markdown that displays it unchanged; Markdown as plain text."""

import re

from rag.tokenize.text import neutralise_text, track_code_fences

_MARKS = re.compile(r"([\\`*_\[\]<>~&#|$])")
_LIST_MARK = re.compile(r"^([-+=:]|\d{1,9}(?=[.)]))")
_NUMBER_END = re.compile(r"^(\d{1,9})([.)])")
_INDENT = re.compile(r"^[ \t]+")
_CITATION = re.compile(r"\[(\d{1,4}(?:\s*,\s*\d{1,4})*)\]")
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?:.*\n){0,60}?---[ \t]*(?:\n|\Z)")
_LINK_OR_HTML_START = re.compile(r"(\\*)([\[<])")
"""The sign that begins a link, a picture or HTML, with the backslashes before it."""
_ACTIVE_MARK = re.compile(r"[\\`*\[\]]|(?<!\w)_|_(?!\w)|~(?=~)|<(?=[A-Za-z/!?])|&(?=#?\w+;)")
_BLOCK_START = re.compile(r"^(\d{1,9}(?=[.)]))?([-+=:>#|]+|[.)])(?=\s|$|[-=:>#|])")
"""The signs that begin a list, a heading, a quote or a table row."""
_NO_BREAK_SPACE = "\u00a0"
_MAX_INDENT = 16
_LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\s]*\)")
_MARKER = re.compile(r"\[\d{1,3}\]")
_RULE = re.compile(r"(?m)^\s*(?:[-*_=|:+]\s*){3,}$")
_BLOCK_PREFIX = re.compile(r"(?m)^\s*(?:#{1,6}\s+|>\s?|[-*+]\s+(?:\[[ xX]\]\s+)?|```[\w-]*)")
_EMPHASIS_SIGNS = re.compile(r"\*\*|__|~~|`+")
_CELL_BARS = re.compile(r"\|")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_TABLE_RULE = re.compile(r"(?<=\s)\|?(?:\s*:?-{3,}:?\s*\|)+")
_EMPHASIS = re.compile(r"(?<![\w*])\*(?=\S)([^*\n]+)(?<=\S)\*(?![\w*])")
MAX_TITLE_CHARACTERS = 120


def escape_lines(text: str) -> str:
    """Escape a text so that it is displayed line by line, without any markup or citation markers.

    Table rows stay, since a table hides nothing.
    """
    return "\n".join(_escape_all_marks(line) for line in neutralise_text(text).splitlines())


def sanitise_markdown(text: str) -> str:
    """Markdown of a document without links, pictures, HTML and citation markers.

    Front matter ("---") is displayed line by line, code unchanged.
    """
    front_matter = _FRONT_MATTER.match(text)
    head, body = (front_matter[0], text[front_matter.end() :]) if front_matter else ("", text)
    lines, is_open, fence = [], False, ""
    for line, fence, bounds in track_code_fences(neutralise_text(body).splitlines()):
        is_open ^= bounds
        # a fence must not be indented, or its code would end with the list that it is in
        lines.append(line.strip() if bounds else line if fence else _sanitise_line(line))
    sanitised = "\n".join([*lines, fence] if is_open else lines)  # a part may end within code
    return f"{escape_lines(head)}\n\n{sanitised}" if head else sanitised


def escape_line(text: str) -> str:
    """Escape one line with as few escapes as possible."""
    text = _ACTIVE_MARK.sub(r"\\\g<0>", _CITATION.sub(r"(\1)", neutralise_text(text)))
    return _BLOCK_START.sub(lambda match: f"{match[1] or ''}\\{match[2]}", text)


def _sanitise_line(line: str) -> str:
    """A line of Markdown without links, pictures, HTML and citation markers."""
    line = _CITATION.sub(r"(\1)", line)
    return _LINK_OR_HTML_START.sub(
        lambda match: match[1] + "\\" * (1 - len(match[1]) % 2) + match[2], line
    )


def to_title(text: str) -> str:
    """A title on one line, cut to 120 characters."""
    line = " ".join(neutralise_text(text).split())
    return escape_lines(
        line if len(line) <= MAX_TITLE_CHARACTERS else f"{line[: MAX_TITLE_CHARACTERS - 1]}…"
    )


def _escape_all_marks(line: str) -> str:
    line = _CITATION.sub(r"(\1)", line.rstrip())
    is_row = line.lstrip().startswith("|")
    escaped = _MARKS.sub(
        lambda match: match[1] if is_row and match[1] == "|" else rf"\{match[1]}", line
    )
    indent = _INDENT.match(escaped)
    body = escaped[indent.end() :] if indent else escaped
    depth = min(_MAX_INDENT, len(indent[0].expandtabs(4))) if indent else 0
    if _LIST_MARK.match(body):
        number = _NUMBER_END.match(body)
        body = f"{number[1]}\\{body[number.end(1) :]}" if number else f"\\{body}"
    return _NO_BREAK_SPACE * depth + body


def to_plain_text(markdown: str) -> str:
    """The text that rendered Markdown shows, on one line, without citation markers."""
    text = _LINK.sub(r"\1", markdown)
    text = _MARKER.sub("", text)
    text = _RULE.sub(" ", text)
    text = _BLOCK_PREFIX.sub(" ", text)
    text = _EMPHASIS.sub(r"\1", text)
    text = _CELL_BARS.sub(" ", _EMPHASIS_SIGNS.sub("", _TABLE_RULE.sub(" ", text)))
    return " ".join(_ESCAPED.sub(r"\1", text).split())
