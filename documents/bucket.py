"""Files in a bucket of S3, for nodes that share no folder: `NURA_FILES_URL=s3://bucket/prefix`.

Keys, region and the address of a server that is not Amazon's are those that boto3 reads by itself
(`AWS_ACCESS_KEY_ID`, `AWS_DEFAULT_REGION`, `AWS_ENDPOINT_URL_S3`, ...). What fails is an `OSError`,
as of a folder, so that nobody who uses a storage has to know which one it is.
"""

import errno
import io
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import boto3
from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from django.core.files.base import File
from django.core.files.storage import Storage
from django.utils.deconstruct import deconstructible

NOT_FOUND_CODES = frozenset(("NoSuchKey", "404"))
BLOCK_BYTES = 1024 * 1024
"""Read with one request: a page of a PDF in the browser takes one or two."""


@deconstructible
class BucketStorage(Storage):
    """A bucket, or what stands below a prefix of it, behind Django's interface."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._bucket, self._prefix = parts.netloc, parts.path.strip("/")

    @cached_property
    def _client(self) -> Any:
        """For all threads of this process: one takes some 20 MB and a second to make."""
        is_own_server = any(map(os.environ.get, ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")))
        return boto3.client(
            "s3",
            config=Config(
                connect_timeout=5,
                read_timeout=60,
                retries={"mode": "standard", "max_attempts": 5},
                max_pool_connections=32,
                s3={"addressing_style": "path" if is_own_server else "auto"},
            ),
        )

    def _open(self, name: str, mode: str = "rb") -> "File[bytes]":
        if mode != "rb":
            raise ValueError(f"a bucket's objects are read or saved whole, not opened for {mode!r}")
        head = self._fetch_head(name)
        raw = _ObjectReader(self._client, self._to_parameters(name), int(head["ContentLength"]))
        return File(io.BufferedReader(raw, BLOCK_BYTES), name)

    def _save(self, name: str, content: "File[Any]") -> str:
        content.seek(0)
        with raise_os_errors(name):
            self._client.upload_fileobj(
                _Readable(content),
                **self._to_parameters(name),
                Config=TransferConfig(use_threads=False),
            )
        return name

    def delete(self, name: str) -> None:
        """Delete the object if there is one. Raises `OSError`."""
        with raise_os_errors(name):
            self._client.delete_object(**self._to_parameters(name))

    def exists(self, name: str) -> bool:
        """Whether there is an object of that name. Raises `OSError`."""
        try:
            self._fetch_head(name)
        except FileNotFoundError:
            return False
        return True

    def listdir(self, path: str) -> tuple[list[str], list[str]]:
        """Names of the folders and objects below. Raises `OSError`."""
        prefix = self._to_key(path.strip("/"))
        prefix = f"{prefix}/" if prefix else ""
        folders, names = [], []
        with raise_os_errors(path):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=prefix, Delimiter="/"
            )
            for page in pages:
                folders += [entry["Prefix"] for entry in page.get("CommonPrefixes", ())]
                names += [entry["Key"] for entry in page.get("Contents", ())]
        return (
            [folder.removeprefix(prefix).rstrip("/") for folder in folders],
            [name.removeprefix(prefix) for name in names if name != prefix],
        )

    def size(self, name: str) -> int:
        """Bytes of an object. Raises `OSError`."""
        return int(self._fetch_head(name)["ContentLength"])

    def get_modified_time(self, name: str) -> datetime:
        """When the object was saved. Raises `OSError`."""
        moment: datetime = self._fetch_head(name)["LastModified"]
        return moment

    def _fetch_head(self, name: str) -> Mapping[str, Any]:
        with raise_os_errors(name):
            head: Mapping[str, Any] = self._client.head_object(**self._to_parameters(name))
            return head

    def _to_parameters(self, name: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._to_key(name)}

    def _to_key(self, name: str) -> str:
        return "/".join(filter(None, (self._prefix, name)))


class _ObjectReader(io.RawIOBase):
    """An object, of which only what is asked for is fetched."""

    def __init__(self, client: Any, address: Mapping[str, str], size: int) -> None:
        self._client, self._address, self._size = client, address, size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        end = min(self._position + len(buffer), self._size)
        if end <= self._position:
            return 0
        with raise_os_errors(self._address["Key"]):
            byte_range = f"bytes={self._position}-{end - 1}"
            body = self._client.get_object(**self._address, Range=byte_range)["Body"].read()
        buffer[: len(body)] = body
        self._position += len(body)
        return len(body)


class _Readable:
    """Of a file only that it can be read: the client would close it."""

    def __init__(self, content: "File[Any]") -> None:
        self.read = content.read


@contextmanager
def raise_os_errors(name: str) -> Iterator[None]:
    """Raise what a folder would: `FileNotFoundError`, or another `OSError` with the reason."""
    try:
        yield
    except ClientError as error:
        code = str(error.response["Error"]["Code"])
        number = errno.ENOENT if code in NOT_FOUND_CODES else errno.EIO
        raise OSError(number, f"the bucket says {code}", name) from error
    except (BotoCoreError, Boto3Error) as error:
        raise OSError(errno.EIO, f"the bucket is away: {error}", name) from error
