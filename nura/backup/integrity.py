"""Consistency checks: files and checksums, passages and vectors, turns, erasures."""

import hashlib
from dataclasses import dataclass, field

from django.core.files.storage import default_storage
from django.db.models import Count, Exists, F, OuterRef, Q

from chats.models import Message, ToolServer, Turn
from documents.connected.models import Connection
from documents.models import (
    Chunk,
    ChunkEmbedding,
    ChunkTerms,
    Deletion,
    DeletionKind,
    Document,
    EmbeddingSpace,
)
from documents.secrets import can_open
from documents.sources.models import Source
from nura.backup.service import list_stored_files
from nura.backup.vault import PIECE_BYTES
from nura.models import SignOnServer

MAX_NAMED = 20
"""Rows listed per kind of damage; the rest are counted."""
FOLDER = "documents"


@dataclass(slots=True)
class Inspection:
    """What was checked, and a line for each thing wrong."""

    files: int = 0
    documents: int = 0
    chunks: int = 0
    turns: int = 0
    damage: list[str] = field(default_factory=list)

    def describe_counts(self) -> str:
        """How much was checked."""
        return (
            f"{self.documents} documents, {self.files} files, {self.chunks} passages, "
            f"{self.turns} turns"
        )

    def add_damage(self, what: str, names: list[str]) -> None:
        """Add the rows or files with one kind of damage."""
        self.damage += [f"{what}: {name}" for name in names[:MAX_NAMED]]
        if len(names) > MAX_NAMED:
            self.damage.append(f"{what}: {len(names) - MAX_NAMED} more")


def inspect_installation() -> Inspection:
    """Check everything except documents still being processed."""
    inspection = Inspection()
    _check_files(inspection)
    _check_index(inspection)
    _check_turns(inspection)
    _check_erasures(inspection)
    inspection.add_damage("key to be entered again, of another SECRET_KEY", list_lost_keys())
    return inspection


def list_lost_keys() -> list[str]:
    """Names of things whose keys were sealed with another secret key."""
    sealed = [
        *((f"model connection {row}", row.sealed_key) for row in Connection.objects.all()),
        *((f"model connection {row}", row.sealed_headers) for row in Connection.objects.all()),
        *((f"tool server {row}", row.sealed_key) for row in ToolServer.objects.all()),
        *((f"sign-on server {row}", row.sealed_secret) for row in SignOnServer.objects.all()),
        *((f"source {row}", text) for row in Source.objects.all() for text in row.secrets.values()),
    ]
    return sorted({name for name, text in sealed if not can_open(text)})


def _check_files(inspection: Inspection) -> None:
    """Every referenced file exists and matches its row; no other files exist."""
    stored_files = list_stored_files()
    missing, damaged = [], []
    for name, sha256 in sorted(stored_files.items()):
        try:
            digest = _hash_file(name)
        except FileNotFoundError:
            missing.append(name)
            continue
        if sha256 and digest != sha256:
            damaged.append(name)
    inspection.files = len(stored_files)
    inspection.add_damage("missing file", missing)
    inspection.add_damage("file that is not what was uploaded", damaged)
    inspection.add_damage("file that nothing names", list_orphans())


def list_orphans() -> list[str]:
    """Stored files without a row; uploads in progress store their file first."""
    stored = _list_files(FOLDER)
    return sorted(stored - set(list_stored_files()))


def _hash_file(name: str) -> str:
    digest = hashlib.sha256()
    with default_storage.open(name, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _list_files(folder: str) -> set[str]:
    try:
        folders, names = default_storage.listdir(folder)
    except FileNotFoundError:
        return set()
    paths = {f"{folder}/{name}" for name in names}
    return paths.union(*(_list_files(f"{folder}/{name}") for name in folders))


def _check_index(inspection: Inspection) -> None:
    """Searchable documents have as many passages as recorded, with terms and vectors."""
    documents = Document.objects.filter(status=Document.Status.COMPLETED)
    inspection.documents, inspection.chunks = documents.count(), Chunk.objects.count()
    wrong = documents.annotate(found=Count("chunks")).exclude(found=F("chunk_count"))
    inspection.add_damage(
        "document with other passages than it says", [str(document.pk) for document in wrong]
    )
    chunks = Chunk.objects.filter(document__status=Document.Status.COMPLETED)
    without_terms = chunks.filter(~Exists(ChunkTerms.objects.filter(chunk=OuterRef("pk"))))
    inspection.add_damage(
        "passage without terms", [str(pk) for pk in without_terms.values_list("pk", flat=True)]
    )
    space = EmbeddingSpace.objects.filter(active=True).first()
    if space is None:
        return
    vectors = ChunkEmbedding.objects.filter(space=space)
    partial = documents.annotate(
        passages=Count("chunks", distinct=True),
        embedded=Count(
            "chunks", filter=Q(Exists(vectors.filter(chunk=OuterRef("chunks")))), distinct=True
        ),
    ).filter(embedded__gt=0, embedded__lt=F("passages"))
    inspection.add_damage(
        "document with vectors for some passages only", [str(document.pk) for document in partial]
    )


def _check_turns(inspection: Inspection) -> None:
    """Slots count from 1; every finished answer has its turn."""
    wrong = []
    turns = Turn.objects.values_list("pk", "doc_refs", "document_ids")
    for pk, references, documents in turns.iterator(chunk_size=500):
        inspection.turns += 1
        slots = [reference.get("slot") for reference in references]
        document_ids = [reference.get("document_id") for reference in references]
        if slots != list(range(1, len(slots) + 1)) or document_ids != list(map(str, documents)):
            wrong.append(str(pk))
    inspection.add_damage("turn whose documents are out of order", wrong)
    without_turn = Message.objects.filter(role=Message.Role.ASSISTANT, turn=None).exclude(
        status=Message.Status.STREAMING
    )
    inspection.add_damage(
        "answer without its turn", [str(answer.pk) for answer in without_turn.only("pk")]
    )


def _check_erasures(inspection: Inspection) -> None:
    """No answer holds text of a document whose copies were erased."""
    erased = set(
        Deletion.objects.filter(kind=DeletionKind.DOCUMENT)
        .exclude(erased_at=None)
        .values_list("key", flat=True)
    )
    if not erased:
        return
    turns = Turn.objects.filter(document_ids__overlap=list(erased)).only("pk", "doc_refs")
    turn_ids = [
        str(turn.pk)
        for turn in turns.iterator(chunk_size=500)
        if any(ref["document_id"] in erased and ref.get("passages") for ref in turn.doc_refs)
    ]
    inspection.add_damage("turn with passages of an erased document", turn_ids)
