"""A backup of a running product, killed, damaged, and brought back to another data folder."""

import datetime as dt
import json
import os
import shutil
import signal
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from nura.backup.vault import Vault
from tests.product.client import Client
from tests.support import Product, copy_prepared_folder, wait_until

pytestmark = [pytest.mark.product, pytest.mark.timeout(600)]

PASSPHRASE = "바다 위의 긴 다리\n"
LAW = (
    "# 통합돌봄 조례\n\n제1조 해솔시는 통합돌봄 담당자를 세 명 둔다.\n\n제2조 예산은 2억 원이다.\n"
)
QUESTION = "통합돌봄 담당자는 몇 명인가요?"
QUESTIONS = (QUESTION, "통합돌봄 예산은 얼마인가요?", "7차 회의록의 참석자는 누구인가요?")


@pytest.fixture(scope="module")
def busy(tmp_path_factory, small_models):
    """A product with documents and answers, running; its owner's client; and the answers."""
    with Product(tmp_path_factory.mktemp("busy") / "var", **small_models) as product:
        client = Client(product.url, product.add_user("owner"))
        client.upload("조례.md", LAW.encode())
        for number in range(40):
            client.upload(f"회의록-{number}.txt", f"{number}차 회의록. 참석자 {number}명.".encode())
        wait_until(
            lambda: not client.call("GET", "/documents?status=PROCESSING")[1]["count"],
            120,
            step=0.2,
        )
        yield product, client, [answer(client, question) for question in QUESTIONS]


def answer(client, question):
    """The complete answer in a chat of its own."""
    turn = client.ask(question)
    wait_until(lambda: client.message(turn)["status"] == "COMPLETED", 60, step=0.1)
    return client.message(turn)


@pytest.fixture(scope="module")
def passphrase(tmp_path_factory):
    path = tmp_path_factory.mktemp("passphrase") / "passphrase"
    path.write_text(PASSPHRASE, encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def kept(busy, passphrase, tmp_path_factory):
    """A folder with one encrypted backup, taken while files were read and answers written."""
    product, client, _ = busy
    for number in range(5):
        client.upload(
            f"나중-{number}.txt", f"{number}번 공고의 마감은 5월 {number + 1}일이다.".encode()
        )
    folder = tmp_path_factory.mktemp("kept") / "backups"
    for question in QUESTIONS * 3:
        client.ask(question)
    product.call("backup", str(folder), "--passphrase-file", passphrase)
    return folder


def list_stored_files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


def back_up(product: Product, folder: Path, *options: str) -> None:
    """Take a backup in another second than the one before, which is named by its own."""
    taken = {path.name for path in folder.glob("backups/*")}
    wait_until(lambda: f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}" not in taken)
    product.call("backup", str(folder), *options)


def make_empty_product(folder: Path, **settings: str) -> Product:
    """With a migrated database, to restore onto."""
    copy_prepared_folder(folder)
    return Product(folder, **settings)


def test_c97_what_was_restored_gives_the_same_answers_and_files(
    busy, kept, passphrase, small_models, tmp_path
):
    _, client, answers = busy
    restored = Product(tmp_path / "var", **small_models)
    arguments = ("restore", str(kept), "--passphrase-file", passphrase)
    restored.call(*arguments)
    assert "Nothing is wrong" in restored.call("verify").stdout
    restored.stop()
    with restored:
        again = Client(restored.url, client.token)
        for known in answers:
            assert again.call("GET", f"/messages/{known['id']}")[1] == known
        wait_until(
            lambda: not again.call("GET", "/documents?status=PROCESSING")[1]["count"], 120, step=0.2
        )
        names = {one["name"] for one in again.call("GET", "/documents?page_size=100")[1]["results"]}
        assert {"조례.md", "회의록-39.txt", "나중-4.txt"} <= names
        for question, known in zip(QUESTIONS, answers, strict=True):
            sources = [source["chunk_id"] for source in answer(again, question)["sources"]]
            assert sources == [source["chunk_id"] for source in known["sources"]]
        for chat in again.call("GET", "/chats?page_size=100")[1]["results"]:
            wait_until(lambda one=chat: has_ended(again, one), 60, step=0.2)
        refused = restored.call(*arguments, check=False)
        assert refused.returncode == 1
        assert "not empty" in refused.stderr


def test_a_backup_tells_nothing_without_its_passphrase(busy, kept, tmp_path):
    for path in list_stored_files(kept):
        assert "해솔시".encode() not in path.read_bytes()
        assert b"original-" not in path.read_bytes()
        assert path.stat().st_mode & 0o077 == 0
    product, _, _ = busy
    wrong = tmp_path / "wrong"
    wrong.write_text("다른 말\n", encoding="utf-8")
    for options, reason in (([], "encrypted"), (["--passphrase-file", str(wrong)], "wrong")):
        refused = product.call("restore", str(kept), *options, check=False)
        assert refused.returncode == 1
        assert reason in refused.stderr


def test_the_second_backup_adds_what_is_new_and_old_ones_go(busy, passphrase, tmp_path):
    product, client, _ = busy
    folder = tmp_path / "backups"
    back_up(product, folder)
    before = list_stored_files(folder / "files")
    document = client.upload("새로.txt", "새로 올린 공고입니다.".encode())
    back_up(product, folder, "--keep", "1")
    assert len(list_stored_files(folder / "files") - before) == 1
    assert len(list((folder / "backups").iterdir())) == 1
    assert client.call("DELETE", f"/documents/{document['id']}")[0] == 204
    back_up(product, folder, "--keep", "1")
    assert list_stored_files(folder / "files") == before
    encrypted = product.call("backup", str(folder), "--passphrase-file", passphrase, check=False)
    assert encrypted.returncode == 1


@pytest.mark.parametrize("of", ["files", "backups"])
def test_a_flipped_bit_is_found_before_anything_is_restored(busy, kept, passphrase, tmp_path, of):
    product, _, _ = busy
    folder = tmp_path / "backups"
    shutil.copytree(kept, folder)
    wanted = "*/database.dump" if of == "backups" else "*/*"
    path = max((folder / of).glob(wanted), key=lambda one: one.stat().st_size)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    found = product.call("verify", str(folder), "--passphrase-file", passphrase, check=False)
    assert found.returncode == 1
    assert "damaged" in found.stdout
    refused = product.call("restore", str(folder), "--passphrase-file", passphrase, check=False)
    assert refused.returncode == 1
    assert "Damaged" in refused.stderr


def test_a_backup_of_a_newer_version_is_refused(busy, tmp_path):
    product, _, _ = busy
    folder = tmp_path / "backups"
    product.call("backup", str(folder))
    (path,) = folder.glob("backups/*/manifest")
    vault = Vault(folder)
    manifest = json.loads(vault.read_note(path))
    manifest["migrations"].append(["documents", "9999_later"])
    vault.write_note(path, json.dumps(manifest).encode())
    refused = product.call("restore", str(folder), check=False)
    assert refused.returncode == 1
    assert "newer than this one" in refused.stderr


def test_a_backup_that_was_killed_leaves_the_one_before_it(busy, tmp_path):
    product, client, _ = busy
    folder = tmp_path / "backups"
    product.call("backup", str(folder))
    first = sorted((folder / "backups").iterdir())
    client.upload("큰.txt", ("가나다라마바사 " * 200_000).encode())
    with product.start_command("backup", str(folder)) as process:
        wait_until(
            lambda: list(folder.glob("*.part")) or has_new_dump(folder, first), 60, step=0.001
        )
        os.killpg(process.pid, signal.SIGKILL)
    assert "Nothing is wrong" in product.call("verify", str(folder)).stdout
    back_up(product, folder)
    assert not list(folder.glob("*.part"))
    assert len(list((folder / "backups").glob("*/manifest"))) == len(
        list((folder / "backups").iterdir())
    )


def test_a_restore_that_was_killed_can_be_run_again_and_damage_is_named(kept, passphrase, tmp_path):
    restored = make_empty_product(tmp_path / "var")
    arguments = ("restore", str(kept), "--passphrase-file", passphrase)
    with restored.start_command(*arguments) as process:
        wait_until(lambda: list((tmp_path / "var" / "files").rglob("*.md")), 60, step=0.001)
        os.killpg(process.pid, signal.SIGKILL)
    restored.call(*arguments)
    assert "Nothing is wrong" in restored.call("verify").stdout

    files = sorted((tmp_path / "var" / "files").rglob("*.txt"))
    files[0].unlink()
    files[1].write_text("다른 글")
    (files[2].parent / "stray.txt").write_text("x")
    found = restored.call("verify", check=False)
    restored.stop()
    assert found.returncode == 1
    assert f"missing file: documents/{files[0].parent.name}/{files[0].name}" in found.stdout
    assert f"not what was uploaded: documents/{files[1].parent.name}" in found.stdout
    assert "that nothing names" in found.stdout
    assert "stray.txt" in found.stdout


def has_ended(client, chat):
    messages = client.call("GET", f"/chats/{chat['id']}/messages")[1]["results"]
    return all(message["status"] != "STREAMING" for message in messages)


def has_new_dump(folder: Path, first: list[Path]) -> bool:
    return len(sorted((folder / "backups").iterdir())) > len(first)


def test_a_restore_with_another_secret_key_names_what_has_to_be_entered_again(tmp_path):
    first = make_empty_product(tmp_path / "first", SECRET_KEY="one-" * 20)
    first.call("shell", "-v0", "-c", SEAL)
    first.call("backup", str(tmp_path / "backups"))
    first.stop()
    second = make_empty_product(tmp_path / "second", SECRET_KEY="two-" * 20)
    done = second.call("restore", str(tmp_path / "backups"), check=False)
    second.stop()
    assert done.returncode == 0, done.stderr
    assert "SECRET_KEY is another one: model connection 한 모델" in done.stderr
    assert "sk-sealed" not in done.stdout + done.stderr


SEAL = """
from django.contrib.auth.models import User
from documents.connected.models import Connection
from documents.secrets import seal_secret
User.objects.create_superuser("root", password="x")
row = Connection(name="한 모델", base_url="http://127.0.0.1:1/v1")
row.set_key("sk-sealed")
row.save()
"""


@pytest.fixture
def bucket(monkeypatch):
    """The settings of an installation whose files are in a bucket, and the bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = {
        "AWS_ENDPOINT_URL_S3": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    boto3.client("s3").create_bucket(Bucket="files")
    yield {"NURA_FILES_URL": "s3://files/here", **keys}, boto3.resource("s3").Bucket("files")
    server.stop()


def test_files_of_a_bucket_are_kept_and_come_back(bucket, small_models, tmp_path):
    settings, place = bucket
    settings |= small_models
    kept = str(tmp_path / "backups")
    with Product(tmp_path / "var", **settings) as product:
        client = Client(product.url, product.add_user("owner"))
        document = client.upload("조례.md", LAW.encode())
        wait_until(
            lambda: client.call("GET", f"/documents/{document['id']}")[1]["status"] == "COMPLETED",
            120,
            step=0.2,
        )
        assert "세 명" in answer(client, QUESTION)["content"]
        product.call("backup", kept)
        names = {one.key for one in place.objects.all()}
        assert names
        place.objects.all().delete()
        assert product.call("verify", check=False).returncode == 1
    restored = make_empty_product(tmp_path / "restored", **settings)
    restored.call("restore", kept)
    assert {one.key for one in place.objects.all()} == names
    assert "Nothing is wrong" in restored.call("verify").stdout
    restored.stop()
    (name,) = (one for one in names if "/original-" in one)
    assert place.Object(name).get()["Body"].read() == LAW.encode()
