"""Text of a document without its Markdown marks, and any text as Markdown that shows it as is."""

import re

_STRESS = re.compile(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1")
_SLANT = re.compile(r"(?<![\w*])\*(?=[^\s*])([^*\n]+?)(?<=[^\s*])\*(?![A-Za-z\d*])")
_PICTURE = re.compile(r"!\[([^\]\n]*)\]\([^)\n]*\)")
_LINK = re.compile(r"(?<!!)\[([^\]\n]+)\]\((?:[^()\n]|\([^()\n]*\))*\)")
_TAG = re.compile(
    r"</?(?:br|sup|sub|b|i|u|em|strong|span|p|small|kbd)(?:\s[^<>\n]{0,200})?/?>", re.IGNORECASE
)
_COMMENT = re.compile(r"<!--.*?-->|\s*\{/\*.*?\*/\}", re.DOTALL)
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{}~])")
"""But for "|", which keeps cells of tables apart."""
_CODE = re.compile(r"(`+)(.+?)\1")
_ALIVE = re.compile(r"[\\`*\[\]]|(?<!\w)_|_(?!\w)|~(?=~)|<(?=[A-Za-z/!?])|&(?=#?\w+;)")
"""What Markdown would read as more than itself within a line."""
_START = re.compile(r"^(?:([-+=:>#|]+)|(\d{1,9})([.)]))(?=\s|$|[-=:>#|])")
_CITATION = re.compile(r"\[(\d{1,4}(?:\s*,\s*\d{1,4})*)\]")


def visible(text: str) -> str:
    """What a reader of the rendered Markdown sees; lines, lists, headings and tables stay."""
    text = _COMMENT.sub("", text)
    text = _LINK.sub(r"\1", _PICTURE.sub(r"\1", text))
    text = _TAG.sub(" ", text)
    text = _SLANT.sub(r"\1", _STRESS.sub(r"\2", text))
    return _ESCAPED.sub(r"\1", _CODE.sub(r"\2", text))


def inert(line: str) -> str:
    """One line as Markdown that shows it: nothing in it is a mark, a link or a source's number."""
    line = _CITATION.sub(r"(\1)", line)
    line = _ALIVE.sub(lambda found: f"\\{found[0]}", line)
    return _START.sub(_at_start, line)


def _at_start(found: re.Match[str]) -> str:
    return f"\\{found[1]}" if found[1] else f"{found[2]}\\{found[3]}"


def cell(text: str) -> str:
    """Text for a cell of a table."""
    return inert(text).replace("|", "\\|")
