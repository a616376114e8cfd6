"""Roles: administrators that are no superusers, auditors who see no contents, one who stays."""

import json
import threading

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from chats.models import DailyMessages
from documents.audit import Action, AuditEvent, record_event
from nura.accounts import services
from nura.accounts.deletion import delete_account
from nura.accounts.roles import (
    AccountRole,
    LastAdministrator,
    get_role,
    is_administrator,
    is_auditor,
    set_role,
)
from nura.administration import record
from tests.nura.accounts.conftest import PASSWORD

pytestmark = pytest.mark.django_db

AUDITED = {
    "/admin/",
    "/admin/logout/",
    "/admin/jsi18n/",
    "/admin/search/",
    "/admin/toggle-sidebar/",
    "/admin/password_change/",
    "/admin/password_change/done/",
    "/admin/login/",
    "/admin/documents/auditevent/",
    "/admin/usage/",
    "/admin/documents/auditevent/export/",
}
"""What an auditor may open of the administration, besides single entries of the log."""


def make(name, role=AccountRole.USER):
    user = User.objects.create_user(name, f"{name}@example.com", PASSWORD)
    set_role(user=user, role=role)
    return user


def make_browser(user):
    browser = Client()
    browser.cookies["django_language"] = "en"
    browser.force_login(user)
    return browser


@pytest.fixture
def head():
    """An administrator who is no superuser."""
    return make("head", AccountRole.ADMINISTRATOR)


@pytest.fixture
def auditor():
    return make("auditor", AccountRole.AUDITOR)


def list_admin_addresses():
    """Every address of the administration that names no row."""

    def walk(patterns, before):
        for one in patterns:
            address = before + str(one.pattern).removesuffix("\\Z").lstrip("^")
            if isinstance(one, URLResolver):
                yield from walk(one.url_patterns, address)
            elif isinstance(one, URLPattern) and not one.pattern.converters:
                yield f"/{address}"

    found = next(one for one in get_resolver().url_patterns if str(one.pattern) == "admin/")
    return sorted({one for one in walk(found.url_patterns, "admin/") if "(?P" not in one})


def test_an_administrator_who_is_no_superuser_opens_every_list_and_form(head):
    browser = make_browser(head)
    assert not head.is_superuser
    for model, its in admin.site._registry.items():
        root = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        assert browser.get(root).status_code == 200, root
        status = browser.get(f"{root}add/").status_code
        assert status in {200, 403}, root
        request = type("R", (), {"user": head, "GET": {}, "method": "GET"})()
        assert status == (200 if its.has_add_permission(request) else 403)
    assert browser.get("/admin/usage/").status_code == 200


def test_the_first_start_needs_no_superuser():
    made = services.create_or_update_user(name="admin", password=PASSWORD, staff=True)
    assert is_administrator(made)
    assert not made.is_superuser


@pytest.mark.parametrize("address", list_admin_addresses())
def test_an_auditor_opens_the_log_and_the_usage_and_nothing_else(address, auditor):
    make("head", AccountRole.ADMINISTRATOR)
    browser = make_browser(auditor)
    if address in AUDITED:
        assert browser.get(address).status_code in {200, 302, 405}
        return
    for method in (browser.get, browser.post):
        assert method(address).status_code in {403, 404, 405}, address


@pytest.mark.parametrize("address", list_admin_addresses())
def test_a_stranger_opens_nothing_of_the_administration(address):
    response = make_browser(make("stranger")).get(address)
    assert response.status_code in {302, 403}
    if response.status_code == 302 and address != "/admin/logout/":
        assert response.headers["Location"].startswith("/admin/login/")


def test_rows_of_others_are_closed_to_an_auditor(auditor, head):
    browser = make_browser(auditor)
    for page in ("change", "delete", "history", "password"):
        assert browser.get(f"/admin/auth/user/{head.pk}/{page}/").status_code == 403
    actions = {"action": "revoke_keys", "_selected_action": [head.pk]}
    assert browser.post("/admin/auth/user/", actions).status_code == 403


def test_the_page_of_an_auditor_links_to_log_and_usage_alone(auditor):
    page = make_browser(auditor).get("/admin/").content.decode()
    assert "/admin/documents/auditevent/" in page
    assert "/admin/usage/" in page
    assert "/admin/chats/" not in page
    assert "/admin/documents/document/" not in page


def test_an_auditor_exports_the_log_and_that_is_written_down(auditor):
    record_event(Action.SIGN_IN, actor=auditor)
    export = make_browser(auditor).get("/admin/documents/auditevent/export/")
    lines = [json.loads(line) for line in b"".join(export).splitlines()]
    assert "sign_in" in {line["action"] for line in lines}
    assert AuditEvent.objects.filter(action=Action.DATA_EXPORTED, actor_id=auditor.pk).exists()


def test_usage_tells_numbers_of_each_account(auditor, head):
    today = AuditEvent(action="").at.date()
    DailyMessages.objects.create(owner=head, day=today, count=41)
    DailyMessages.objects.create(owner=head, day=today.replace(year=today.year - 1), count=400)
    make("somebody")
    page = make_browser(auditor).get("/admin/usage/").content.decode()
    assert ">41<" in page
    assert ">somebody<" in page
    found = make_browser(auditor).get("/admin/usage/?q=HEA").content.decode()
    assert ">head<" in found
    assert ">somebody<" not in found


def test_an_auditor_finds_the_way_to_the_administration(auditor):
    assert 'href="/admin/"' in make_browser(auditor).get("/").content.decode()
    assert 'href="/admin/"' not in make_browser(make("stranger")).get("/").content.decode()


def test_an_auditor_shows_the_second_step_where_it_is_demanded(auditor, settings):
    settings.STAFF_TWO_STEP = True
    answer = make_browser(auditor).get("/admin/documents/auditevent/", follow=True)
    assert answer.redirect_chain[-1][0] == "/settings/two-step"


def change(browser, user, **fields):
    form = {"username": user.username, "email": user.email, "is_active": "on", "role": "user"}
    form |= {"quota_rules-TOTAL_FORMS": 0, "quota_rules-INITIAL_FORMS": 0}
    return browser.post(f"/admin/auth/user/{user.pk}/change/", form | fields)


def test_an_administrator_gives_and_takes_roles_and_each_is_written_down(head):
    minsu = make("minsu")
    for role in (AccountRole.AUDITOR, AccountRole.ADMINISTRATOR, AccountRole.USER):
        assert change(make_browser(head), minsu, role=role).status_code == 302
        minsu.refresh_from_db()
        assert get_role(minsu) == role
        entry = AuditEvent.objects.filter(action=Action.RIGHTS_CHANGED).first()
        assert (entry.actor_id, entry.subject_id) == (head.pk, minsu.pk)
        assert entry.details["role"] == role


def test_a_role_that_is_taken_ends_at_once(head):
    minsu = make("minsu", AccountRole.AUDITOR)
    browser = make_browser(minsu)
    assert browser.get("/admin/documents/auditevent/").status_code == 200
    change(make_browser(head), minsu)
    assert browser.get("/admin/documents/auditevent/").status_code == 302


def test_the_last_administrator_stays_one(head):
    browser = make_browser(head)
    for fields in ({"role": "user"}, {"role": "administrator", "is_active": ""}):
        page = change(browser, head, **fields)
        assert "last administrator" in page.content.decode()
    page = browser.post(f"/admin/auth/user/{head.pk}/delete/", {"post": "yes"})
    assert "last administrator" in page.content.decode()
    several = {"action": "delete_selected", "_selected_action": [head.pk], "post": "yes"}
    browser.post("/admin/auth/user/", several)
    head.refresh_from_db()
    assert is_administrator(head)
    make("second", AccountRole.ADMINISTRATOR)
    assert change(browser, head).status_code == 302


def test_the_last_administrator_cannot_delete_the_own_account(head):
    with pytest.raises(LastAdministrator):
        delete_account(user=head)
    head.refresh_from_db()
    assert head.is_active
    browser = make_browser(head)
    browser.post("/accounts/reauthenticate/", {"password": PASSWORD})
    page = browser.post("/settings/delete", {"username": "head"}).content.decode()
    assert "last administrator" in page


@pytest.mark.django_db(transaction=True)
def test_two_administrators_cannot_end_each_other_at_the_same_time():
    both = [make(name, AccountRole.ADMINISTRATOR) for name in ("one", "two")]
    refused, start = [], threading.Barrier(2)

    def end(user):
        start.wait()
        try:
            with transaction.atomic():
                set_role(user=user, role=AccountRole.USER)
        except LastAdministrator:
            refused.append(user)
        finally:
            connection.close()

    threads = [threading.Thread(target=end, args=(user,)) for user in both]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(refused) == 1
    assert User.objects.filter(is_staff=True).count() == 1


def test_who_is_not_active_has_no_role_any_more(auditor, head):
    User.objects.update(is_active=False)
    for user in (auditor, head):
        user.refresh_from_db()
        assert not is_auditor(user)
        assert not is_administrator(user)


def test_who_is_no_auditor_any_more_is_none_from_that_moment(auditor):
    assert is_auditor(auditor)
    set_role(user=auditor, role=AccountRole.USER)
    assert not is_auditor(auditor)
    set_role(user=auditor, role=AccountRole.AUDITOR)
    assert is_auditor(auditor)


def test_a_page_asks_once_for_what_is_kept_of_an_account(
    client, django_assert_max_num_queries, monkeypatch
):
    monkeypatch.setattr(record, "BANNER_SECONDS", 1e9)  # read by the first page
    client.force_login(make("minsu"))
    client.get("/settings/profile")
    # session, account, what is kept of it; and of the page itself: whether there are servers
    with django_assert_max_num_queries(4):
        client.get("/settings/profile")
