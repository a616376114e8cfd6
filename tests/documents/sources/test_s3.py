"""A bucket of moto's server, over the real protocol."""

import itertools

import boto3
import pytest
from django.contrib.auth.models import User
from moto.server import ThreadedMotoServer

from documents import libraries
from documents.models import Document
from documents.sources import services, sync
from documents.sources.base import SourceSettingInvalid
from documents.sources.kinds import s3
from documents.sources.models import Source, SourceEntry
from tests.documents.sources.test_folder import get_counts, run
from tests.servers.hostile import HostileServer

pytestmark = pytest.mark.django_db
KEYS = {"access_key": "key-id", "secret_key": "a-very-secret-key"}


@pytest.fixture(scope="module")
def address():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(address, request):
    client = boto3.client(
        "s3",
        endpoint_url=address,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="y",
    )
    name = f"bucket-{abs(hash(request.node.name)) % 10**9}"
    client.create_bucket(Bucket=name)

    class Bucket:
        def put(self, key, text):
            client.put_object(Bucket=name, Key=key, Body=text.encode())

        def delete(self, key):
            client.delete_object(Bucket=name, Key=key)

    one = Bucket()
    one.name = name
    return one


@pytest.fixture
def source(bucket, address, sent):
    administrator = User.objects.create_user("administrator", is_staff=True)
    return services.create_source(
        library=libraries.create_library(creator=administrator, name="S3"),
        creator=administrator,
        kind="s3",
        name="",
        values={"bucket": bucket.name, "prefix": "규정/", "endpoint": address, **KEYS},
    )


def test_objects_are_kept_in_step(source, bucket):
    bucket.put("규정/휴가.txt", "휴가")
    bucket.put("규정/출장.txt", "출장")
    bucket.put("다른/비밀.txt", "밖")
    bucket.put("규정/그림.xyz", "x")
    assert get_counts(run(source)) == {"added": 2}
    assert get_counts(run(source)) == {}
    bucket.put("규정/휴가.txt", "휴가 다시")
    bucket.delete("규정/출장.txt")
    bucket.put("규정/새/출장 규정.txt", "출장")
    assert get_counts(run(source)) == {"changed": 1, "renamed": 1}
    assert {one.metadata["source_uri"] for one in Document.objects.all()} == {
        f"s3://{bucket.name}/규정/휴가.txt",
        f"s3://{bucket.name}/규정/새/출장 규정.txt",
    }


def test_a_dry_run_tells_a_renamed_object_by_its_bytes(source, bucket):
    bucket.put("규정/휴가.txt", "휴가는")
    bucket.put("규정/출장.txt", "출장")
    run(source)
    bucket.delete("규정/휴가.txt")
    bucket.delete("규정/출장.txt")
    bucket.put("규정/2026/휴가 규정.txt", "휴가는")
    bucket.put("규정/보안.txt", "보안")  # as long as what is gone, with other words
    told = run(source, dry_run=True)
    assert get_counts(told) == {"added": 1, "renamed": 1, "removed": 1}
    assert told.report == {
        "added": [f"s3://{bucket.name}/규정/보안.txt"],
        "renamed": [f"s3://{bucket.name}/규정/2026/휴가 규정.txt"],
        "removed": [f"s3://{bucket.name}/규정/출장.txt"],
    }
    assert get_counts(run(source)) == get_counts(told)


def test_a_bucket_that_is_not_there_deletes_nothing(source, bucket):
    bucket.put("규정/휴가.txt", "휴가")
    run(source)
    source.settings["bucket"] = "no-such-bucket"
    source.save()
    done = run(source)
    assert (done.error_code, done.error_params) == ("source_unreachable", {"reason": "bucket"})
    assert Document.objects.count() == 1


def test_the_key_is_stored_sealed_and_shown_to_nobody(source):
    row = Source.objects.get(pk=source.pk)
    assert KEYS["secret_key"] not in f"{row.settings}{row.secrets}"
    assert services.to_source_json(row)["settings"]["secret_key"] == ""


def test_a_key_that_is_left_empty_stays(source):
    before = source.secrets
    services.update_source(
        source=source, actor=source.owner, values={"prefix": "다른/", "secret_key": ""}
    )
    assert (source.secrets, source.settings["prefix"]) == (before, "다른/")


@pytest.fixture
def hostile():
    with HostileServer() as server:
        server.content_type = "application/xml"
        yield server


def lead_to(source, endpoint):
    source.settings["endpoint"] = endpoint
    source.save()


@pytest.mark.parametrize("way", ["endless", "bomb", "drip", "slow-head", "redirect"])
def test_a_storage_that_does_what_none_should_deletes_nothing_and_ends(
    source, bucket, hostile, monkeypatch, way
):
    bucket.put("규정/휴가.txt", "휴가")
    run(source)
    monkeypatch.setattr(s3, "LIST_SECONDS", 1.0)
    hostile.redirect_url = f"{hostile.url}/elsewhere"
    hostile.answers[f"/{bucket.name}"] = way
    lead_to(source, hostile.url)
    done = run(source)
    assert done.error_code == "source_unreachable"
    assert Document.objects.count() == 1
    assert not [one for one in hostile.requests if one[1] == "/elsewhere"]
    assert hostile.sent_bytes < 300 * 2**20


@pytest.mark.parametrize("names", [[], ["규정/휴가.txt"]])
def test_a_list_of_pages_without_end_deletes_nothing_and_ends(source, bucket, hostile, names):
    bucket.put("규정/휴가.txt", "휴가")
    run(source)
    pages = itertools.count()

    def list_more():
        held = "".join(
            f"<Contents><Key>{one}</Key><Size>1</Size><ETag>x</ETag></Contents>" for one in names
        )
        more = f"<NextContinuationToken>{next(pages)}</NextContinuationToken>"
        body = f"<ListBucketResult><IsTruncated>true</IsTruncated>{more}{held}</ListBucketResult>"
        return 200, {"Content-Type": "application/xml"}, body.encode()

    hostile.answers[f"/{bucket.name}"] = list_more
    lead_to(source, hostile.url)
    done = run(source)
    assert (done.error_code, done.error_params["reason"]) == ("source_unreachable", "endless")
    assert next(pages) < 200
    assert Document.objects.count() == 1


def test_a_list_of_more_than_anybody_has_is_none(source, bucket, monkeypatch):
    monkeypatch.setattr(sync, "MAX_LISTED", 2)
    for number in range(3):
        bucket.put(f"규정/{number}.txt", "휴가")
    assert run(source).error_params["reason"] == "endless"
    assert not Document.objects.exists()


def test_an_object_that_never_ends_is_an_error_of_its_own(
    source, bucket, hostile, monkeypatch, settings
):
    settings.MAX_UPLOAD_MB = 3
    monkeypatch.setattr(s3, "OBJECT_SECONDS", 2.0)
    sizes = ("<Size>9</Size><ETag>&quot;1&quot;</ETag>", "<Size>9</Size><ETag>&quot;2&quot;</ETag>")
    listed = "".join(
        f"<Contents><Key>{name}</Key>{size}</Contents>"
        for name, size in zip(("drip.txt", "endless.txt"), sizes, strict=True)
    )
    body = f"<ListBucketResult><IsTruncated>false</IsTruncated>{listed}</ListBucketResult>"
    headers = {"Content-Type": "application/xml"}
    hostile.answers |= {
        f"/{bucket.name}": (200, headers, body.encode()),
        f"/{bucket.name}/drip.txt": "drip",
        f"/{bucket.name}/endless.txt": "endless",
    }
    lead_to(source, hostile.url)
    done = run(source)
    assert (done.status, done.failed) == ("done", 2)
    codes = SourceEntry.objects.order_by("name").values_list("error_code", flat=True)
    assert list(codes) == ["entry_unreadable", "file_too_large"]
    assert not Document.objects.exists()


@pytest.mark.parametrize("endpoint", ["http://169.254.169.254", "http://[::ffff:169.254.169.254]"])
def test_the_machines_own_surroundings_are_no_storage(source, endpoint):
    with pytest.raises(SourceSettingInvalid):
        services.update_source(source=source, actor=source.owner, values={"endpoint": endpoint})
    lead_to(source, endpoint)
    assert run(source).error_code == "address_forbidden"
