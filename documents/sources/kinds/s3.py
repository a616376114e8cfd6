"""A bucket of S3, or what stands in one below a prefix; also of other servers that speak S3."""

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
from rag.adapters.wire import is_never_asked_host
from rag.errors import NuraError

LIST_SECONDS, OBJECT_SECONDS = 60.0, 600.0
"""For a thousand names, and for one object: all of it, however slowly it comes."""
LIST_BYTES = 16 * 2**20
MAX_BARE_PAGES = 100
"""Pages of a list in a row that name nothing new, before a server is taken to go round in it."""
SPARE_BYTES = 4 * 2**20
"""Beyond the largest file, so that what is too large is told as such."""
GONE = frozenset(("NoSuchKey", "404"))
REFUSED = frozenset(("AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch"))


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
        """Send a request in botocore's stead, whose answers have no bounds."""
        try:
            opened = self._open(request)
            answer = AWSResponse(request.url, opened.status, opened.headers, _ObjectBody(opened))
            if not request.stream_output:
                answer.content  # noqa: B018 - read now: errors are botocore's to try again
        except AddressForbidden:
            raise
        except NuraError as error:
            raise EndpointConnectionError(endpoint_url=request.url, error=error) from error
        if answer.status_code in REDIRECTS and self._endpoint:
            # botocore would look for another region, and for another one there, without end
            told = {"address": self._endpoint, "status": answer.status_code}
            raise SourceUnreachable(request.url, reason="status", **told)
        return answer

    def _open(self, request: AWSPreparedRequest) -> ResponseStream:
        """The answer to a request; the one before is closed."""
        self._sending.close()
        whole = not request.stream_output
        client = OutgoingClient(
            max_bytes=LIST_BYTES if whole else settings.MAX_UPLOAD_MB * MEGABYTE + SPARE_BYTES,
            seconds=LIST_SECONDS if whole else OBJECT_SECONDS,
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
        """Each object that may hold a format that Nura reads."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix, StartAfter=listing.after
        )
        last, bare = listing.after, 0
        try:
            for page in pages:
                listing.check()
                keys = [str(one["Key"]) for one in page.get("Contents", ())]
                bare = 0 if keys and max(keys) > last else bare + 1
                if bare > MAX_BARE_PAGES:
                    raise SourceUnreachable("a list without end", reason="endless")
                last = max(last, *keys) if keys else last
                for one in page.get("Contents", ()):
                    key = str(one["Key"])
                    name = key.rpartition("/")[2]
                    if "\0" not in key and is_readable_name(name):
                        yield ListedEntry(
                            key=key,
                            name=name,
                            uri=f"s3://{self._bucket}/{key}",
                            fingerprint=f"{one['Size']}-{one['ETag']}"[:255],
                            size=int(one["Size"]),
                        )
        except (ClientError, BotoCoreError) as error:
            raise SourceUnreachable(str(error), reason=_explain_error(error)) from error

    @contextmanager
    def open_entry(self, key: str) -> Iterator[BinaryIO]:
        """The object, as it comes."""
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=key)
            with closing(answer["Body"]) as body:
                yield cast("BinaryIO", body)
        except (AddressUnreachable, AnswerTooLarge) as error:
            raise EntryUnreadable(str(error), reason="file") from error
        except ClientError as error:
            if _get_code(error) in GONE:
                raise EntryGone(key) from error
            raise EntryUnreadable(str(error), reason=_explain_error(error)) from error
        except BotoCoreError as error:
            raise EntryUnreadable(str(error), reason="file") from error


class _ObjectBody:
    """A body as botocore reads one."""

    def __init__(self, opened: ResponseStream) -> None:
        self.read, self._opened = opened.read, opened

    def stream(self, amount: int = 65_536, **_: Any) -> Iterator[bytes]:
        """All of it, piece by piece."""
        while part := self._opened.read(amount):
            yield part

    def close(self) -> None:
        """The next request does, or the end of the source."""


def _get_code(error: Exception) -> str:
    response = getattr(error, "response", {})
    return str(response.get("Error", {}).get("Code", ""))


def _explain_error(error: Exception) -> str:
    code = _get_code(error)
    if code in REFUSED:
        return "permission"
    return "bucket" if code == "NoSuchBucket" else "s3"


def _check_s3(values: Mapping[str, Any]) -> None:
    if values["endpoint"]:
        try:
            host = split_address(values["endpoint"])[0]
        except AddressInvalid as error:
            raise SourceSettingInvalid(name="endpoint", reason="address") from error
        if is_never_asked_host(host):
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
