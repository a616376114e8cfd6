"""A bucket of S3, or what stands in one below a prefix; also of other servers that speak S3."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, BinaryIO, cast

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from django.utils.translation import gettext_lazy as _

from documents.outgoing import AddressInvalid, split_address
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

CONNECT_SECONDS, READ_SECONDS = 10, 60
GONE = frozenset(("NoSuchKey", "404"))
REFUSED = frozenset(("AccessDenied", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch"))


class S3Reader(SourceReader):
    """Objects in the order of their keys, as S3 lists them."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._bucket, self._prefix = values["bucket"], values["prefix"]
        endpoint = values["endpoint"] or None
        self._client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name=values["region"] or "us-east-1",
            aws_access_key_id=values["access_key"],
            aws_secret_access_key=values["secret_key"],
            config=Config(
                connect_timeout=CONNECT_SECONDS,
                read_timeout=READ_SECONDS,
                retries={"max_attempts": 3},
                s3={"addressing_style": "path" if endpoint else "auto"},
            ),
        )

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def list_entries(self, listing: Listing) -> Iterator[ListedEntry | UnlistedEntry]:
        """Each object that may hold a format that Nura reads."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=self._bucket, Prefix=self._prefix, StartAfter=listing.after
        )
        try:
            for page in pages:
                listing.check()
                for one in page.get("Contents", ()):
                    key = str(one["Key"])
                    name = key.rpartition("/")[2]
                    if "\0" not in key and is_readable_name(name):
                        yield ListedEntry(
                            key=key,
                            name=name,
                            uri=f"s3://{self._bucket}/{key}",
                            fingerprint=f"{one['Size']}-{one['ETag']}"[:255],
                        )
        except (ClientError, BotoCoreError) as error:
            raise SourceUnreachable(str(error), reason=_tell_reason(error)) from error

    @contextmanager
    def open_entry(self, key: str) -> Iterator[BinaryIO]:
        """The object, as it comes."""
        try:
            answer = self._client.get_object(Bucket=self._bucket, Key=key)
            with closing(answer["Body"]) as body:
                yield cast("BinaryIO", body)
        except ClientError as error:
            if _get_code(error) in GONE:
                raise EntryGone(key) from error
            raise EntryUnreadable(str(error), reason=_tell_reason(error)) from error
        except BotoCoreError as error:
            raise EntryUnreadable(str(error), reason="file") from error


def _get_code(error: Exception) -> str:
    response = getattr(error, "response", {})
    return str(response.get("Error", {}).get("Code", ""))


def _tell_reason(error: Exception) -> str:
    code = _get_code(error)
    if code in REFUSED:
        return "permission"
    return "bucket" if code == "NoSuchBucket" else "s3"


def _check_s3(values: Mapping[str, Any]) -> None:
    if values["endpoint"]:
        try:
            split_address(values["endpoint"])
        except AddressInvalid as error:
            raise SourceSettingInvalid(name="endpoint", reason="address") from error


register_kind(
    SourceKind(
        name="s3",
        label=_("S3 bucket"),
        hint=_("Objects of Amazon S3, MinIO, Ceph, NCP Object Storage and others."),
        fields=(
            SettingField("bucket", _("Bucket"), required=True),
            SettingField("prefix", _("Prefix"), help=_("Such as 규정/. Empty: the whole bucket.")),
            SettingField(
                "endpoint", _("Address of the server"), help=_("Empty: Amazon S3 itself.")
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
