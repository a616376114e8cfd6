"""What is left of quotas, where people see it; who is near, where administrators do."""

import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.test import Client

from chats.models import DailyMessages
from documents.models import Document, QuotaRule
from documents.quotas import get_today
from nura.accounts.quotas import list_near_limits

pytestmark = pytest.mark.django_db


@pytest.fixture
def browser(minsu):
    return sign_in(minsu)


@pytest.fixture
def admin(db):
    return sign_in(User.objects.create_superuser("admin", "admin@example.com"))


def sign_in(user):
    client = Client()
    client.force_login(user)
    client.cookies[settings.LANGUAGE_COOKIE_NAME] = "en"
    return client


def ask(user, questions=0, tokens=0):
    DailyMessages.objects.create(owner=user, day=get_today(), count=questions, tokens=tokens)


def keep(user, count, size=0):
    for number in range(count):
        name = f"{number}.txt"
        Document.objects.create(owner=user, name=name, file=name, size=size, sha256=name)


def read(client, path):
    response = client.get(path)
    assert response.status_code == 200
    return response.content.decode()


def test_the_composer_says_nothing_while_there_is_plenty(browser, minsu):
    QuotaRule.objects.create(user=minsu, measure="messages_today", hard=10)
    ask(minsu, questions=7)
    assert "quota-notice" not in read(browser, "/")


@pytest.mark.parametrize(
    ("rule", "asked", "words"),
    [
        ({"measure": "messages_today", "hard": 10}, {"questions": 8}, "Questions left today: 2"),
        ({"measure": "messages_today", "hard": 8}, {"questions": 8}, "after midnight"),
        (
            {"measure": "messages_today", "soft": 5},
            {"questions": 6},
            "This notice appears from 5 on",
        ),
        ({"measure": "tokens_this_month", "hard": 1000}, {"tokens": 900}, "this month: 100"),
        ({"measure": "tokens_this_month", "hard": 900}, {"tokens": 950}, "used up this month"),
        (
            {"measure": "tokens_this_month", "soft": 100},
            {"tokens": 950},
            "This notice appears from 100 on",
        ),
    ],
)
def test_the_composer_tells_what_is_left_once_it_is_little(browser, minsu, rule, asked, words):
    QuotaRule.objects.create(user=minsu, **rule)
    ask(minsu, **asked)
    assert words in read(browser, "/")
    assert words in read(browser, "/panels/quota/questions")


def test_the_page_of_documents_has_a_meter_of_what_is_limited(browser, minsu):
    assert 'class="quotas"' not in read(browser, "/documents")
    QuotaRule.objects.create(user=minsu, measure="documents", hard=5)
    keep(minsu, 4)
    page = read(browser, "/documents")
    assert 'value="4"' in page
    assert "1 left" in page
    assert "Storage" not in read(browser, "/panels/quota/documents")


def test_the_settings_tell_of_all_whether_or_not_it_is_limited(browser, minsu):
    QuotaRule.objects.create(user=minsu, measure="bytes", hard=2)
    keep(minsu, 1, size=1024 * 1024)
    page = read(browser, "/settings/usage")
    for words in ("Tokens this month", "No limit", "Resets at midnight.", "1.0\xa0MB left"):
        assert words in page


def test_administrators_see_who_is_near_the_fullest_first(admin, minsu, stranger):
    group = Group.objects.create(name="Sales")
    stranger.groups.add(group)
    QuotaRule.objects.create(user=minsu, measure="documents", hard=5)
    QuotaRule.objects.create(group=group, measure="messages_today", hard=10)
    keep(minsu, 5)
    ask(stranger, questions=9, tokens=5)
    assert [(user, near.measure) for user, near in list_near_limits()] == [
        (minsu.pk, "documents"),
        (stranger.pk, "messages_today"),
    ]
    page = read(admin, "/admin/quotas/")
    assert page.index("own rule") < page.index("group Sales")


def test_who_is_near_is_no_page_for_others(browser):
    assert browser.get("/admin/quotas/").status_code in {302, 403, 404}
