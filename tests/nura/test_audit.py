"""The audit log: what is written, by whom, and that nobody unwrites it."""

import io
import json
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.utils import timezone

from chats.models.key import make_key_id
from documents.audit import Action, AuditEvent, record_event
from nura.accounts import services

pytestmark = pytest.mark.django_db

PASSWORD = "correct horse battery staple"
AUDIT = "/admin/documents/auditevent/"


@pytest.fixture(autouse=True)
def fresh_limits():
    cache.clear()


@pytest.fixture
def minsu():
    return User.objects.create_user("minsu", "minsu@example.com", PASSWORD)


def sign_in(client, name, password, **extra):
    return client.post("/accounts/login/", {"login": name, "password": password}, **extra)


def get_last_event(action):
    return AuditEvent.objects.filter(action=action).first()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE documents_auditevent SET actor_name = 'nobody'",
        "DELETE FROM documents_auditevent",
        "TRUNCATE documents_auditevent",
    ],
)
def test_the_database_refuses_to_change_an_entry(statement, minsu):
    record_event(Action.SIGN_IN, actor=minsu)
    with (
        pytest.raises(DatabaseError, match="can only be added to"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
    assert get_last_event(Action.SIGN_IN).actor_name == "minsu"


def test_an_entry_goes_with_the_transaction_it_tells_about(minsu):
    with transaction.atomic():
        services.create_key(user=minsu)
        transaction.set_rollback(True)
    assert not AuditEvent.objects.exists()


def test_a_sign_in_tells_who_from_where_and_in_which_request(client, minsu):
    response = sign_in(client, "minsu", PASSWORD, REMOTE_ADDR="192.0.2.7")
    entry = get_last_event(Action.SIGN_IN)
    assert (entry.actor_id, entry.actor_name, entry.address) == (minsu.pk, "minsu", "192.0.2.7")
    assert entry.request_id == response.headers["X-Request-ID"]


def test_a_wrong_password_is_written_down_without_what_was_typed(client, minsu):
    sign_in(client, "minsu", "hunter2-hunter2")
    sign_in(client, "my-secret-in-the-wrong-field", "x")
    known, unknown = AuditEvent.objects.filter(action=Action.SIGN_IN_FAILED).order_by("pk")
    assert (known.subject_id, known.details) == (minsu.pk, {"known": True})
    assert (unknown.subject_id, unknown.details) == (None, {"known": False})
    assert "secret" not in json.dumps([*AuditEvent.objects.values()], default=str)


def test_a_lock_is_written_down_once(client, minsu):
    for _ in range(9):
        sign_in(client, "minsu", "wrong")
    assert AuditEvent.objects.filter(action=Action.SIGN_IN_LOCKED).count() == 1
    assert get_last_event(Action.SIGN_IN_LOCKED).subject_id == minsu.pk


def test_a_sign_out_and_a_new_password_are_written_down(client, minsu):
    sign_in(client, "minsu", PASSWORD)
    form = {
        "oldpassword": PASSWORD,
        "password1": "another long one 1",
        "password2": "another long one 1",
    }
    client.post("/accounts/password/change/", form)
    assert get_last_event(Action.PASSWORD_CHANGED).actor_id == minsu.pk
    sign_in(client, "minsu", "another long one 1")
    client.post("/accounts/logout/")
    assert get_last_event(Action.SIGN_OUT).actor_id == minsu.pk


def test_keys_are_written_down_without_their_secret(minsu):
    key = services.create_key(user=minsu)
    services.revoke_key(user=minsu, key_id=make_key_id(minsu.auth_token_set.get()))
    assert (
        get_last_event(Action.KEY_CREATED).subject_id
        == get_last_event(Action.KEY_REVOKED).subject_id
        == minsu.pk
    )
    assert key not in json.dumps([*AuditEvent.objects.values()], default=str)


def test_what_an_administrator_does_to_an_account_is_written_down(admin_client, admin_user, minsu):
    form = {"username": "minsu", "email": "", "is_active": "", "role": "administrator"}
    form |= {"quota_rules-TOTAL_FORMS": 0, "quota_rules-INITIAL_FORMS": 0}
    admin_client.post(f"/admin/auth/user/{minsu.pk}/change/", form)
    for action in (Action.ACCOUNT_DEACTIVATED, Action.RIGHTS_CHANGED, Action.ACCOUNT_CHANGED):
        entry = get_last_event(action)
        assert (entry.actor_id, entry.subject_id) == (admin_user.pk, minsu.pk), action
    rights = AuditEvent.objects.filter(action=Action.RIGHTS_CHANGED).values_list(
        "details", flat=True
    )
    assert {"is_active": False} in rights
    assert "administrator" in {one.get("role") for one in rights}
    passwords = {"password1": "long enough 42", "password2": "long enough 42"}
    address = f"/admin/auth/user/{minsu.pk}/password/"
    admin_client.post(address, passwords | {"usable_password": "true"})
    assert get_last_event(Action.PASSWORD_CHANGED).actor_id == admin_user.pk
    admin_client.post(f"/admin/auth/user/{minsu.pk}/delete/", {"post": "yes"})
    deleted = AuditEvent.objects.filter(action=Action.ACCOUNT_DELETED)
    assert deleted.get(actor_id=admin_user.pk).subject_name == "minsu"
    assert deleted.get(actor_id=None).details["receipt"]


def test_revoking_all_keys_is_one_entry_that_counts_them(admin_client, minsu):
    for _ in range(3):
        services.create_key(user=minsu)
    form = {"action": "revoke_keys", "_selected_action": [minsu.pk]}
    admin_client.post("/admin/auth/user/", form)
    assert get_last_event(Action.KEY_REVOKED).details == {"count": 3}


def test_the_page_can_be_searched_and_filtered(admin_client, minsu):
    record_event(Action.SIGN_IN, actor=minsu, target="chat:find-me")
    record_event(Action.SIGN_OUT, actor=minsu, target="chat:other")
    found = admin_client.get(AUDIT, {"q": "find-me"}).content.decode()
    assert "chat:find-me" in found
    assert "chat:other" not in found
    found = admin_client.get(AUDIT, {"action": "sign_out"}).content.decode()
    assert "chat:other" in found
    assert "chat:find-me" not in found


def test_an_entry_can_neither_be_added_nor_changed_in_the_page(admin_client, minsu):
    entry = record_event(Action.SIGN_IN, actor=minsu)
    assert admin_client.get(f"{AUDIT}add/").status_code == 403
    for address in (f"{AUDIT}{entry.pk}/change/", f"{AUDIT}{entry.pk}/delete/"):
        assert admin_client.post(address, {"post": "yes"}).status_code == 403


def test_the_export_holds_what_was_chosen_and_is_an_entry_itself(admin_client, admin_user, minsu):
    record_event(Action.SIGN_IN, actor=minsu, details={"가": "나"})
    record_event(Action.SIGN_OUT, actor=minsu)
    response = admin_client.get(f"{AUDIT}export/", {"action": "sign_in"})
    lines = b"".join(response.streaming_content).decode().splitlines()
    assert [json.loads(line)["action"] for line in lines] == ["sign_in"]
    assert json.loads(lines[0])["details"] == {"가": "나"}
    entry = get_last_event(Action.DATA_EXPORTED)
    assert (entry.actor_id, entry.details) == (admin_user.pk, {"filters": {"action": "sign_in"}})


def test_nobody_but_administrators_reads_it(client, minsu):
    client.force_login(minsu)
    for address in (AUDIT, f"{AUDIT}export/"):
        assert client.get(address).status_code in {302, 403}
    assert Client().get(f"{AUDIT}export/").status_code == 302


def test_old_entries_are_moved_to_a_file_and_that_is_written_down(tmp_path, minsu):
    old = timezone.now() - timedelta(days=400)
    AuditEvent.objects.create(at=old, action=Action.SIGN_IN, actor_name="minsu")
    record_event(Action.SIGN_OUT, actor=minsu)
    place = tmp_path / "old.jsonl"
    day = f"{timezone.now() - timedelta(days=365):%Y-%m-%d}"
    call_command("trim_audit_log", "--before", day, "--out", str(place), stderr=io.StringIO())
    assert [json.loads(line)["actor"] for line in place.read_text().splitlines()] == ["minsu"]
    assert place.stat().st_mode & 0o777 == 0o600
    left = AuditEvent.objects.order_by("pk").values_list("action", flat=True)
    assert list(left) == [Action.SIGN_OUT, Action.LOG_TRIMMED]
    assert get_last_event(Action.LOG_TRIMMED).details["count"] == 1
    with pytest.raises(DatabaseError), transaction.atomic():
        AuditEvent.objects.all().delete()
