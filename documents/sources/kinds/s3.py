"""A bucket of S3 or of a compatible server, or the part of it below a prefix."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from typing import Any, BinaryIO, cast

import boto3
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, EndpointConnectionError
from django.conf import settings
from django.utils.translation import gettext_lazy as _

from documents.files import MEGABYTE
from documents.outgoing import (
    REDIRECTS,
    AddressForbidden,
    AddressInvalid,
    AddressUnreachable,
    AnswerTooLarge,
    OutgoingClient,
    ResponseStream,
    split_address,
)
from documents.sources.base import (
    EntryGone,
    EntryUnreadable,
    ListedEntry,
    Listing,
    SettingField,
    SourceKind,
    SourceReader,
    SourceSettingInvalid,
    SourceUnreachable,
    UnlistedEntry,
    is_readable_name,
    register_kind,
)
from rag.adapters.wire import is_forbidden_host
from rag.errors import NuraError

LIST_SECONDS, OBJECT_SECONDS = 60.0, 600.0
"""Time limits for a page of a thousand names, and for one object."""
LIST_BYTES = 16 * 2**20
MAX_STALE_PAGES = 100
"""Consecutive pages of a list without a new name, after which the server counts as looping."""
SPARE_BYTES = 4 * 2**20
"""Read beyond the largest allowed file, so that a larger one is reported as too large."""
GONE_CODES = frozenset(("NoSuchKey", "404"))
REFUSED_CODES = frozenset(("AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch"))


class S3Reader(SourceReader):
    """Objects in the order of their keys, as S3 lists them."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._bucket, self._prefix = values["bucket"], values["prefix"]
        self._endpoint = endpoint = values["endpoint"] or None
        self._sending = ExitStack()
        self._client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name=values["region"] or "us-east-1",
            aws_access_key_id=values["access_key"],
            aws_secret_access_key=values["secret_key"],
            config=Config(
                retries={"max_attempts": 3},
                s3={"addressing_style": "path" if endpoint else "auto"},
            ),
        )
        self._client.meta.events.register("before-send.s3", self._send)

    def __exit__(self, *_: object) -> None:
        self._sending.close()
        self._client.close()

    def _send(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        """Send a request instead of botocore, which does not limit responses."""
        try:
            stream = self._open(request)
            answer = AWSResponse(request.url, stream.status, stream.headers, _ObjectBody(stream))
            if not request.stream_output:
                answer.content  # noqa: B018 - read now, so that botocore retries errors
        except AddressForbidden:
            raise
        except NuraError as error:
            raise EndpointConnectionError(endpoint_url=request.url, error=error) from error
        if answer.status_code in REDIRECTS and self._endpoint:
            # botocore would look for another region, again and again
            params = {"address": self._endpoint, "status": answer.status_code}
            raise SourceUnreachable(request.url, reason="status", **params)
        return answer

    def _open(self, request: AWSPreparedRequest) -> ResponseStream:
        """The response to a request; closes the previous one."""
        self._sending.close()
        is_listing = not request.stream_output
        client = OutgoingClient(
            max_bytes=LIST_BYTES if is_listing else settings.MAX_UPLOAD_MB * MEGABYTE + SPARE_BYTES,
            seconds=LIST_SECONDS if is_listing else OBJECT_SECONDS,
            is_entered=True,
            authorities=os.environ.get("AWS_CA_BUNDLE", ""),
        )
        headers = {
            name: value.decode() if isinstance(value, bytes) else str(value)
            for name, value in request.headers.items()
        }
        self._sending.enter_context(client)
        return self._sending.enter_context(
            client.open(request.method, request.url, headers, request.body or b"")
        )

    def list_entries(self, listing: Listing) -> Iterator[ListedEntry | UnlistedEntry]:
        """Each object with a name of a readable format."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix, StartAfter=listing.after
        )
        last_key, stale_pages = listing.after, 0
        try:
            for page in pages:
                listing.check()
                keys = [str(item["Key"]) for item in page.get("Contents", ())]
                stale_pages = 0 if keys and max(keys) > last_key else stale_pages + 1
                if stale_pages > MAX_STALE_PAGES:
                    raise SourceUnreachable("a list without end", reason="endless")
                last_key = max(last_key, *keys) if keys else last_key
                for item in page.get("Contents", ()):
                    key = str(item["Key"])
                    name = key.rpartition("/")[2]
                    if "\0" not in key and is_readable_name(name):
                        yield ListedEntry(
                            key=key,
                            name=name,
                            uri=f"s3://{self._bucket}/{key}",
                            fingerprint=f"{item['Size']}-{item['ETag']}"[:255],
                            size=int(item["Size"]),
                        )
        except (ClientError, BotoCoreError) as error:
            raise SourceUnreachable(str(error), reason=_explain_error(error)) from error

    @contextmanager
    def open_entry(self, key: str) -> Iterator[BinaryIO]:
        """The object as a stream."""
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=key)
            with closing(answer["Body"]) as body:
                yield cast("BinaryIO", body)
        except (AddressUnreachable, AnswerTooLarge) as error:
            raise EntryUnreadable(str(error), reason="file") from error
        except ClientError as error:
            if _get_code(error) in GONE_CODES:
                raise EntryGone(key) from error
            raise EntryUnreadable(str(error), reason=_explain_error(error)) from error
        except BotoCoreError as error:
            raise EntryUnreadable(str(error), reason="file") from error


class _ObjectBody:
    """A response body with the interface that botocore expects."""

    def __init__(self, stream_: ResponseStream) -> None:
        self.read, self._stream = stream_.read, stream_

    def stream(self, amount: int = 65_536, **_: Any) -> Iterator[bytes]:
        """Everything, piece by piece."""
        while part := self._stream.read(amount):
            yield part

    def close(self) -> None:
        """Nothing: the next request closes it, or the end of the source."""


def _get_code(error: Exception) -> str:
    response = getattr(error, "response", {})
    return str(response.get("Error", {}).get("Code", ""))


def _explain_error(error: Exception) -> str:
    code = _get_code(error)
    if code in REFUSED_CODES:
        return "permission"
    return "bucket" if code == "NoSuchBucket" else "s3"


def _check_s3(values: Mapping[str, Any]) -> None:
    if values["endpoint"]:
        try:
            host = split_address(values["endpoint"])[0]
        except AddressInvalid as error:
            raise SourceSettingInvalid(name="endpoint", reason="address") from error
        if is_forbidden_host(host):
            raise SourceSettingInvalid(name="endpoint", reason="address")


register_kind(
    SourceKind(
        name="s3",
        label=_("S3 bucket"),
        hint=_("Objects of Amazon S3, MinIO, Ceph, NCP Object Storage and others."),
        fields=(
            SettingField("bucket", _("Bucket"), required=True),
            SettingField(
                "prefix", _("Prefix"), help=_("Such as 규정/. Leave empty for the whole bucket.")
            ),
            SettingField(
                "endpoint", _("Address of the server"), help=_("Leave empty for Amazon S3.")
            ),
            SettingField("region", _("Region"), help=_("Such as ap-northeast-2.")),
            SettingField("access_key", _("Access key ID"), required=True),
            SettingField("secret_key", _("Secret access key"), form="secret", required=True),
        ),
        open_reader=S3Reader,
        describe=lambda values: f"s3://{values['bucket']}/{values['prefix']}",
        check=_check_s3,
        administrators=True,
        rank=3,
    )
)
