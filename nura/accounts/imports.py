"""Chats from a file: an export of Nura, ChatGPT, Claude or Open WebUI.

ChatGPT and Claude both call it `conversations.json`, zipped or not; its shape tells whose it is.

The file is treated as hostile. Nothing is unpacked to disk; entries, sizes and depth are limited,
and the whole file is read once before anything is written. A worker does it (`nura.tasks`), each
chat in a transaction of its own, so that no chat is imported in part and a retry skips those that
are there already.
"""

import codecs
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, cast
from uuid import UUID, uuid4

import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.core.files import File
from django.core.files.storage import default_storage
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from django.utils.translation import override

from chats.models import Message
from chats.services.export import NURA_CHAT_PREFIX, ImportedChat, ImportedMessage, import_chat
from documents.parsers.archive import Archive
from documents.parsers.base import MEGABYTE, Limits
from jobs.lease import (
    RELEASED,
    Heartbeat,
    HeldLease,
    Lease,
    announce_unclaimed_jobs,
    claim_job,
    reap_lost_jobs,
)
from jobs.queue import make_task_id, send_task
from nura.accounts import exports
from nura.accounts.preferences import get_preferences
from nura.models import DataImport
from rag.errors import NuraError

logger = structlog.get_logger()

TASK = "nura.tasks.make_import"
FOLDER = "imports"
PATIENCE = timedelta(seconds=30)
LEFTOVER_AGE = timedelta(hours=1)
"""Age from which a file without a row is a leftover: files are stored before their rows."""
NOTED_CHATS = 20
"""Progress is stored after this many chats."""
HEARTBEAT = Heartbeat(DataImport)

LIMITS = Limits(entries=50_000, inflated=512 * MEGABYTE, ratio=200)
MAX_READ_BYTES = 512 * MEGABYTE
"""Unpacked bytes of all parts read."""
MAX_CHARACTERS = 16_000_000
"""Characters of one chat as JSON, and of all its messages."""
MAX_CHATS = 50_000
MAX_KEY_CHARACTERS = 100
PIECE_BYTES = 256 * 1024
CONVERSATIONS = re.compile(r"(.*/)?conversations(-\d+)?\.json", re.IGNORECASE)
ZIP_MARKS = (b"PK\x03\x04", b"PK\x05\x06")
HIDDEN_MARKS = re.compile("\ue200[^\ue200\ue201]*\ue201")
"""ChatGPT's own citation markers, in private-use characters."""
FOLDED_BEGINNING = re.compile(r'<details\b[^<>]*\btype="(?:reasoning|tool_calls)"')
FOLDED_END = "</details>"
"""What Open WebUI's page folds away within an answer stands between these."""
CLAUDE_ROLES = {"human": Message.Role.USER.value, "assistant": Message.Role.ASSISTANT.value}
EARLIEST_YEAR = 1990


class ImportUnreadable(NuraError):
    """The file is none of the exports, or broken."""

    code = "import_unreadable"


class ImportTooLarge(NuraError):
    """The file holds more than is accepted."""

    code = "import_too_large"


class ImportUnderWay(NuraError):
    """Another file of this account is still being read."""

    code = "import_under_way"


# The job


def request_import(*, user: User, name: str, content: "File[Any]") -> DataImport:
    """Store a file for a worker to import. Raises `ImportUnderWay`."""
    if DataImport.objects.filter(DataImport.OPEN, owner=user).exists():
        raise ImportUnderWay
    import_id = uuid4()
    default_storage.save(name_file(import_id), content)
    try:
        with transaction.atomic():
            data_import = DataImport.objects.create(
                pk=import_id, owner=user, name=name[:255], enqueued_at=timezone.now()
            )
            transaction.on_commit(lambda: queue_import(data_import.pk), robust=True)
    except IntegrityError as error:
        default_storage.delete(name_file(import_id))
        raise ImportUnderWay from error
    return data_import


def queue_import(import_id: UUID) -> None:
    """Send the task to a worker."""
    send_task(TASK, [str(import_id)], task_id=make_task_id("import", import_id))


def make_import(import_id: UUID) -> None:
    """Import the file of a request, unless another worker is at it."""
    lease = claim_job(DataImport, import_id)
    if lease is None:
        return
    data_import = DataImport.objects.select_related("owner").get(pk=import_id)
    language = get_preferences(user=data_import.owner).language or settings.LANGUAGE_CODE
    with HEARTBEAT.hold(lease) as held_lease, override(language):
        try:
            with default_storage.open(name_file(import_id)) as file:
                outcome = _import_chats(data_import.owner, cast("BinaryIO", file), held_lease)
        except NuraError as error:
            outcome = {"status": DataImport.Status.FAILED, "error_code": error.code}
        except FileNotFoundError:  # backups leave it out
            outcome = {"status": DataImport.Status.FAILED, "error_code": ImportUnreadable.code}
        lease.rows().update(**outcome, ended_at=timezone.now(), **RELEASED)
        default_storage.delete(name_file(import_id))


def _import_chats(user: User, file: BinaryIO, held_lease: HeldLease[DataImport]) -> dict[str, Any]:
    """Read the whole file, then store its chats; the fields of the outcome."""
    rows = held_lease.lease.rows()
    total = 0
    for _foreign in read_chats(file):
        total += 1
        held_lease.check()
    rows.update(total=total, done=0)
    file.seek(0)
    done, messages, empty = 0, 0, 0
    for foreign in read_chats(file):
        held_lease.check()
        done += 1
        if foreign is None:
            empty += 1
        else:
            messages += import_chat(owner=user, imported=foreign)
        if done % NOTED_CHATS == 0:
            rows.update(done=done)
    return {
        "status": DataImport.Status.DONE,
        "done": done,
        "messages": messages,
        "empty": empty,
    }


def fail_import(lease: Lease[DataImport]) -> None:
    """Mark an import that no worker could do as failed."""
    lease.rows().update(
        status=DataImport.Status.FAILED, error_code="internal", ended_at=timezone.now(), **RELEASED
    )


def sweep_imports() -> None:
    """Requeue lost imports, and remove files without a row."""
    reap_lost_jobs(DataImport, announce=queue_import, give_up=fail_import)
    announce_unclaimed_jobs(DataImport, announce=queue_import, patience=PATIENCE)
    try:
        names = default_storage.listdir(FOLDER)[1]
    except FileNotFoundError:  # nobody has imported anything yet
        return
    open_imports = {
        str(pk) for pk in DataImport.objects.filter(DataImport.OPEN).values_list("pk", flat=True)
    }
    for name in names:
        path = f"{FOLDER}/{name}"
        is_old = timezone.now() - default_storage.get_modified_time(path) > LEFTOVER_AGE
        if name not in open_imports and is_old:
            default_storage.delete(path)
            logger.info("import_removed", name=name)


def name_file(import_id: UUID) -> str:
    """The file's path in the storage."""
    return f"{FOLDER}/{import_id}"


# The file


def read_chats(file: BinaryIO) -> Iterator[ImportedChat | None]:
    """The chats of an export; None for one without messages.

    Raises `ImportUnreadable`, `ImportTooLarge` and what `Archive` raises.
    """
    signature = file.read(4)
    file.seek(0)
    chats = _read_archive(file) if signature in ZIP_MARKS else _read_json(file)
    for count, chat in enumerate(chats, 1):
        if count > MAX_CHATS:
            raise ImportTooLarge
        yield chat


def _read_json(file: BinaryIO) -> Iterator[ImportedChat | None]:
    pieces = iter(lambda: file.read(PIECE_BYTES), b"")
    for conversation in ArrayReader(pieces).read_objects():
        yield from_conversation(conversation)


def _read_archive(file: BinaryIO) -> Iterator[ImportedChat | None]:
    archive, budget = Archive(file, LIMITS), _ReadingBudget()
    conversations = [name for name in archive.names if CONVERSATIONS.fullmatch(name)]
    if exports.INDEX in archive:
        index = _load_json(archive, exports.INDEX, budget)
        if not isinstance(index, dict) or index.get("format") != exports.FORMAT:
            raise ImportUnreadable
        for name in dict.fromkeys(map(str, _get_list(index, "chats"))):
            yield from_nura(_load_json(archive, name, budget))
    elif conversations:
        for name in sorted(conversations):
            pieces = budget.spend(archive.read_chunks(name))
            for conversation in ArrayReader(pieces).read_objects():
                yield from_conversation(conversation)
    else:
        raise ImportUnreadable


@dataclass(slots=True)
class _ReadingBudget:
    """Bytes that may still be unpacked from one file."""

    left: int = MAX_READ_BYTES

    def spend(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces, counted against the budget. Raises `ImportTooLarge`."""
        for piece in pieces:
            self.left -= len(piece)
            if self.left < 0:
                raise ImportTooLarge
            yield piece


def _load_json(archive: Archive, name: str, budget: _ReadingBudget) -> Any:
    """A part as JSON."""
    data = bytearray()
    for piece in budget.spend(archive.read_chunks(name)):
        data += piece
        if len(data) > MAX_CHARACTERS:
            raise ImportTooLarge
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ImportUnreadable from error


class ArrayReader:
    """Reads the objects of a JSON array with only one in memory at a time."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._source = codecs.iterdecode(pieces, "utf-8-sig")
        self._buffer, self._position = "", 0

    def read_objects(self) -> Iterator[dict[str, Any]]:
        """Each object. Raises `ImportUnreadable`, `ImportTooLarge`."""
        if self._peek() != "[":
            raise ImportUnreadable
        self._position += 1
        while (character := self._peek()) != "]":
            if character != "{":
                raise ImportUnreadable
            yield self._read_object()

    def _peek(self) -> str:
        """The next character that is neither blank nor a comma."""
        while True:
            while self._position < len(self._buffer):
                if self._buffer[self._position] not in " \t\r\n,":
                    return self._buffer[self._position]
                self._position += 1
            self._extend_buffer()

    def _read_object(self) -> dict[str, Any]:
        decoder = json.JSONDecoder()
        while True:
            try:
                value, self._position = decoder.raw_decode(self._buffer, self._position)
            except RecursionError as error:
                raise ImportUnreadable from error
            except ValueError:
                self._extend_buffer()  # perhaps it continues
            else:
                return cast("dict[str, Any]", value)

    def _extend_buffer(self) -> None:
        """Double the buffer, so that a large object is not parsed too often."""
        parts = [self._buffer[self._position :]]
        size = start = len(parts[0])
        if size > MAX_CHARACTERS:
            raise ImportTooLarge
        try:
            while size <= 2 * start and (piece := next(self._source, "")):
                parts.append(piece)
                size += len(piece)
        except UnicodeDecodeError as error:
            raise ImportUnreadable from error
        if size == start:
            raise ImportUnreadable  # it ends in the middle of an object
        self._buffer, self._position = "".join(parts), 0


# Its chats


def from_conversation(conversation: dict[str, Any]) -> ImportedChat | None:
    """A conversation of another product, which its shape tells."""
    if isinstance(conversation.get("chat"), dict):
        return from_open_webui(conversation)
    if isinstance(conversation.get("chat_messages"), list):
        return from_claude(conversation)
    return from_chatgpt(conversation)


def from_chatgpt(conversation: dict[str, Any]) -> ImportedChat | None:
    """A conversation of ChatGPT's export: `mapping` is a tree of nodes, most of them hidden.

    `current_node` is the end of the branch that its page showed last.
    """
    mapping, key = (
        conversation.get("mapping"),
        conversation.get("conversation_id") or conversation.get("id"),
    )
    if not isinstance(mapping, dict) or not _is_key(key):
        raise ImportUnreadable
    nodes = []
    for name, node in mapping.items():
        if not isinstance(node, dict) or not _is_key(name):
            raise ImportUnreadable
        role, text, created_at = _read_chatgpt_message(node.get("message"))
        parent = node.get("parent")
        nodes.append(_ImportNode(name, parent if _is_key(parent) else None, role, text, created_at))
    return _to_chat(
        f"chatgpt:{key}",
        conversation.get("title"),
        _to_time(conversation.get("create_time")),
        nodes,
        shown=conversation.get("current_node"),
    )


def _read_chatgpt_message(message: Any) -> tuple[str, str, datetime | None]:
    """Role, text and time; the text is empty if ChatGPT's page does not show the message."""
    if not isinstance(message, dict):
        return "", "", None
    author, content = _get_dict(message, "author"), _get_dict(message, "content")
    is_for_everybody = message.get("recipient") in {None, "all"}
    is_hidden = _get_dict(message, "metadata").get("is_visually_hidden_from_conversation")
    has_text = content.get("content_type") in {"text", "multimodal_text"}
    if is_hidden or not is_for_everybody or not has_text:
        return "", "", None
    parts = [_read_part(part) for part in _get_list(content, "parts")]
    text = HIDDEN_MARKS.sub("", "\n\n".join(filter(None, parts)))
    return str(author.get("role")), text, _to_time(message.get("create_time"))


def _read_part(part: Any) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("content_type") if isinstance(part, dict) else None
    if kind == "image_asset_pointer":
        return _("[picture]")
    text = part.get("text") if kind == "audio_transcription" else None
    return text if isinstance(text, str) else ""


def from_claude(conversation: dict[str, Any]) -> ImportedChat | None:
    """A conversation of Claude's export: messages in order; some exports name their parents."""
    key, nodes = conversation.get("uuid"), list[_ImportNode]()
    if not _is_key(key):
        raise ImportUnreadable
    for message in _get_list(conversation, "chat_messages"):
        if not isinstance(message, dict) or not _is_key(message.get("uuid")):
            raise ImportUnreadable
        previous = nodes[-1].key if nodes else None
        parent = message.get("parent_message_uuid")
        nodes.append(
            _ImportNode(
                message["uuid"],
                parent if _is_key(parent) else previous,
                CLAUDE_ROLES.get(str(message.get("sender")), ""),
                _read_claude_text(message),
                _to_time(message.get("created_at")),
            )
        )
    started_at = _to_time(conversation.get("created_at"))
    return _to_chat(f"claude:{key}", conversation.get("name"), started_at, nodes)


def _read_claude_text(message: dict[str, Any]) -> str:
    """The text without thoughts and tool calls, then the names of attached files."""
    blocks = [block for block in _get_list(message, "content") if isinstance(block, dict)]
    texts = [block.get("text") for block in blocks if block.get("type") == "text"]
    paragraphs = [text for text in texts if isinstance(text, str) and text]
    whole = message.get("text")
    if not blocks and isinstance(whole, str):
        paragraphs = [whole]
    files = [item for name in ("attachments", "files") for item in _get_list(message, name)]
    names = [item.get("file_name") for item in files if isinstance(item, dict)]
    paragraphs += [f"[{name}]" for name in dict.fromkeys(names) if isinstance(name, str) and name]
    return "\n\n".join(paragraphs)


def from_open_webui(conversation: dict[str, Any]) -> ImportedChat | None:
    """A chat of Open WebUI's export: `history` names each message's parent.

    Its `currentId` is the end of the branch that its page showed last.
    """
    history = _get_dict(conversation["chat"], "history")
    messages = _get_dict(history, "messages")
    key, title = conversation.get("id"), conversation.get("title")
    if not _is_key(key):
        raise ImportUnreadable
    nodes = []
    for name, message in messages.items():
        if not isinstance(message, dict) or not _is_key(name):
            raise ImportUnreadable
        parent, content = message.get("parentId"), message.get("content")
        nodes.append(
            _ImportNode(
                name,
                parent if _is_key(parent) else None,
                str(message.get("role")),
                _drop_folded(content) if isinstance(content, str) else "",
                _to_time(message.get("timestamp")),
            )
        )
    started_at = _to_time(conversation.get("created_at"))
    return _to_chat(f"open-webui:{key}", title, started_at, nodes, shown=history.get("currentId"))


def _drop_folded(content: str) -> str:
    """In one pass: a pattern of beginning and end would look for an end behind each beginning."""
    *ended, rest = content.split(FOLDED_END)
    kept: list[str] = []
    is_folded = False
    for part in ended:
        text = part.lstrip() if is_folded else part
        beginning = FOLDED_BEGINNING.search(text)
        is_folded = beginning is not None
        kept.append(text[: beginning.start()] if beginning else text + FOLDED_END)
    kept.append(rest.lstrip() if is_folded else rest)
    return "".join(kept)


def from_nura(chat: Any) -> ImportedChat | None:
    """A chat of Nura's own export; answers list the documents they came from."""
    if not isinstance(chat, dict):
        raise ImportUnreadable
    try:
        key = UUID(str(chat.get("id")))
    except ValueError as error:
        raise ImportUnreadable from error
    nodes = []
    for message in _get_list(chat, "messages"):
        if not isinstance(message, dict) or not _is_key(message.get("id")):
            raise ImportUnreadable
        content = message.get("content")
        text = content if isinstance(content, str) else ""
        parent = message.get("parent_id")
        nodes.append(
            _ImportNode(
                message["id"],
                parent if _is_key(parent) else None,
                str(message.get("role")),
                text + _format_sources(message),
                _to_time(message.get("created_at")),
            )
        )
    started_at = _to_time(chat.get("created_at"))
    return _to_chat(f"{NURA_CHAT_PREFIX}{key}", chat.get("title"), started_at, nodes)


def _format_sources(message: dict[str, Any]) -> str:
    """An answer's document names as text, since there are no passages to show here."""
    names: dict[str, str] = {}
    for source in _get_list(message, "sources"):
        if isinstance(source, dict) and isinstance(source.get("document_name"), str):
            names.setdefault(str(source.get("slot"))[:5], source["document_name"])
    lines = [f"- [{slot}] {' '.join(name.split())}" for slot, name in names.items()]
    return "\n".join(["", "", f"{_('Sources')}:", "", *lines]) if lines else ""


@dataclass(frozen=True, slots=True)
class _ImportNode:
    """A message as in the file; one without text only links others."""

    key: str
    parent: str | None
    role: str
    text: str
    created_at: datetime | None


@dataclass(slots=True)
class _JoinedMessage:
    """Consecutive messages of one side, which become one message here."""

    node: _ImportNode
    text: str
    parent: "_JoinedMessage | None"
    previous: "_JoinedMessage | None" = None
    """The message that this one continues."""
    is_continued: bool = False
    is_answered: bool = False

    def join_text(self, max_characters: int) -> str:
        """The whole text, of at most `max_characters`. Raises `ImportTooLarge`."""
        parts, message = list[str](), cast("_JoinedMessage | None", self)
        while message is not None:
            max_characters -= len(message.text)
            if max_characters < 0:
                raise ImportTooLarge
            parts.append(message.text)
            message = message.previous
        return "\n\n".join(reversed(parts))


def _to_chat(
    key: str,
    title: Any,
    started_at: datetime | None,
    nodes: list[_ImportNode],
    *,
    shown: Any = None,
) -> ImportedChat | None:
    """The chat of these nodes; None without messages. Nodes in a cycle are left out.

    `shown` is the key of the node at the end of the branch that was on view, if the file names it.
    """
    name = _clean_text(title) if isinstance(title, str) else ""
    joined, message_by_node = _join_units(nodes)
    complete = [item for item in joined if item.is_answered or not item.is_continued]
    if not complete:
        return None
    messages, size = list[ImportedMessage](), 0
    for joined_message in complete:
        text = joined_message.join_text(MAX_CHARACTERS - size)
        size += len(text)
        role = Message.Role(joined_message.node.role)
        parent_key = joined_message.parent.node.key if joined_message.parent else None
        if role == Message.Role.ASSISTANT and parent_key is None:
            parent_key = f"{joined_message.node.key}:?"  # an answer needs a question
            question = name or _("Imported chat")
            messages.append(
                ImportedMessage(
                    parent_key, None, Message.Role.USER, question, joined_message.node.created_at
                )
            )
        messages.append(
            ImportedMessage(
                joined_message.node.key, parent_key, role, text, joined_message.node.created_at
            )
        )
    times = [item.created_at for item in messages if item.created_at]
    started = started_at or min(times, default=timezone.now())
    shown_message = message_by_node.get(shown) if isinstance(shown, str) else None
    shown_key = shown_message.node.key if shown_message else None
    return ImportedChat(key, name, min(started, timezone.now()), messages, shown_key)


def _join_units(
    nodes: list[_ImportNode],
) -> tuple[list[_JoinedMessage], dict[str, _JoinedMessage | None]]:
    """The nodes joined into messages, each after its parent; and the message of each node."""
    children: dict[str | None, list[_ImportNode]] = {}
    keys = {child.key for child in nodes}
    for child in nodes:
        children.setdefault(child.parent if child.parent in keys else None, []).append(child)
    joined, message_by_node = list[_JoinedMessage](), dict[str, _JoinedMessage | None]()
    pending: list[tuple[_ImportNode, _JoinedMessage | None]] = [
        (child, None) for child in children.get(None, ())
    ]
    pending.reverse()
    while pending:
        node, parent = pending.pop()
        message = message_by_node[node.key] = _join_node(node, parent)
        if message is not parent and message is not None:
            joined.append(message)
        pending.extend((child, message) for child in reversed(children.get(node.key, ())))
    return joined, message_by_node


def _join_node(node: _ImportNode, parent: _JoinedMessage | None) -> _JoinedMessage | None:
    """The message that a node starts below `parent` or continues; `parent` if the node is empty."""
    text = _clean_text(node.text)
    if node.role not in Message.Role.values or not text:
        return parent
    if parent is None or parent.node.role != node.role:
        if parent is not None:
            parent.is_answered = True
        return _JoinedMessage(node, text, parent)
    parent.is_continued = True
    return _JoinedMessage(node, text, parent.parent, previous=parent)


def _clean_text(text: str) -> str:
    """The text as it can be stored: without NUL and lone surrogates, NFC, stripped."""
    cleaned = text.replace("\0", "").encode("utf-8", "ignore").decode()
    return unicodedata.normalize("NFC", cleaned).strip()


def _is_key(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_KEY_CHARACTERS and value.isascii()


def _to_time(value: Any) -> datetime | None:
    """A time from seconds or ISO 8601; None if it is invalid or implausible."""
    try:
        if isinstance(value, str):
            moment = parse_datetime(value)
        elif isinstance(value, int | float) and not isinstance(value, bool):
            moment = datetime.fromtimestamp(value, UTC)
        else:
            moment = None
    except (ValueError, OverflowError, OSError):
        return None
    if moment is None or moment.year < EARLIEST_YEAR or moment.year > timezone.now().year + 1:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _get_dict(mapping: dict[str, Any], name: str) -> dict[str, Any]:
    value = mapping.get(name)
    return value if isinstance(value, dict) else {}


def _get_list(mapping: dict[str, Any], name: str) -> list[Any]:
    value = mapping.get(name)
    return value if isinstance(value, list) else []
