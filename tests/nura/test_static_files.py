"""Files of one release that another one serves, for pages that were opened before an upgrade."""

import os
from zipfile import ZIP_STORED, ZipFile

import pytest
from django.core import signing
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.test import AsyncClient

from nura import preparation, static_files
from nura.static_files import HashedStaticFiles, archive_collected_files
from tests.documents.test_bucket import bucket, server  # noqa: F401 - fixtures

SCRIPT = b"export const words = 'the former ones'\n"


@pytest.fixture
def collect(settings, tmp_path):
    """Collects files as a node of another release does; their addresses by name come back."""
    settings.MEDIA_ROOT = tmp_path / "files"
    settings.STATIC_ROOT = tmp_path / "static"
    settings.STATIC_ROOT.mkdir()

    def collect_files(**contents):
        storage = HashedStaticFiles(location=tmp_path / "other")
        names = {name.replace("__", "."): content for name, content in contents.items()}
        for name, content in names.items():
            storage.delete(name)
            storage.save(name, ContentFile(content))
        list(storage.post_process({name: (storage, name) for name in names}))
        return {name: storage.url(name) for name in names}

    return collect_files


def list_archives():
    return sorted(default_storage.listdir("static")[1])


def alter(**entries):
    """Write the one archive anew, with other entries; None leaves one out."""
    name = f"static/{list_archives()[0]}"
    with default_storage.open(name) as file, ZipFile(file) as archive:
        contents = {one: archive.read(one) for one in archive.namelist()}
    by_start = {one.partition(".")[0]: one for one in contents}
    contents |= {by_start[start]: content for start, content in entries.items()}
    with ZipFile(default_storage.path(name), "w", ZIP_STORED) as archive:
        for one, content in contents.items():
            if content is not None:
                archive.writestr(one, content)


def test_anybody_gets_a_file_of_another_release_to_keep_for_ever(collect, client):
    address = collect(page__js=SCRIPT)["page.js"]
    response = client.get(address)
    assert (response.status_code, response.content) == (200, SCRIPT)
    assert response["Content-Type"] == 'text/javascript; charset="utf-8"'
    assert response["Cache-Control"] == "max-age=315360000, public, immutable"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert client.head(address).status_code == 200
    assert client.post(address).status_code == 405


async def test_under_asgi_as_well(collect):
    address = collect(page__js=SCRIPT)["page.js"]
    assert (await AsyncClient().get(address)).content == SCRIPT
    assert (await AsyncClient().get("/static/page.js")).status_code == 404


@pytest.mark.usefixtures("bucket")
def test_out_of_a_bucket_as_well(collect, client):
    assert client.get(collect(page__js=SCRIPT)["page.js"]).content == SCRIPT


@pytest.mark.parametrize(
    "name",
    [
        *("page.js", "index", "", ".", "%00", "page.000000000000.js"),
        *("../files/static/", "../documents/x/original.pdf", "..%2fdocuments%2fx%2foriginal.pdf"),
        *("/etc/passwd", "//etc/passwd", "%2e%2e/%2e%2e/etc/passwd", "..\\documents\\x"),
        *(
            "{archive}",
            "{archive}/index",
            "../static/{archive}",
            "x/../{file}",
            "{file}/",
            "{file}%00",
        ),
    ],
)
def test_a_stranger_gets_nothing_but_what_pages_name(collect, client, name):
    address = collect(page__js=SCRIPT)["page.js"]
    default_storage.save("documents/x/original.pdf", ContentFile(b"%PDF- of somebody"))
    file = address.removeprefix("/static/")
    wanted = name.format(archive=list_archives()[0], file=file)
    response = client.get(f"/static/{wanted}")
    assert (response.status_code, response.content) == (404, b"")


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param({"page": b"steal()"}, id="another file"),
        pytest.param({"page": None}, id="no file"),
        pytest.param({"index": b"{}"}, id="an unsigned index"),
        pytest.param({"index": b"\xff"}, id="no text as index"),
        pytest.param({"index": None}, id="no index"),
        pytest.param(
            {"page": b"steal()", "index": signing.dumps({}, key="of a stranger").encode()},
            id="an index with a stranger's signature",
        ),
    ],
)
def test_what_somebody_put_into_the_storage_is_not_served(collect, client, entries):
    address = collect(page__js=SCRIPT)["page.js"]
    alter(**entries)
    assert client.get(address).status_code == 404


def test_an_archive_of_a_node_that_died_is_written_again(collect, client):
    address = collect(page__js=SCRIPT)["page.js"]
    path = default_storage.path(f"static/{list_archives()[0]}")
    os.truncate(path, 100)
    assert client.get(address).status_code == 404
    collect(page__js=SCRIPT)
    assert len(list_archives()) == 1
    client.handler.load_middleware()  # within the second after a look, there is no other
    assert client.get(address).content == SCRIPT


def test_a_running_node_finds_what_a_later_release_brings(collect, client, monkeypatch):
    monkeypatch.setattr(static_files, "LISTING_SECONDS", 0.0)
    former = collect(page__js=SCRIPT)["page.js"]
    assert client.get(former).content == SCRIPT
    later = collect(page__js=b"later()")["page.js"]
    assert client.get(later).content == b"later()"
    assert client.get(former).content == SCRIPT


def test_the_archives_of_ten_releases_stay(collect, client):
    addresses = []
    for number in range(12):
        addresses.append(collect(page__js=b"let release = %d" % number)["page.js"])
        newest = max(
            list_archives(), key=lambda name: default_storage.get_modified_time(f"static/{name}")
        )
        os.utime(default_storage.path(f"static/{newest}"), (number, number))
    found = [client.get(address).status_code for address in addresses]
    assert found == [404] * 2 + [200] * 10


def test_what_a_release_without_archives_had_collected_is_kept(
    collect, client, monkeypatch, settings, tmp_path
):
    monkeypatch.setattr(HashedStaticFiles, "archive", lambda _: None)
    address = collect(page__js=SCRIPT)["page.js"]
    monkeypatch.undo()
    settings.STATIC_ROOT.rmdir()
    (tmp_path / "other").rename(settings.STATIC_ROOT)
    monkeypatch.setattr(preparation, "call_command", lambda *_, **__: settings.STATIC_ROOT.mkdir())
    assert preparation.collect_static()
    assert client.get(address).content == SCRIPT


def test_a_manifest_that_was_cut_off_keeps_no_node_from_starting(settings, tmp_path):
    settings.STATIC_ROOT = tmp_path
    (tmp_path / "staticfiles.json").write_text('{"paths": {')
    archive_collected_files()


def test_a_storage_that_fails_keeps_no_node_from_starting(collect, client, settings):
    settings.MEDIA_ROOT.write_text("no folder")
    address = collect(page__js=SCRIPT)["page.js"]
    assert client.get(address).status_code == 404
