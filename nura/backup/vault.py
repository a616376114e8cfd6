"""The folder that keeps backups: files by their content, encrypted if a passphrase is given.

A file is stored once under the SHA-256 of its content, or in an encrypted folder under an HMAC, so
that names reveal nothing. Encryption is AES-256-GCM in numbered pieces with the last one marked, so
that none can be dropped, moved or cut off (the STREAM construction of Hoang, Reyhanitabar, Rogaway
and Vizar, 2015); the key is derived from the passphrase with scrypt.
"""

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

PIECE_BYTES = 1 << 20
SCRYPT = {"n": 1 << 15, "r": 8, "p": 1}
SALT_BYTES, PREFIX_BYTES, TAG_BYTES = 16, 7, 16
PART = ".part"
KEY_FILE, LOCK_FILE = "key.json", "lock"


class BackupError(Exception):
    """Why no backup can be taken or restored, as a sentence for the administrator."""


class DamagedFile(BackupError):
    """A stored file is not what was written."""


class Vault:
    """One folder of backups. Only its owner may read it."""

    def __init__(self, folder: Path, passphrase: str = "", *, create: bool = False) -> None:
        """Open or create it. Raises BackupError for a wrong or missing passphrase."""
        self.folder = folder
        if create:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif not folder.is_dir():
            raise BackupError(f"{folder} is no folder")
        self._key = self._unlock(passphrase, create=create)

    def _unlock(self, passphrase: str, *, create: bool) -> bytes:
        """The key; empty if the folder is not encrypted."""
        file = self.folder / KEY_FILE
        if not file.exists():
            if not passphrase:
                return b""
            if not create or (self.folder / "backups").exists():
                raise BackupError("These backups are not encrypted: leave the passphrase out.")
            salt = secrets.token_bytes(SALT_BYTES)
            key = _derive_key(passphrase, salt)
            write_atomically(
                file, json.dumps({"salt": salt.hex(), "check": _make_key_check(key)}).encode()
            )
            return key
        if not passphrase:
            raise BackupError("These backups are encrypted: give the passphrase.")
        stored = json.loads(file.read_text(encoding="ascii"))
        key = _derive_key(passphrase, bytes.fromhex(stored["salt"]))
        if not hmac.compare_digest(_make_key_check(key), stored["check"]):
            raise BackupError("The passphrase is wrong.")
        return key

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the folder. Raises BackupError if another backup is being taken."""
        with _open_private(self.folder / LOCK_FILE) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BackupError(f"Another backup is being taken in {self.folder}.") from error
            yield

    def locate(self, sha256: str) -> Path:
        """The path of a file with this content."""
        name = (
            hmac.digest(self._key, bytes.fromhex(sha256), "sha256").hex() if self._key else sha256
        )
        return self.folder / "files" / name[:2] / name

    def has(self, sha256: str) -> bool:
        """Whether a file with this content is stored."""
        return self.locate(sha256).exists()

    def add(self, pieces: Iterable[bytes]) -> tuple[str, int]:
        """Store a file; its SHA-256 and size. The same content is stored only once."""
        draft = self.folder / f"{secrets.token_hex(8)}{PART}"
        try:
            sha256, size = self.write(draft, pieces)
            path = self.locate(sha256)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.replace(path)
            _sync_folder(path.parent)
        finally:
            draft.unlink(missing_ok=True)
        return sha256, size

    def write(self, path: Path, pieces: Iterable[bytes]) -> tuple[str, int]:
        """Write a file to disk, encrypted if the folder is; SHA-256 and size of its content."""
        digest, size = hashlib.sha256(), 0

        def count_pieces() -> Iterator[bytes]:
            nonlocal size
            for piece in pieces:
                digest.update(piece)
                size += len(piece)
                yield piece

        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _open_private(path) as file:
            for piece in self._seal(count_pieces()):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        return digest.hexdigest(), size

    def read(self, path: Path, sha256: str) -> Iterator[bytes]:
        """The content in pieces. Raises DamagedFile, at the latest after the last piece."""
        digest = hashlib.sha256()
        try:
            with path.open("rb") as file:
                for piece in self._unseal(file):
                    digest.update(piece)
                    yield piece
        except (InvalidTag, FileNotFoundError) as error:
            raise DamagedFile(f"{path} is damaged or missing") from error
        if digest.hexdigest() != sha256:
            raise DamagedFile(f"{path} is damaged")

    def write_note(self, path: Path, data: bytes) -> None:
        """Write a small file atomically, encrypted if the folder is, with its checksum first."""
        line = hashlib.sha256(data).hexdigest().encode() + b"\n"
        write_atomically(path, b"".join(self._seal([line + data])))

    def read_note(self, path: Path) -> bytes:
        """Read what `write_note` wrote. Raises DamagedFile."""
        try:
            with path.open("rb") as file:
                line, _, data = b"".join(self._unseal(file)).partition(b"\n")
        except InvalidTag as error:
            raise DamagedFile(f"{path} is damaged") from error
        if hashlib.sha256(data).hexdigest().encode() != line:
            raise DamagedFile(f"{path} is damaged")
        return data

    def check(self, path: Path, sha256: str) -> None:
        """Read the whole file. Raises DamagedFile."""
        for _ in self.read(path, sha256):
            continue

    def remove_leftovers(self) -> None:
        """Delete what a killed backup left unfinished."""
        for part in self.folder.glob(f"*{PART}"):
            part.unlink()
        for folder in (self.folder / "backups").glob("*/"):
            if not (folder / "manifest").exists():
                shutil.rmtree(folder)

    def _seal(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        if not self._key:
            yield from pieces
            return
        cipher, prefix = AESGCM(self._key), secrets.token_bytes(PREFIX_BYTES)
        yield prefix
        buffer, number = b"", 0
        for piece in pieces:
            buffer += piece
            while len(buffer) > PIECE_BYTES:
                yield cipher.encrypt(_make_nonce(prefix, number), buffer[:PIECE_BYTES], None)
                buffer, number = buffer[PIECE_BYTES:], number + 1
        yield cipher.encrypt(_make_nonce(prefix, number, last=True), buffer, None)

    def _unseal(self, file: BinaryIO) -> Iterator[bytes]:
        if not self._key:
            while piece := file.read(PIECE_BYTES):
                yield piece
            return
        cipher, prefix = AESGCM(self._key), file.read(PREFIX_BYTES)
        if len(prefix) < PREFIX_BYTES:
            raise InvalidTag
        piece, number = file.read(PIECE_BYTES + TAG_BYTES), 0
        while next_piece := file.read(PIECE_BYTES + TAG_BYTES):
            yield cipher.decrypt(_make_nonce(prefix, number), piece, None)
            piece, number = next_piece, number + 1
        yield cipher.decrypt(_make_nonce(prefix, number, last=True), piece, None)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a small file atomically."""
    part = path.with_suffix(f".{secrets.token_hex(4)}{PART}")
    try:
        with _open_private(part) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)


def _open_private(path: Path) -> Any:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb")


def _sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, so that they survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _derive_key(passphrase: str, salt: bytes) -> bytes:
    return Scrypt(salt=salt, length=32, **SCRYPT).derive(passphrase.encode())


def _make_key_check(key: bytes) -> str:
    """A value that identifies the right key and reveals nothing else."""
    return hmac.digest(key, b"nura backup", "sha256").hex()


def _make_nonce(prefix: bytes, number: int, *, last: bool = False) -> bytes:
    return prefix + number.to_bytes(4) + bytes([last])
