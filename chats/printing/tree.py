"""Markdown as a tree of plain values, so that nothing somebody wrote is ever read as Typst.

A node is `{"type", "children"?, "text"?, "level"?, "start"?, "link"?, "align"?}`; its type is that
of markdown-it's token without `_open`.
"""

import re
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

DEEPEST = 16
"""Levels of nodes within nodes: Typst calls no function deeper than 80."""
LONGEST_WORD = 30
"""Characters that never break by themselves; a longer word may break after each so many."""

Node = dict[str, Any]

_MARKDOWN = MarkdownIt("commonmark", {"html": False, "breaks": True})
_MARKDOWN.enable(["table", "strikethrough"])
_UNBROKEN = re.compile(rf"[!-~]{{{LONGEST_WORD}}}(?=[!-~])")
_LINK = re.compile(r"^(https?://|mailto:)", re.IGNORECASE)
_ALIGN = re.compile(r"text-align:(left|center|right)")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def tree(markdown: str) -> list[Node]:
    """The blocks of a text."""
    return _nested(_MARKDOWN.parse(printable(markdown)), 0)


def printable(text: str) -> str:
    """Without characters that no font draws."""
    return _UNPRINTABLE.sub("", text)


def _nested(tokens: list[Token], depth: int) -> list[Node]:
    """Tokens in a row as nodes within nodes; what lies too deep belongs to what holds it."""
    root: list[Node] = []
    open_lists = [root]
    for token in tokens:
        if token.nesting < 0:
            open_lists.pop()
        elif token.nesting > 0:
            if depth + len(open_lists) > DEEPEST:
                open_lists.append(open_lists[-1])
                continue
            node = _holder(token)
            open_lists[-1].append(node)
            open_lists.append(node["children"])
        elif token.type == "inline":
            open_lists[-1] += _nested(token.children or [], depth + len(open_lists))
        else:
            open_lists[-1].append(_leaf(token))
    return root


def _holder(token: Token) -> Node:
    """A node that others stand in."""
    node: Node = {"type": token.type.removesuffix("_open"), "children": []}
    if token.hidden:  # a paragraph of a list whose items stand close together
        node["type"] = "line"
    elif node["type"] == "heading":
        node["level"] = int(token.tag[1])
    elif node["type"] == "ordered_list":
        node["start"] = int(token.attrGet("start") or 1)
    elif node["type"] == "link" and _LINK.match(address := str(token.attrGet("href") or "")):
        node["link"] = address
    elif node["type"] in {"th", "td"}:
        align = _ALIGN.search(str(token.attrGet("style") or ""))
        node["align"] = align[1] if align else "left"
    return node


def _leaf(token: Token) -> Node:
    """A piece of text, or a mark; of a picture only what it is called, as nothing is fetched."""
    kinds = {"fence": "code_block", "image": "text"}
    return {"type": kinds.get(token.type, token.type), "text": breakable(token.content)}


def breakable(text: str) -> str:
    """Long words of Latin letters and signs with places where they may break."""
    return _UNBROKEN.sub(lambda word: word[0] + "\u200b", text)
