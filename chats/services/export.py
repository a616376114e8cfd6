"""Export of a chat as Markdown, JSON or PDF, and import of chats from elsewhere.

The exported branch is the one with the newest message. For PDF, Markdown becomes a tree of plain
values, so that nothing a user wrote is read as Typst, and a child process (`chats.printing`) sets
it in bundled fonts.

Imported chats are stored like any other. Importing again adds only what is missing: a chat is
recognised by `external_id`, a message by an id derived from the chat's. Messages that the owner has
deleted since stay deleted.
"""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

import structlog
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from django.utils.text import get_valid_filename
from django.utils.timezone import localtime, now
from django.utils.translation import get_language
from django.utils.translation import gettext as _
from markdown_it import MarkdownIt
from markdown_it.token import Token

from chats.errors import ExportFailed, ExportTooLarge
from chats.models import Chat, Message, Turn
from chats.models.chat import cut_title, make_title
from chats.runs import log
from chats.serializers import ChatSerializer, TurnSerializer
from chats.services.erasure import hide_closed_in_turns
from chats.services.formulas import FormulaUnreadable, parse_formula, read_formulas
from documents.models import Deletion, DeletionKind
from documents.parsers.markdown import let_stars_close_before_hangul

MAX_NAME_CHARACTERS = 80


def export_json(chat: Chat, turns: Sequence[Turn]) -> str:
    """The chat and its turns as JSON, in the format of the REST API."""
    data: dict[str, Any] = {
        "chat": ChatSerializer(chat).data,
        "exported_at": timezone.now(),
        "turns": TurnSerializer(turns, many=True).data,
    }
    return log.to_json(data)


def export_markdown(chat: Chat, turns: Sequence[Turn]) -> str:
    """The chat as Markdown: each question as a quotation, then the answer and its sources."""
    turns = hide_closed_in_turns(turns, user_id=chat.owner_id)
    parts = [f"# {to_one_line(chat.title)}", *(_to_markdown_turn(turn) for turn in turns)]
    return "\n\n".join(parts) + "\n"


def make_file_name(chat: Chat, ending: str) -> str:
    """The name of the exported file."""
    title = to_one_line(chat.title)[:MAX_NAME_CHARACTERS].strip(" .-_")
    return f"{get_valid_filename(title) if title else 'chat'}.{ending}"


def _to_markdown_turn(turn: Turn) -> str:
    question = "\n".join(f"> {line}".rstrip() for line in turn.user_text.splitlines())
    when = localtime(turn.ts).strftime(TIME_FORMAT)
    parts = [f"## {turn.number} · {when}", question, turn.assistant_text]
    if turn.doc_refs:
        parts.append("\n".join([f"{_('Sources')}:", "", *map(_to_markdown_source, turn.doc_refs)]))
    return "\n\n".join(part for part in parts if part)


def _to_markdown_source(ref: dict[str, Any]) -> str:
    return f"- [{ref['slot']}] {describe_source(ref)}"


def describe_source(ref: dict[str, Any]) -> str:
    """A source's title and file, and whether it was deleted or is no longer readable."""
    name = f"{to_one_line(ref['title'])} ({to_one_line(ref['source'])})"
    if ref.get("unreadable"):
        return f"{name} {_('(no longer readable)')}"
    return f"{name} {_('(deleted)')}" if ref.get("deleted") else name


def to_one_line(text: str) -> str:
    """The text in one line, blanks collapsed."""
    return " ".join(text.split())


logger = structlog.get_logger()

ROOT = Path(__file__).resolve().parents[2]
MAX_PRINTED_CHARACTERS = 1_000_000
"""Limit for all turns together; this many took about 700 MB of memory and six seconds."""
PRINT_SECONDS = 120
MAX_WAIT_SECONDS = 20
"""How long an export waits for another one to finish."""
TIME_FORMAT = "%Y-%m-%d %H:%M"
_SLOT = threading.Lock()
"""One PDF at a time: each keeps a core busy."""


def export_pdf(chat: Chat, turns: Sequence[Turn]) -> bytes:
    """The chat as PDF. Raises `ExportTooLarge` or `ExportFailed`."""
    characters = sum(len(turn.user_text) + len(turn.assistant_text) for turn in turns)
    if characters > MAX_PRINTED_CHARACTERS:
        raise ExportTooLarge(characters=characters, limit=MAX_PRINTED_CHARACTERS)
    turns = hide_closed_in_turns(turns, user_id=chat.owner_id)
    data = {
        "title": _to_printable(to_one_line(chat.title)),
        "heading": list_typed_nodes(to_one_line(chat.title)),
        "language": (get_language() or "ko").partition("-")[0],
        "exported": _("Exported on %(when)s") % {"when": localtime(now()).strftime(TIME_FORMAT)},
        "words": {"sources": _("Sources")},
        "turns": [_to_printed_turn(turn) for turn in turns],
    }
    if not _SLOT.acquire(timeout=MAX_WAIT_SECONDS):
        raise ExportFailed
    try:
        return _print_in_child(json.dumps(data))
    finally:
        _SLOT.release()


def _print_in_child(data: str) -> bytes:
    """The PDF, made in a child process from the chat as JSON. Raises `ExportFailed`."""
    try:
        process = subprocess.run(
            [sys.executable, "-m", "chats.printing"],
            cwd="/",
            env={"PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "PATH": os.defpath},
            input=data.encode(),
            capture_output=True,
            timeout=PRINT_SECONDS,
            check=True,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        logger.warning(
            "chat_not_printed", error=str(error)[:200], stderr=repr((error.stderr or b"")[-2000:])
        )
        raise ExportFailed from error
    return process.stdout


def _to_printed_turn(turn: Turn) -> dict[str, Any]:
    return {
        "number": turn.number,
        "when": localtime(turn.ts).strftime(TIME_FORMAT),
        "question": list_typed_nodes(turn.user_text),
        "answer": parse_markdown_tree(turn.assistant_text),
        "sources": [
            {"slot": ref["slot"], "text": _to_printable(describe_source(ref))}
            for ref in turn.doc_refs
        ],
    }


def _to_printable(text: str) -> str:
    return insert_breaks(drop_unprintable(text))


MAX_TREE_DEPTH = 16
"""Nesting of nodes: Typst limits the depth of function calls to 80."""
MAX_UNBROKEN_CHARACTERS = 30
"""Longer words may be broken after each this many characters."""

Node = dict[str, Any]

_MARKDOWN = MarkdownIt("commonmark", {"html": False, "breaks": True})
_MARKDOWN.enable(["table", "strikethrough"]).use(let_stars_close_before_hangul).use(read_formulas)
_UNBROKEN = re.compile(rf"[!-~]{{{MAX_UNBROKEN_CHARACTERS}}}(?=[!-~])")
_LINK = re.compile(r"^(https?://|mailto:)", re.IGNORECASE)
_ALIGN = re.compile(r"text-align:(left|center|right)")
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def parse_markdown_tree(markdown: str) -> list[Node]:
    """The Markdown text as a list of block nodes."""
    return _nest_tokens(_MARKDOWN.parse(drop_unprintable(markdown)), 0)


_LINES = MarkdownIt("zero").use(read_formulas)
_NO_FORMULAS = re.compile(r"(```.*?(?:```|\Z)|`[^`\n]+`|\n[ \t]*(?=\n))", re.DOTALL)
"""What such a formula neither contains nor reaches over: code, and blank lines."""


def list_typed_nodes(text: str) -> list[Node]:
    """A question or a title as it was typed, its formulas as nodes of their own."""
    nodes: list[Node] = []
    for number, part in enumerate(_NO_FORMULAS.split(drop_unprintable(text))):
        if number % 2:
            nodes.append({"type": "text", "text": insert_breaks(part)})
            continue
        for inline in _LINES.parseInline(part):
            nodes += [_make_leaf_node(token) for token in inline.children or []]
    nodes = _join_texts(nodes)
    for before, after in pairwise(nodes):  # a centred formula has room around it
        if after.get("block") and before["type"] == "text":
            before["text"] = before["text"].rstrip()
        elif before.get("block") and after["type"] == "text":
            after["text"] = after["text"].lstrip("\n")
    return nodes


def _join_texts(nodes: Iterable[Node]) -> list[Node]:
    joined: list[Node] = []
    for node in nodes:
        if joined and node["type"] == joined[-1]["type"] == "text":
            joined[-1]["text"] += node["text"]
        else:
            joined.append(node)
    return joined


def drop_unprintable(text: str) -> str:
    """The text without characters that no font can draw."""
    return _UNPRINTABLE.sub("", text)


def _nest_tokens(tokens: list[Token], depth: int) -> list[Node]:
    """A flat list of tokens as nested nodes; those too deep are added to the deepest allowed."""
    root: list[Node] = []
    open_lists = [root]
    for token in tokens:
        if token.nesting < 0:
            open_lists.pop()
        elif token.nesting > 0:
            if depth + len(open_lists) > MAX_TREE_DEPTH:
                open_lists.append(open_lists[-1])
                continue
            node = _make_parent_node(token)
            open_lists[-1].append(node)
            open_lists.append(node["children"])
        elif token.type == "inline":
            open_lists[-1] += _nest_tokens(token.children or [], depth + len(open_lists))
        else:
            open_lists[-1].append(_make_leaf_node(token))
    return root


def _make_parent_node(token: Token) -> Node:
    """A node with children."""
    node: Node = {"type": token.type.removesuffix("_open"), "children": []}
    if token.hidden:  # a paragraph in a tight list
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


def _make_leaf_node(token: Token) -> Node:
    """A node without children; of an image only its alternative text, as nothing is fetched."""
    if token.type in {"formula", "formula_block"}:
        return _make_formula_node(token)
    kinds = {"fence": "code_block", "image": "text"}
    return {"type": kinds.get(token.type, token.type), "text": insert_breaks(token.content)}


def _make_formula_node(token: Token) -> Node:
    """A formula by the steps that draw it, or its source if that is not understood."""
    is_block = token.type == "formula_block"
    try:
        return {"type": "formula", "block": is_block, "steps": parse_formula(token.content)}
    except FormulaUnreadable:
        kind = "code_block" if token.block else "code_inline"
        return {"type": kind, "text": insert_breaks(token.content)}


def insert_breaks(text: str) -> str:
    """The text with zero-width spaces in long ASCII words, where they may be broken."""
    return _UNBROKEN.sub(lambda word: word[0] + "\u200b", text)


NURA_CHAT_PREFIX = "nura:"
"""Prefix of the keys of chats exported by a Nura, perhaps this one."""
TITLE_CHARACTERS = 200
TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class ImportedMessage:
    """A message of an `ImportedChat`; `parent` is the `key` of the message before it.

    A question follows an answer or comes first; an answer follows a question.
    """

    key: str
    parent: str | None
    role: Message.Role
    text: str
    created_at: datetime | None


@dataclass(frozen=True, slots=True)
class ImportedChat:
    """A chat from elsewhere, identified by `key`; messages come after their parents.

    `shown` is the key of the message at the end of the branch that was on view there, if known.
    """

    key: str
    title: str
    created_at: datetime
    messages: Sequence[ImportedMessage]
    shown: str | None = None


@transaction.atomic
def import_chat(*, owner: User, imported: ImportedChat) -> int:
    """Store the messages of a chat that are missing, in one transaction; returns how many."""
    if _is_own_chat(owner, imported.key):
        return 0
    chat = Chat.objects.select_for_update().filter(owner=owner, external_id=imported.key).first()
    if chat is not None and chat.deleted_at is not None:
        Chat.objects.filter(pk=chat.pk).update(external_id="")  # imported again
        chat = None
    if chat is None:
        chat = Chat.objects.create(owner=owner, title=_to_title(imported), external_id=imported.key)
        Chat.objects.filter(pk=chat.pk).update(created_at=imported.created_at)
    count, latest = _add_messages(chat, imported)
    if count:
        Chat.objects.filter(pk=chat.pk).update(updated_at=latest)
    return count


def _is_own_chat(owner: User, key: str) -> bool:
    """Whether it is a chat of the owner in this installation."""
    if not key.startswith(NURA_CHAT_PREFIX):
        return False
    return (
        Chat.objects.visible_to(owner).filter(pk=UUID(key.removeprefix(NURA_CHAT_PREFIX))).exists()
    )


def _add_messages(chat: Chat, imported: ImportedChat) -> tuple[int, datetime]:
    """Store the missing messages; returns how many, and the time of the latest.

    A chat opens at its newest message, so the end of the branch that was on view becomes that.
    """
    keys = {item.key: uuid5(chat.pk, item.key) for item in imported.messages}
    existing = Message.objects.filter(chat=chat).in_bulk(list(keys.values()))
    turns = {
        turn.message_id: turn for turn in Turn.objects.without_search_columns().filter(chat=chat)
    }
    deleted_ids = set(
        Deletion.objects.filter(
            kind=DeletionKind.MESSAGE, key__in=[str(key) for key in keys.values()]
        ).values_list("key", flat=True)
    )
    by_key: dict[str | None, Message | None] = {None: None}
    now, count, latest = timezone.now(), 0, imported.created_at
    followed = {item.parent for item in imported.messages}
    shown = None if imported.shown in followed else imported.shown
    for item in sorted(imported.messages, key=lambda item: item.key == shown):
        parent = by_key[item.parent]
        pk = keys[item.key]
        if pk in existing or str(pk) in deleted_ids:
            by_key[item.key] = existing.get(pk, parent)
            continue
        earliest = parent.created_at + TICK if parent else imported.created_at
        if item.key == shown:
            earliest = max(earliest, latest + TICK)
        created_at = max(min(item.created_at or earliest, now), earliest)
        message = Message.objects.create(
            pk=pk,
            chat=chat,
            parent=parent,
            role=item.role,
            content=item.text,
            created_at=created_at,
        )
        by_key[item.key] = message
        if item.role == Message.Role.ASSISTANT:
            turns[pk] = _add_turn(message, turns)
        count, latest = count + 1, max(latest, created_at)
    return count, latest


def _add_turn(answer: Message, turns: dict[UUID, Turn]) -> Turn:
    """Create the turn of an answer, so that the chat can continue.

    It gets no summary: thousands would keep the language model busy for a day.
    """
    question = answer.parent
    previous = turns.get(question.parent_id) if question and question.parent_id else None
    return Turn.objects.create(
        chat_id=answer.chat_id,
        message=answer,
        parent=previous,
        number=previous.number + 1 if previous else 1,
        ts=answer.created_at,
        user_text=question.content if question else "",
        assistant_text=answer.content,
        attempts=Turn.MAX_ATTEMPTS,
        enqueued_at=timezone.now(),
    )


def _to_title(imported: ImportedChat) -> str:
    return cut_title(to_one_line(imported.title), TITLE_CHARACTERS) or make_title(
        imported.messages[0].text
    )
