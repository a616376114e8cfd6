"""The administration's own pages: who may open them, the navigation, their figures."""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import strip_tags

from chats.models import Chat, Message, Run
from documents.administration import list_pages
from documents.audit import Action, AuditEvent
from documents.connected.models import ConnectedModel, Connection
from documents.models import Document
from nura import health

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


@pytest.fixture
def ask(minsu):
    """Makes a question of Minsu's with an answer that ended so."""

    def make(hours=1.0, *, status="COMPLETED", label="", first_word_ms=None, **values):
        chat, _created = Chat.objects.get_or_create(owner=minsu, title="비밀 대화")
        at = timezone.now() - timedelta(hours=hours)
        question = Message.objects.create(chat=chat, role="user", content="비밀?", created_at=at)
        answer = Message.objects.create(
            chat=chat,
            role="assistant",
            parent=question,
            content="비밀!",
            status=status,
            label=label,
            created_at=at,
            **values,
        )
        run = Run.objects.create(
            owner=minsu, message=answer, ended_at=at, first_word_ms=first_word_ms
        )
        Run.objects.filter(pk=run.pk).update(created_at=at)
        return answer

    return make


def read_tiles(page):
    """`{label: (value, address)}` of the figures of a page."""
    value = r'<dd class="nu-value[^"]*">\s*(?:<a href="(.*?)">)?\s*(.*?)\s*(?:</a>)?\s*</dd>'
    found = re.findall(rf"<dt>(.*?)</dt>\s*{value}", page.content.decode(), re.DOTALL)
    return {label: (value, unescape(address)) for label, address, value in found}


@pytest.fixture
def in_english(admin_client):
    admin_client.cookies["django_language"] = "en"
    return admin_client


def test_the_overview_counts_what_came_of_questions(in_english, ask):
    for label in ("documents", "documents", "passages", "partial", "insufficient", "general"):
        ask(label=label)
    ask(status="FAILED", error_code="llm_timeout")
    ask(status="INTERRUPTED")
    ask(hours=24 * 20, label="documents")  # before the period
    tiles = read_tiles(in_english.get("/admin/", {"days": "7"}))
    assert tiles["Questions"][0] == "8"
    assert tiles["From documents"][0] == "3"
    assert tiles["Partly from documents"][0] == "1"
    assert tiles["Not in the documents"][0] == "1"
    assert tiles["Without documents"][0] == "1"
    assert tiles["Failed"][0] == "2"
    assert read_tiles(in_english.get("/admin/", {"days": "30"}))["Questions"][0] == "9"


def test_every_number_of_the_overview_leads_to_so_many_rows(in_english, ask):
    for label in ("documents", "passages", "partial", "insufficient", "general"):
        ask(label=label)
    ask(status="FAILED", error_code="llm_timeout")
    tiles = read_tiles(in_english.get("/admin/"))
    counted = {"Questions", "From documents", "Partly from documents", "Not in the documents"}
    for label in (*counted, "Without documents", "Failed", "Documents being read"):
        value, address = tiles[label]
        rows = in_english.get(address).context["cl"].result_count
        assert rows == int(value), label


def test_the_overview_tells_how_long_readers_wait(in_english, ask):
    for waited in (1000, 2000, 3000, 4000, 50_000):
        ask(label="documents", first_word_ms=waited)
    ask(status="FAILED")
    page = in_english.get("/admin/")
    assert read_tiles(page)["First word"][0] == "3.0 s"
    assert "95 in 100 within 40.8 s" in page.content.decode()


def test_tokens_and_cost_are_told_by_model_group_and_person(in_english, ask, minsu):
    minsu.groups.add(Group.objects.create(name="연구소"))
    server = Connection.objects.create(name="gpu", base_url="http://gpu.example/v1")
    ConnectedModel.objects.create(
        slug="dear", connection=server, model="dear-1", input_price=2, output_price=10
    )
    used = {"prompt_tokens": 3000, "completion_tokens": 500, "model": "dear-1"}
    ask(label="documents", model="dear", usage=used)
    ask(label="documents", model="dear", usage=used)
    page = in_english.get("/admin/")
    assert read_tiles(page)["Tokens"][0] == "7,000"
    assert read_tiles(page)["Cost"][0] == "0.02"
    tables = page.context["token_tables"]
    assert [table["rows"][0]["name"] for table in tables] == ["dear-1", "연구소", "minsu"]
    assert {table["rows"][0]["read"] for table in tables} == {"6,000"}
    for table in tables:
        assert in_english.get(table["rows"][0]["link"]).context["cl"].result_count > 0


def test_the_overview_says_which_process_is_away(in_english, settings):
    page = to_text(in_english.get("/admin/"))
    assert re.search(r"documents\s+not running", page)
    health.client().set(health.heartbeat_key("documents"), "documents@here 0.0.9", ex=15)
    page = to_text(in_english.get("/admin/"))
    health.client().delete(health.heartbeat_key("documents"))
    assert re.search(r"documents\s+another version\s+0\.0\.9 · here", page)
    assert re.search(r"PostgreSQL\s+running\s+18", page)


def test_failures_are_told_with_their_reason_and_tried_again(in_english, ask, minsu):
    document = Document.objects.create(
        owner=minsu, name="망가진 파일.pdf", file="a.pdf", size=3, sha256="0", status="FAILED",
        error_code="encrypted",
    )  # fmt: skip
    answer = ask(status="FAILED", error_code="llm_unauthorized")
    page = to_text(in_english.get("/admin/failures/"))
    assert "망가진 파일.pdf" in page
    assert "NURA_LLM_API_KEY" in page
    assert "비밀" not in page
    in_english.post("/admin/failures/", {"again": f"document:{document.pk}"})
    document.refresh_from_db()
    assert document.status == "PROCESSING"
    in_english.post("/admin/failures/", {"again": f"answer:{answer.pk}"})
    assert Run.objects.filter(owner=minsu, ended_at=None).count() == 1
    targets = AuditEvent.objects.filter(action=Action.WORK_REPEATED).values_list(
        "target", flat=True
    )
    assert set(targets) == {f"document:{document.pk}", f"message:{answer.pk}"}
