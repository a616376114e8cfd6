"""Quotas in the administration: who sets them, and what is written down of it."""

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from documents.audit import AuditEvent
from documents.models import QuotaRule

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(db):
    return User.objects.create_superuser("admin", "admin@example.com")


@pytest.fixture
def browser(admin):
    client = Client()
    client.force_login(admin)
    return client


@pytest.fixture
def minsu(db):
    return User.objects.create_user("minsu")


def save(browser, user, *rules, initial=0):
    """Send the form of a user with these rows of quotas."""
    form = {
        "username": user.username,
        "is_active": "on",
        "quota_rules-TOTAL_FORMS": len(rules),
        "quota_rules-INITIAL_FORMS": initial,
    }
    for number, rule in enumerate(rules):
        form |= {f"quota_rules-{number}-{name}": value for name, value in rule.items()}
    return browser.post(reverse("admin:auth_user_change", args=[user.pk]), form)


def test_an_administrator_sets_a_quota_on_the_page_of_a_user(browser, admin, minsu):
    assert save(browser, minsu, {"measure": "documents", "hard": 5}).status_code == 302
    rule = QuotaRule.objects.get()
    assert (rule.user, rule.measure, rule.hard, rule.soft) == (minsu, "documents", 5, None)
    event = AuditEvent.objects.get(action="quota_changed")
    assert (event.actor_id, event.subject_id, event.target) == (
        admin.pk,
        minsu.pk,
        f"user:{minsu.pk}",
    )
    assert event.details == {"measure": "documents", "soft": None, "hard": 5}


def test_a_quota_that_is_changed_or_removed_is_written_down(browser, minsu):
    rule = QuotaRule.objects.create(user=minsu, measure="pages", hard=5)
    row = {"id": rule.pk, "user": minsu.pk, "measure": "pages", "soft": 3, "hard": 7}
    save(browser, minsu, row, initial=1)
    save(browser, minsu, row | {"DELETE": "on"}, initial=1)
    told = [
        event.details for event in AuditEvent.objects.filter(action="quota_changed").order_by("pk")
    ]
    assert told == [
        {"measure": "pages", "soft": 3, "hard": 7},
        {"measure": "pages", "removed": True},
    ]
    assert not QuotaRule.objects.exists()


def test_a_quota_that_tells_after_it_refuses_is_refused(browser, minsu):
    response = save(browser, minsu, {"measure": "documents", "soft": 6, "hard": 5})
    assert response.status_code == 200
    assert not QuotaRule.objects.exists()


def test_two_quotas_of_one_kind_are_refused(browser, minsu):
    rows = {"measure": "documents", "hard": 5}, {"measure": "documents", "hard": 6}
    assert save(browser, minsu, *rows).status_code == 200
    assert not QuotaRule.objects.exists()
