"""The administration's own pages: who may open them, the navigation, their figures."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils.html import strip_tags

from documents.administration import list_pages

pytestmark = pytest.mark.django_db

PLAIN = [page.name for page in list_pages() if "<" not in page.address]


@pytest.fixture
def minsu():
    return User.objects.create_user("minsu", password="p")


def to_text(page):
    body = re.sub(r"<(script|style)\b.*?</\1>", "", page.content.decode(), flags=re.DOTALL)
    return strip_tags(body)


@pytest.mark.parametrize("name", PLAIN)
def test_an_administrator_opens_every_page(name, admin_client):
    page = admin_client.get(reverse(f"admin:{name}"))
    assert page.status_code == 200


@pytest.mark.parametrize("name", PLAIN)
def test_others_open_none(name, minsu):
    client = Client()
    assert client.get(reverse(f"admin:{name}")).status_code == 302
    client.force_login(minsu)
    assert client.get(reverse(f"admin:{name}")).status_code in {302, 403}


@pytest.mark.parametrize("name", PLAIN)
def test_every_page_is_korean(name, admin_client):
    text = to_text(admin_client.get(reverse(f"admin:{name}")))
    assert set(re.findall(r"\b[A-Z][a-z]+ [a-z]+\b", text)) <= {"English en"}


def test_the_navigation_is_grouped_as_an_administrator_thinks(admin_client):
    admin_client.cookies["django_language"] = "en"
    page = admin_client.get("/admin/storage/").content.decode()
    found = re.findall(r"<h2[^>]*select-none[^>]*>\s*([A-Z]\w+)", page)
    assert found == ["People", "Knowledge", "Models", "Operations", "Quality", "Record"]


def test_figures_of_storage_lead_to_their_rows(admin_client):
    page = admin_client.get("/admin/storage/").content.decode()
    assert 'href="/admin/documents/deletion/?state=overdue"' in page
    assert admin_client.get("/admin/documents/deletion/", {"state": "overdue"}).status_code == 200
