"""One's own data: taken along as a file, deleted with the account."""

import html
import io
import json
import re
import zipfile
from datetime import timedelta

import pytest
from allauth.socialaccount.models import SocialAccount
from django.apps import apps
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.test import Client
from django.utils import timezone

from chats.models import Chat
from documents.models import Document, LibraryMember, LibraryRole
from documents.sources.models import Source
from nura.accounts import exports
from nura.accounts.deletion import delete_account, is_genuine
from nura.models import DataExport
from tests import strangers
from tests.nura.accounts.conftest import PASSWORD

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def own_place(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path / "files"


@pytest.fixture
def sent(monkeypatch):
    """The exports that workers were told of."""
    told = []
    monkeypatch.setattr(exports, "queue_export", told.append)
    return told


def sign_in(name="minsu"):
    browser = Client()
    browser.post("/accounts/login/", {"login": name, "password": PASSWORD})
    browser.post("/accounts/reauthenticate/", {"password": PASSWORD})
    return browser


@pytest.mark.django_db(transaction=True)
def test_everything_is_in_the_file(minsu, stranger, sent):
    strangers.make_world(minsu)
    strangers.make_document(stranger)
    DataExport.objects.all().delete()
    browser = sign_in()
    assert "만들고 있습니다" in browser.post("/settings/data", follow=True).content.decode()
    exports.make_export(sent[0])
    export = DataExport.objects.get()
    answer = browser.get(f"/settings/data/{export.pk}")
    archive = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content)))
    index = json.loads(archive.read("export.json"))
    assert index["account"]["username"] == "minsu"
    chat = json.loads(archive.read(index["chats"][0]))
    assert chat["title"] == strangers.SECRET
    assert any(strangers.SECRET in one["content"] for one in chat["messages"])
    assert strangers.SECRET in archive.read(index["chats"][0][:-4] + "md").decode()
    original = Document.objects.get(owner=minsu)
    with original.file.open("rb") as file:
        assert archive.read(index["documents"][0]["file"]) == file.read()
    assert len(index["documents"]) == len(index["chats"]) == 1


def test_a_file_is_for_its_owner_and_for_two_days(minsu, stranger):
    export = DataExport.objects.create(
        owner=minsu, status="READY", size=3, expires_at=timezone.now() + timedelta(hours=1)
    )
    default_storage.save(exports.name_file(export.pk), ContentFile(b"zip"))
    path = f"/settings/data/{export.pk}"
    assert b"".join(sign_in().get(path).streaming_content) == b"zip"
    assert sign_in("stranger").get(path).status_code == 404
    assert Client().get(path).status_code == 302
    DataExport.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert sign_in().get(path).status_code == 404
    exports.sweep_exports()
    assert not DataExport.objects.exists()
    assert not default_storage.exists(exports.name_file(export.pk))


def test_one_export_is_made_at_a_time(trusted_client, minsu, sent):
    first = trusted_client.post("/api/v1/me/export").json()
    assert first["status"] == "WAITING"
    assert trusted_client.post("/api/v1/me/export").json()["id"] == first["id"]
    state = trusted_client.get(f"/api/v1/me/exports/{first['id']}").json()
    assert (state["status"], state["url"]) == ("WAITING", None)


def test_an_export_that_no_worker_could_make_has_failed(minsu):
    export = DataExport.objects.create(
        owner=minsu,
        attempts=DataExport.MAX_ATTEMPTS,
        claim="00000000-0000-0000-0000-000000000007",
        lease_until=timezone.now() - timedelta(minutes=1),
    )
    exports.sweep_exports()
    export.refresh_from_db()
    assert export.status == "FAILED"


def test_an_export_is_asked_for_only_by_who_has_just_shown_the_password(minsus_client):
    assert minsus_client.post("/settings/data").url.startswith("/accounts/reauthenticate/")
    assert minsus_client.post("/api/v1/me/export").status_code == 403
    assert not DataExport.objects.exists()


def test_an_account_is_deleted_with_everything(minsu, stranger):
    strangers.make_world(minsu)
    browser = sign_in()
    wrong = browser.post("/settings/delete", {"username": "somebody"})
    assert "아이디가 다릅니다" in wrong.content.decode()
    assert User.objects.count() == 3
    done = browser.post("/settings/delete", {"username": "minsu"}).content.decode()
    assert "삭제했습니다" in done
    receipt = json.loads(
        html.unescape(re.search(r'<pre id="receipt">(.*?)</pre>', done, re.DOTALL)[1])
    )
    assert is_genuine(receipt)
    assert receipt["deleted"]["documents"] == 1
    assert {user.username for user in User.objects.all()} == {
        stranger.username,
        strangers.COLLEAGUE,
    }
    assert not Chat.objects.exists()
    assert not Document.objects.exists()
    assert browser.get("/settings/profile").status_code == 302


KEPT_OF_NOBODY = {"documents.AuditEvent", "documents.Deletion"}
"""What was done, and that something was deleted: by a number, which is given to nobody again."""


def list_rows_of(user):
    """Every row of every table that names the user, by table and column."""
    rows = {}
    for model in apps.get_models(include_auto_created=True):
        for field in model._meta.concrete_fields:
            named = field.is_relation and field.related_model is User
            kept_bare = field.name in {"owner_id", "actor_id", "subject_id", "user_id"}
            if (named or kept_bare) and model._meta.label not in KEPT_OF_NOBODY:
                found = model._base_manager.filter(**{field.attname: user.pk}).count()
                rows[f"{model._meta.label}.{field.name}"] = found
    return {name: count for name, count in rows.items() if count}


def test_no_table_names_an_account_that_is_deleted(minsu, stranger):
    world = strangers.make_world(minsu)
    SocialAccount.objects.create(user=minsu, provider="keycloak", uid="1001")
    colleague = User.objects.get(username=strangers.COLLEAGUE)
    manages = {"library_id": world["library"], "user": colleague, "role": LibraryRole.MANAGER}
    LibraryMember.objects.create(**manages)
    named = list_rows_of(minsu)
    expected = ("chats.Prompt", "chats.Assistant", "documents.LibraryMember", "documents.Source")
    for table in (*expected, "chats.ProfileSlot", "socialaccount.SocialAccount"):
        assert any(name.startswith(table) for name in named), table
    receipt = delete_account(user=minsu, may_be_last=True)
    assert list_rows_of(minsu) == {}
    # what fills a library of others goes on
    assert Source.objects.get(pk=world["source"]).owner == colleague
    told = receipt["deleted"]
    assert {"prompts", "assistants", "memberships", "sign_ons", "shares"} <= set(told)


def test_an_account_is_deleted_only_by_who_has_just_shown_the_password(minsus_client, minsu):
    answer = minsus_client.post("/settings/delete", {"username": "minsu"})
    assert answer.url.startswith("/accounts/reauthenticate/")
    assert User.objects.filter(pk=minsu.pk).exists()


def test_a_file_that_a_restored_backup_lacks_is_not_found(minsu):
    until = timezone.now() + timedelta(hours=1)
    export = DataExport.objects.create(owner=minsu, status="READY", size=3, expires_at=until)
    assert sign_in().get(f"/settings/data/{export.pk}").status_code == 404


@pytest.mark.django_db(transaction=True)
def test_a_program_takes_everything_along(minsu, trusted_client, sent):
    strangers.make_world(minsu)
    DataExport.objects.all().delete()
    asked = trusted_client.post("/api/v1/me/export").json()
    exports.make_export(sent[0])
    told = trusted_client.get(f"/api/v1/me/exports/{asked['id']}").json()
    answer = trusted_client.get(told["url"])
    file = b"".join(answer.streaming_content)
    assert len(file) == told["size"] == int(answer["Content-Length"])
    assert "export.json" in zipfile.ZipFile(io.BytesIO(file)).namelist()


@pytest.mark.parametrize(("password", "status"), [("wrong", 401), (PASSWORD, 200)])
def test_a_program_deletes_an_account_with_its_password(minsus_client, minsu, password, status):
    body = {"password": password}
    answer = minsus_client.delete("/api/v1/me", body, content_type="application/json")
    assert answer.status_code == status
    assert is_genuine(answer.json()) == (status == 200)
    assert User.objects.filter(pk=minsu.pk).exists() == (status == 401)
