"""The first run: an administrator and documents to ask about."""

import stat
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from documents.models import Document
from nura.management.commands.seed import get_credentials_file
from nura.samples import FOLDER, SAMPLES

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def own_folder(settings, tmp_path):
    settings.DATA_DIR = tmp_path
    settings.MEDIA_ROOT = tmp_path / "files"


def seed():
    call_command("seed", verbosity=0)


def read_credentials():
    lines = get_credentials_file().read_text(encoding="utf-8").splitlines()
    return dict(line.split(": ", 1) for line in lines)


def test_the_first_administrator_can_sign_in_with_what_is_kept():
    seed()
    form = {
        "login": read_credentials()["username"],
        "password": read_credentials()["password"],
        "next": "/admin/",
    }
    client = Client()
    assert client.post("/accounts/login/", form).url == "/admin/"
    assert client.get("/admin/").status_code == 200


def test_the_kept_key_works():
    seed()
    headers = {"Authorization": f"Token {read_credentials()['token']}"}
    assert Client().get("/api/v1/me", headers=headers).json()["is_staff"]


def test_only_the_owner_may_read_what_is_kept():
    seed()
    assert stat.S_IMODE(get_credentials_file().stat().st_mode) == 0o600


def test_the_samples_belong_to_the_administrator_and_wait_for_processing():
    seed()
    documents = Document.objects.filter(owner__username="admin", status="PROCESSING")
    assert set(documents.values_list("name", flat=True)) == {sample.name for sample in SAMPLES}
    notice = documents.get(content_type="application/pdf")
    assert notice.metadata["project_name"] == "2027년 해솔시 통합돌봄 정보시스템 구축"


def test_a_second_run_changes_nothing():
    seed()
    before = read_credentials()
    seed()
    assert read_credentials() == before
    assert User.objects.count() == 1
    assert Document.objects.count() == len(SAMPLES)


def test_nothing_is_made_where_somebody_has_an_account():
    User.objects.create_user("hana")
    seed()
    assert not get_credentials_file().exists()
    assert User.objects.count() == 1


def test_a_failed_run_leaves_no_user_and_can_be_repeated(monkeypatch):
    files = Path(FOLDER)
    monkeypatch.setattr("nura.management.commands.seed.FOLDER", files / "missing")
    with pytest.raises(FileNotFoundError):
        seed()
    assert not User.objects.exists()
    monkeypatch.undo()


def test_every_sample_is_a_small_file():
    for sample in SAMPLES:
        assert 0 < (FOLDER / sample.file).stat().st_size < 500_000
