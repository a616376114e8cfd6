"""SCIM: a directory switches accounts off and on, and nothing else."""

import json

import pytest
from allauth.socialaccount.models import SocialAccount
from django.contrib.auth.models import User
from django.test import Client
from knox.models import AuthToken

from documents.audit import Action, AuditEvent
from nura.accounts.roles import AccountRole, set_role

pytestmark = pytest.mark.django_db
TOKEN = "a long and random token of the directory"
USERS = "/scim/v2/Users"


@pytest.fixture(autouse=True)
def token(settings):
    settings.SCIM_TOKEN = TOKEN


@pytest.fixture
def minsu():
    return User.objects.create_user("minsu", "minsu@example.com")


def call(method, path, body=None, token=TOKEN):
    headers = {"Authorization": f"Bearer {token}"}
    send = getattr(Client(headers=headers), method)
    if body is None:
        return send(path)
    return send(path, json.dumps(body), content_type="application/scim+json")


def patch(user, *operations):
    schema = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
    return call("patch", f"{USERS}/{user.pk}", {"schemas": [schema], "Operations": operations})


OFF = (
    {"op": "Replace", "path": "active", "value": "False"},  # Entra ID
    {"op": "replace", "path": "active", "value": False},
    {"op": "replace", "value": {"active": False}},  # Okta
)


@pytest.mark.parametrize("operation", OFF)
def test_a_directory_switches_an_account_off_and_its_keys_and_sessions_end(operation, minsu):
    browser = Client()
    browser.force_login(minsu)
    key = AuthToken.objects.create(minsu)[1]
    answer = patch(minsu, operation)
    assert (answer.status_code, answer.json()["active"]) == (200, False)
    headers = {"Authorization": f"Token {key}"}
    assert Client().get("/api/v1/me", headers=headers).status_code == 401
    assert browser.get("/settings/keys").status_code == 302
    assert AuditEvent.objects.filter(action=Action.ACCOUNT_DEACTIVATED).get().subject_id == minsu.pk


def test_an_account_is_switched_on_again(minsu):
    patch(minsu, OFF[0])
    assert patch(minsu, {"op": "replace", "path": "active", "value": True}).json()["active"]
    minsu.refresh_from_db()
    assert minsu.is_active


def test_deleting_switches_off_and_keeps_what_is_there(minsu):
    assert call("delete", f"{USERS}/{minsu.pk}").status_code == 204
    minsu.refresh_from_db()
    assert not minsu.is_active


@pytest.mark.parametrize(
    "wanted",
    [
        'userName eq "minsu"',
        'userName eq "Minsu@Example.com"',
        'externalId eq "1001"',
        'emails.value eq "minsu@example.com"',
    ],
)
def test_an_account_is_found_as_directories_ask(wanted, minsu):
    User.objects.create_user("other", "other@example.com")
    SocialAccount.objects.create(user=minsu, provider="entra", uid="1001")
    found = call("get", f"{USERS}?filter={wanted}").json()
    assert [one["id"] for one in found["Resources"]] == [str(minsu.pk)]
    assert call("get", f'{USERS}?filter=userName eq "nobody"').json()["totalResults"] == 0


def test_a_filter_that_is_not_known_finds_nobody(minsu):
    answer = call("get", f'{USERS}?filter=password sw "a"')
    assert (answer.status_code, answer.json()["scimType"]) == (400, "invalidFilter")


def test_the_last_administrator_stays():
    head = User.objects.create_user("head")
    set_role(user=head, role=AccountRole.ADMINISTRATOR)
    assert patch(head, OFF[0]).status_code == 409
    head.refresh_from_db()
    assert head.is_active


def test_rights_and_names_are_not_changed_by_it(minsu):
    patch(
        minsu,
        {"op": "replace", "path": "userName", "value": "root"},
        {"op": "add", "path": "roles", "value": "administrator"},
        {"op": "replace", "value": {"is_staff": True}},
    )
    minsu.refresh_from_db()
    assert (minsu.username, minsu.is_staff, minsu.is_active) == ("minsu", False, True)


BODIES = ("", "[]", "{}", '{"Operations": 3}', '{"Operations": [1]}', "[" * 90_000, "\0", "\xff")


@pytest.mark.parametrize("body", BODIES)
def test_a_body_that_cannot_be_read_is_refused(body, minsu):
    headers = {"Authorization": f"Bearer {TOKEN}"}
    sent = Client(headers=headers).patch(f"{USERS}/{minsu.pk}", body, "application/json")
    assert sent.status_code == 400
    assert "active is" not in sent.content.decode()


@pytest.mark.parametrize(
    "query",
    [
        'filter=userName eq "a%00b"',
        f'filter=id eq "{"9" * 250}"',
        f'filter=userName eq "{"x" * 100_000}"',
        f"startIndex={'9' * 9}&count=-1",
        "startIndex=-5&count=999999999",
        'filter=emails.value eq "%25_\\"',
    ],
)
def test_no_question_of_a_directory_is_an_error_of_ours(query, minsu):
    assert call("get", f"{USERS}?{query}").status_code in {200, 400}


def test_accounts_are_not_made_by_it():
    assert call("post", USERS, {"userName": "new"}).status_code == 501
    assert not User.objects.exists()


@pytest.mark.parametrize("shown", ["", "wrong", "a key of an account"])
def test_without_the_token_nothing_is_told_or_done(shown, minsu):
    shown = AuthToken.objects.create(minsu)[1] if shown.startswith("a key") else shown
    for method, path in (("get", USERS), ("get", f"{USERS}/{minsu.pk}"), ("delete", f"{USERS}/1")):
        assert call(method, path, token=shown).status_code == 401
    minsu.refresh_from_db()
    assert minsu.is_active


def test_without_a_setting_there_is_no_such_address(settings, minsu):
    settings.SCIM_TOKEN = ""
    assert call("get", USERS, token="").status_code == 404
