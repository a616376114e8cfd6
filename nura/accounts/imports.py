"""Chats from a file: Nura's own export, or ChatGPT's (`conversations.json`, zipped or not).

The file is hostile until proved otherwise. Nothing is unpacked to disk; entries, sizes and depth
are bounded, and all of it is read once before anything is written. A worker does it
(`nura.tasks`): each chat in a transaction, so that none is there by half, and one that begins anew
finds what is there already.
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
from chats.services.export import OUR_CHATS, ForeignChat, ForeignMessage, import_chat
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
from nura.accounts.models import DataImport
from nura.accounts.preferences import get_preferences
from rag.errors import NuraError

logger = structlog.get_logger()

TASK = "nura.tasks.make_import"
FOLDER = "imports"
PATIENCE = timedelta(seconds=30)
LEFTOVER_AGE = timedelta(hours=1)
"""A file that no row names is a leftover when it is that old: it is stored before its row."""
NOTED_CHATS = 20
"""How far it is, is written after so many."""
HEARTBEAT = Heartbeat(DataImport)

LIMITS = Limits(entries=50_000, inflated=512 * MEGABYTE, ratio=200)
MAX_READ_BYTES = 512 * MEGABYTE
"""Of all parts that are read, unpacked."""
MAX_CHARACTERS = 16_000_000
"""Of one chat as JSON, and of its messages together."""
MAX_CHATS = 50_000
MAX_KEY_CHARACTERS = 100
PIECE_BYTES = 256 * 1024
CONVERSATIONS = re.compile(r"(.*/)?conversations(-\d+)?\.json", re.IGNORECASE)
ZIP_MARKS = (b"PK\x03\x04", b"PK\x05\x06")
HIDDEN_MARKS = re.compile("\ue200.*?\ue201", re.DOTALL)
"""What ChatGPT writes for its own page: places of citations, in characters of private use."""
EARLIEST_YEAR = 1990


class ImportUnreadable(NuraError):
    """The file is neither of the exports, or broken."""

    code = "import_unreadable"


class ImportTooLarge(NuraError):
    """It holds more than is taken."""

    code = "import_too_large"


class ImportUnderWay(NuraError):
    """Another file of this account is still being read."""

    code = "import_under_way"


# The job


def request_import(*, user: User, name: str, content: "File[Any]") -> DataImport:
    """Take a file that a worker reads. Raises `ImportUnderWay`."""
    if DataImport.objects.filter(DataImport.OPEN, owner=user).exists():
        raise ImportUnderWay
    import_id = uuid4()
    default_storage.save(name_file(import_id), content)
    try:
        with transaction.atomic():
            kept = DataImport.objects.create(
                pk=import_id, owner=user, name=name[:255], enqueued_at=timezone.now()
            )
            transaction.on_commit(lambda: queue_import(kept.pk), robust=True)
    except IntegrityError as error:
        default_storage.delete(name_file(import_id))
        raise ImportUnderWay from error
    return kept


def queue_import(import_id: UUID) -> None:
    """Tell a worker."""
    send_task(TASK, [str(import_id)], task_id=make_task_id("import", import_id))


def make_import(import_id: UUID) -> None:
    """Read the file of a request that nobody else is reading."""
    lease = claim_job(DataImport, import_id)
    if lease is None:
        return
    kept = DataImport.objects.select_related("owner").get(pk=import_id)
    language = get_preferences(user=kept.owner).language or settings.LANGUAGE_CODE
    with HEARTBEAT.hold(lease) as held, override(language):
        try:
            with default_storage.open(name_file(import_id)) as file:
                ended = _import_chats(kept.owner, cast("BinaryIO", file), held)
        except NuraError as error:
            ended = {"status": DataImport.Status.FAILED, "error_code": error.code}
        except FileNotFoundError:  # a backup leaves it out
            ended = {"status": DataImport.Status.FAILED, "error_code": ImportUnreadable.code}
        lease.rows().update(**ended, ended_at=timezone.now(), **RELEASED)
        default_storage.delete(name_file(import_id))


def _import_chats(user: User, file: BinaryIO, held: HeldLease[DataImport]) -> dict[str, Any]:
    """Read all of the file, then store its chats; how it ended."""
    rows = held.lease.rows()
    total = 0
    for _foreign in read_chats(file):
        total += 1
        held.check()
    rows.update(total=total, done=0)
    file.seek(0)
    done, messages, empty = 0, 0, 0
    for foreign in read_chats(file):
        held.check()
        done += 1
        if foreign is None:
            empty += 1
        else:
            messages += import_chat(owner=user, foreign=foreign)
        if done % NOTED_CHATS == 0:
            rows.update(done=done)
    return {
        "status": DataImport.Status.DONE,
        "done": done,
        "messages": messages,
        "empty": empty,
    }


def fail_import(lease: Lease[DataImport]) -> None:
    """End a request that no worker could serve."""
    lease.rows().update(
        status=DataImport.Status.FAILED, error_code="internal", ended_at=timezone.now(), **RELEASED
    )


def sweep_imports() -> None:
    """Hand on what was lost, and remove files that nothing names."""
    reap_lost_jobs(DataImport, announce=queue_import, give_up=fail_import)
    announce_unclaimed_jobs(DataImport, announce=queue_import, patience=PATIENCE)
    try:
        names = default_storage.listdir(FOLDER)[1]
    except FileNotFoundError:  # nobody has imported anything yet
        return
    waiting = {
        str(pk) for pk in DataImport.objects.filter(DataImport.OPEN).values_list("pk", flat=True)
    }
    for name in names:
        path = f"{FOLDER}/{name}"
        old = timezone.now() - default_storage.get_modified_time(path) > LEFTOVER_AGE
        if name not in waiting and old:
            default_storage.delete(path)
            logger.info("import_removed", name=name)


def name_file(import_id: UUID) -> str:
    """Where the file stands in the storage."""
    return f"{FOLDER}/{import_id}"


# The file


def read_chats(file: BinaryIO) -> Iterator[ForeignChat | None]:
    """The chats of an export; None for one in which nothing was said.

    Raises `ImportUnreadable`, `ImportTooLarge` and what `Archive` raises.
    """
    head = file.read(4)
    file.seek(0)
    found = _read_archive(file) if head in ZIP_MARKS else _read_json(file)
    for count, chat in enumerate(found, 1):
        if count > MAX_CHATS:
            raise ImportTooLarge
        yield chat


def _read_json(file: BinaryIO) -> Iterator[ForeignChat | None]:
    pieces = iter(lambda: file.read(PIECE_BYTES), b"")
    for told in ArrayReader(pieces).read_objects():
        yield from_chatgpt(told)


def _read_archive(file: BinaryIO) -> Iterator[ForeignChat | None]:
    archive, left = Archive(file, LIMITS), _ReadingBudget()
    conversations = [name for name in archive.names if CONVERSATIONS.fullmatch(name)]
    if exports.INDEX in archive:
        index = _load_json(archive, exports.INDEX, left)
        if not isinstance(index, dict) or index.get("format") != exports.FORMAT:
            raise ImportUnreadable
        for name in dict.fromkeys(map(str, _get_list(index, "chats"))):
            yield from_nura(_load_json(archive, name, left))
    elif conversations:
        for name in sorted(conversations):
            pieces = left.spend(archive.read_chunks(name))
            for told in ArrayReader(pieces).read_objects():
                yield from_chatgpt(told)
    else:
        raise ImportUnreadable


@dataclass(slots=True)
class _ReadingBudget:
    """How much may still be unpacked of one file."""

    left: int = MAX_READ_BYTES

    def spend(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces, counted against the budget. Raises `ImportTooLarge`."""
        for piece in pieces:
            self.left -= len(piece)
            if self.left < 0:
                raise ImportTooLarge
            yield piece


def _load_json(archive: Archive, name: str, left: _ReadingBudget) -> Any:
    """A part as JSON."""
    data = bytearray()
    for piece in left.spend(archive.read_chunks(name)):
        data += piece
        if len(data) > MAX_CHARACTERS:
            raise ImportTooLarge
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ImportUnreadable from error


class ArrayReader:
    """The objects of a JSON array one by one, of which only one is held in memory."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._source = codecs.iterdecode(pieces, "utf-8-sig")
        self._buffer, self._at = "", 0

    def read_objects(self) -> Iterator[dict[str, Any]]:
        """Each object. Raises `ImportUnreadable`, `ImportTooLarge`."""
        if self._peek() != "[":
            raise ImportUnreadable
        self._at += 1
        while (sign := self._peek()) != "]":
            if sign != "{":
                raise ImportUnreadable
            yield self._read_object()

    def _peek(self) -> str:
        """The next sign that is neither blank nor a comma."""
        while True:
            while self._at < len(self._buffer):
                if self._buffer[self._at] not in " \t\r\n,":
                    return self._buffer[self._at]
                self._at += 1
            self._extend_buffer()

    def _read_object(self) -> dict[str, Any]:
        decoder = json.JSONDecoder()
        while True:
            try:
                told, self._at = decoder.raw_decode(self._buffer, self._at)
            except RecursionError as error:
                raise ImportUnreadable from error
            except ValueError:
                self._extend_buffer()  # perhaps it goes on
            else:
                return cast("dict[str, Any]", told)

    def _extend_buffer(self) -> None:
        """Read as much again as is buffered, so that a large object is not parsed too often."""
        parts = [self._buffer[self._at :]]
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
            raise ImportUnreadable  # it ends in the middle
        self._buffer, self._at = "".join(parts), 0


# Its chats


def from_chatgpt(told: dict[str, Any]) -> ForeignChat | None:
    """A conversation of ChatGPT's export: `mapping` is a tree of nodes, most of them not shown."""
    mapping, key = told.get("mapping"), told.get("conversation_id") or told.get("id")
    if not isinstance(mapping, dict) or not _is_key(key):
        raise ImportUnreadable
    nodes = []
    for name, node in mapping.items():
        if not isinstance(node, dict) or not _is_key(name):
            raise ImportUnreadable
        role, text, said_at = _read_chatgpt_message(node.get("message"))
        parent = node.get("parent")
        nodes.append(_ImportNode(name, parent if _is_key(parent) else None, role, text, said_at))
    return _to_chat(f"chatgpt:{key}", told.get("title"), _to_time(told.get("create_time")), nodes)


def _read_chatgpt_message(told: Any) -> tuple[str, str, datetime | None]:
    """Role, text and time; no text of what the page does not show."""
    if not isinstance(told, dict):
        return "", "", None
    author, content = _get_dict(told, "author"), _get_dict(told, "content")
    meant = told.get("recipient") in {None, "all"}
    hidden = _get_dict(told, "metadata").get("is_visually_hidden_from_conversation")
    shown = content.get("content_type") in {"text", "multimodal_text"}
    if hidden or not meant or not shown:
        return "", "", None
    parts = [_read_part(part) for part in _get_list(content, "parts")]
    text = HIDDEN_MARKS.sub("", "\n\n".join(filter(None, parts)))
    return str(author.get("role")), text, _to_time(told.get("create_time"))


def _read_part(part: Any) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("content_type") if isinstance(part, dict) else None
    if kind == "image_asset_pointer":
        return _("[picture]")
    said = part.get("text") if kind == "audio_transcription" else None
    return said if isinstance(said, str) else ""


def from_nura(told: Any) -> ForeignChat | None:
    """A chat of Nura's own export; an answer names the documents that it was drawn from."""
    if not isinstance(told, dict):
        raise ImportUnreadable
    try:
        key = UUID(str(told.get("id")))
    except ValueError as error:
        raise ImportUnreadable from error
    nodes = []
    for message in _get_list(told, "messages"):
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
    begun_at = _to_time(told.get("created_at"))
    return _to_chat(f"{OUR_CHATS}{key}", told.get("title"), begun_at, nodes)


def _format_sources(message: dict[str, Any]) -> str:
    """The document names of an answer as text: here they have no passages to show."""
    named: dict[str, str] = {}
    for source in _get_list(message, "sources"):
        if isinstance(source, dict) and isinstance(source.get("document_name"), str):
            named.setdefault(str(source.get("slot"))[:5], source["document_name"])
    lines = [f"- [{slot}] {' '.join(name.split())}" for slot, name in named.items()]
    return "\n".join(["", "", f"{_('Sources')}:", "", *lines]) if lines else ""


@dataclass(frozen=True, slots=True)
class _ImportNode:
    """A message as a file has it; without a text it is only on the way to others."""

    key: str
    parent: str | None
    role: str
    text: str
    said_at: datetime | None


@dataclass(slots=True)
class _JoinedMessage:
    """Messages of one side that follow each other, which are one message here."""

    node: _ImportNode
    text: str
    above: "_JoinedMessage | None"
    begun: "_JoinedMessage | None" = None
    """What this one goes on from."""
    is_continued: bool = False
    is_answered: bool = False

    def join_text(self, room: int) -> str:
        """All that was said, at most `room` characters. Raises `ImportTooLarge`."""
        parts, unit = list[str](), cast("_JoinedMessage | None", self)
        while unit is not None:
            room -= len(unit.text)
            if room < 0:
                raise ImportTooLarge
            parts.append(unit.text)
            unit = unit.begun
        return "\n\n".join(reversed(parts))


def _to_chat(
    key: str, title: Any, begun_at: datetime | None, nodes: list[_ImportNode]
) -> ForeignChat | None:
    """The chat of these nodes; None where nothing was said. Nodes in a circle are left out."""
    name = _clean_text(title) if isinstance(title, str) else ""
    units = _join_units(nodes)
    kept = [one for one in units if one.is_answered or not one.is_continued]
    if not kept:
        return None
    messages, size = list[ForeignMessage](), 0
    for unit in kept:
        text = unit.join_text(MAX_CHARACTERS - size)
        size += len(text)
        role = Message.Role(unit.node.role)
        above = unit.above.node.key if unit.above else None
        if role == Message.Role.ASSISTANT and above is None:
            above = f"{unit.node.key}:?"  # an answer needs a question
            question = name or _("Imported chat")
            messages.append(
                ForeignMessage(above, None, Message.Role.USER, question, unit.node.said_at)
            )
        messages.append(ForeignMessage(unit.node.key, above, role, text, unit.node.said_at))
    times = [one.said_at for one in messages if one.said_at]
    begun = begun_at or min(times, default=timezone.now())
    return ForeignChat(key, name, min(begun, timezone.now()), messages)


def _join_units(nodes: list[_ImportNode]) -> list[_JoinedMessage]:
    """Each after the one that it follows."""
    below: dict[str | None, list[_ImportNode]] = {}
    known = {one.key for one in nodes}
    for one in nodes:
        below.setdefault(one.parent if one.parent in known else None, []).append(one)
    units = list[_JoinedMessage]()
    waiting: list[tuple[_ImportNode, _JoinedMessage | None]] = [
        (one, None) for one in below.get(None, ())
    ]
    waiting.reverse()
    while waiting:
        node, above = waiting.pop()
        unit = _join_node(node, above)
        if unit is not above and unit is not None:
            units.append(unit)
        waiting.extend((one, unit) for one in reversed(below.get(node.key, ())))
    return units


def _join_node(node: _ImportNode, above: _JoinedMessage | None) -> _JoinedMessage | None:
    """The message that a node starts or continues below another; that other if it is empty."""
    text = _clean_text(node.text)
    if node.role not in Message.Role.values or not text:
        return above
    if above is None or above.node.role != node.role:
        if above is not None:
            above.is_answered = True
        return _JoinedMessage(node, text, above)
    above.is_continued = True
    return _JoinedMessage(node, text, above.above, begun=above)


def _clean_text(text: str) -> str:
    """As it can be stored: no NUL, no half of a pair, composed, no blanks around."""
    whole = text.replace("\0", "").encode("utf-8", "ignore").decode()
    return unicodedata.normalize("NFC", whole).strip()


def _is_key(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_KEY_CHARACTERS and value.isascii()


def _to_time(told: Any) -> datetime | None:
    """A time in seconds or as ISO 8601; None where it is none, or long before there were chats."""
    try:
        if isinstance(told, str):
            said = parse_datetime(told)
        elif isinstance(told, int | float) and not isinstance(told, bool):
            said = datetime.fromtimestamp(told, UTC)
        else:
            said = None
    except (ValueError, OverflowError, OSError):
        return None
    if said is None or said.year < EARLIEST_YEAR or said.year > timezone.now().year + 1:
        return None
    return said if said.tzinfo else said.replace(tzinfo=UTC)


def _get_dict(told: dict[str, Any], name: str) -> dict[str, Any]:
    value = told.get(name)
    return value if isinstance(value, dict) else {}


def _get_list(told: dict[str, Any], name: str) -> list[Any]:
    value = told.get(name)
    return value if isinstance(value, list) else []
