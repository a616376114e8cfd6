"""The administration's own pages: who may open them, the navigation, their figures."""

import json
import re
from datetime import timedelta
from html import unescape

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import strip_tags

from chats.models import Chat, Feedback, Message, Run
from documents import libraries
from documents.administration import list_pages
from documents.audit import Action, AuditEvent, record_event
from documents.connected.models import ConnectedModel, Connection
from documents.models import Document, LibraryRole
from documents.queue import claim_next_document
from nura import __version__, health
from nura.accounts.roles import AccountRole, set_role
from nura.administration.record import record_backup
from nura.models import (
    BackupEvent,
    BackupRecord,
    Banner,
    InstalledVersion,
    record_version,
)
from rag.evaluation.question_set import parse_set

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
PLAIN = [page.name for page in list_pages() if "<" not in page.address]
ENGLISH = {"version", "evaluation-export"}
"""The list of changes, and a file."""


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


def test_every_list_of_the_administration_is_ours_and_in_its_menu():
    for model, model_admin in admin.site._registry.items():
        assert getattr(model_admin, "navigation", None), model


def test_an_empty_list_tells_whether_there_is_nothing_or_nothing_like_it(admin_client):
    search = "다른 말로 검색"
    page = to_text(admin_client.get("/admin/nura/invitation/"))
    assert "아직 없습니다." in page
    assert "초대 추가" in page
    assert search not in page
    page = to_text(admin_client.get("/admin/nura/invitation/", {"q": "x"}))
    assert search in page
    assert "아직 없습니다." not in page


def test_the_page_of_a_user_tells_whether_there_is_a_password_and_no_hash(admin_client, minsu):
    address = f"/admin/auth/user/{minsu.pk}/change/"
    page = to_text(admin_client.get(address))
    assert "설정됨" in page
    assert "솔트" not in page
    minsu.set_unusable_password()
    minsu.save()
    assert "설정됨" not in to_text(admin_client.get(address))


@pytest.mark.parametrize("name", PLAIN)
def test_others_open_none(name, minsu):
    client = Client()
    assert client.get(reverse(f"admin:{name}")).status_code == 302
    client.force_login(minsu)
    assert client.get(reverse(f"admin:{name}")).status_code in {302, 403}


@pytest.mark.parametrize("name", [one for one in PLAIN if one not in ENGLISH])
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
    assert "95th percentile: 40.8 s" in page.content.decode()


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
    key, soon = health.make_heartbeat_key("documents"), health.read_clock() + 15
    health.get_client().zadd(key, {"here:7 0.0.9": soon, f"there:8 {__version__}": soon})
    page = to_text(in_english.get("/admin/"))
    health.get_client().delete(key)
    assert re.search(r"documents\s+another version\s+0\.0\.9 · here:7", page)
    assert re.search(r"documents\s+running\s+\S+ · there:8", page)
    assert re.search(r"PostgreSQL\s+running\s+18", page)


def test_failures_are_told_with_their_reason_and_tried_again(in_english, ask, minsu):
    document = Document.objects.create(
        owner=minsu, name="망가진 파일.pdf", file="a.pdf", size=3, sha256="0", status="FAILED",
        error_code="corrupt",
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


def test_a_locked_file_is_not_offered_to_be_tried_again(in_english, minsu):
    for name, code in (("locked.pdf", "encrypted"), ("broken.pdf", "corrupt")):
        Document.objects.create(
            owner=minsu, name=name, file="a.pdf", size=3, sha256=code, status="FAILED",
            error_code=code,
        )  # fmt: skip
    page = to_text(in_english.get("/admin/failures/"))
    assert "Try again: broken.pdf" in page
    assert "locked.pdf" in page
    assert "Try again: locked.pdf" not in page


def test_an_unhelpful_answer_becomes_a_case_of_the_evaluation(in_english, ask, minsu):
    answer = ask(label="documents")
    verdict = Feedback.objects.create(message=answer, user=minsu, value=-1, reason="비밀 사유")
    rows = to_text(in_english.get("/admin/chats/feedback/"))
    assert "minsu" in rows
    address = f"/admin/chats/feedback/{verdict.pk}/contents/"
    assert "비밀" not in to_text(in_english.get(address)) + rows
    opened = in_english.post(address, {"reason": "품질 확인 #7"}).content.decode()
    assert "비밀 사유" in opened
    assert "비밀!" in opened
    assert AuditEvent.objects.get(action=Action.DATA_VIEWED).subject_name == "minsu"
    facts = {"facts": "3억 원 || 300,000,000원\n\n부산 지점", "answerable": "on"}
    in_english.post(f"/admin/feedback/{verdict.pk}/case/", facts)
    lines = in_english.get("/admin/evaluation/cases.jsonl/").getvalue().decode().splitlines()
    expected = {"gold": [["3억 원", "300,000,000원"], ["부산 지점"]], "answerable": True}
    assert [json.loads(line) for line in lines] == [
        {"id": str(answer.pk), "turns": [{"user": "비밀?", **expected}]}
    ]
    assert [one.id for one in parse_set("\n".join(lines))] == [str(answer.pk)]


def test_the_columns_of_feedback_have_korean_names(admin_client, ask, minsu):
    Feedback.objects.create(message=ask(label="documents"), user=minsu, value=-1)
    page = admin_client.get("/admin/chats/feedback/", headers={"accept-language": "ko"})
    heads = strip_tags(page.content.decode().split("<thead")[1].split("</thead>")[0])
    assert all(one in heads for one in ("수정 시각", "평가", "사용자"))
    assert not re.search("Updated|Value|User", heads)


@pytest.fixture
def ask_in_vain(minsu):
    """Asks something of which the documents know nothing, as one of three people."""

    def make(text, *, person=0, label="insufficient"):
        owner, new = User.objects.get_or_create(username=f"person{person}")
        if new:
            Document.objects.create(
                owner=owner, name="a", file="a", size=1, sha256="0", status="COMPLETED",
                indexed_at=timezone.now(),
            )  # fmt: skip
        chat, _created = Chat.objects.get_or_create(owner=owner)
        at = timezone.now()
        question = Message.objects.create(chat=chat, role="user", content=text, created_at=at)
        Message.objects.create(
            chat=chat, role="assistant", parent=question, label=label, created_at=at
        )

    return make


def test_unanswered_questions_are_grouped_by_what_they_are_about(in_english, ask_in_vain):
    ask_in_vain("육아휴직 급여는 얼마인가요?", person=1)
    ask_in_vain("육아휴직 급여가 얼마나 되나요?", person=2, label="general")
    ask_in_vain("주차장 이용 요금을 알려줘", person=1)
    ask_in_vain("육아휴직 급여", person=2, label="documents")
    page = in_english.get("/admin/unanswered/")
    groups = page.context["groups"]
    assert [(len(one.questions), one.people) for one in groups] == [(2, 2), (1, 1)]
    text = to_text(page)
    assert "육아" in text
    assert "주차" not in text, "one person's words are shown for a reason only"
    assert "person1" not in text


def test_opening_unanswered_questions_is_written_down_for_each_who_asked(in_english, ask_in_vain):
    for person in (1, 2):
        ask_in_vain("육아휴직 급여는 얼마인가요?", person=person)
    key = in_english.get("/admin/unanswered/").context["groups"][0].key
    address = f"/admin/unanswered/{key}/"
    assert "person1" not in to_text(in_english.get(address))
    assert not AuditEvent.objects.filter(action=Action.DATA_VIEWED).exists()
    assert "person1" in to_text(in_english.post(address, {"reason": "문서 보완 검토"}))
    seen = AuditEvent.objects.filter(action=Action.DATA_VIEWED)
    assert set(seen.values_list("subject_name", flat=True)) == {"person1", "person2"}


def test_questions_of_people_without_documents_are_not_unanswered(in_english, ask):
    ask(label="general")
    assert in_english.get("/admin/unanswered/").context["count"] == 0


@pytest.mark.parametrize("by_group", [False, True])
def test_questions_over_libraries_count_for_people_without_documents_of_their_own(
    in_english, ask, minsu, by_group
):
    ask(label="insufficient")
    manager, group = User.objects.create_user("manager"), Group.objects.create(name="모두")
    library = libraries.create_library(creator=manager, name="규정")
    minsu.groups.add(group)
    principal = group if by_group else minsu
    role = LibraryRole.READER
    libraries.add_member(library=library, principal=principal, role=role, actor=manager)
    assert in_english.get("/admin/unanswered/").context["count"] == 0
    Document.objects.create(
        owner=manager, library=library, name="a", file="a", size=1, sha256="0", status="COMPLETED",
        indexed_at=timezone.now(),
    )  # fmt: skip
    assert in_english.get("/admin/unanswered/").context["count"] == 1


@pytest.fixture
def wait_in_queue():
    """Documents of an owner that wait, oldest first."""

    def make(owner, *names):
        return [
            Document.objects.create(owner=owner, name=name, file=name, size=1, sha256=name)
            for name in names
        ]

    return make


def take_next():
    lease = claim_next_document()
    return Document.objects.get(pk=lease.job_id).name if lease else None


def test_what_an_administrator_puts_first_goes_before_all_others(in_english, minsu, wait_in_queue):
    hana = User.objects.create_user("hana")
    wait_in_queue(minsu, "a", "b")
    last, urgent = wait_in_queue(hana, "c", "d")
    in_english.post("/admin/queue/", {"do": f"first:document:{urgent.pk}"})
    in_english.post("/admin/queue/", {"do": f"last:document:{last.pk}"})
    assert [take_next() for _ in range(5)] == ["d", "a", "b", "c", None]
    changed = AuditEvent.objects.filter(action=Action.QUEUE_CHANGED)
    assert changed.values_list("subject_name", flat=True)[0] == "hana"


def test_a_held_queue_begins_nothing(in_english, minsu, wait_in_queue):
    wait_in_queue(minsu, "a")
    in_english.post("/admin/queue/", {"do": "hold"})
    assert take_next() is None
    assert "has held the queue" in to_text(in_english.get("/admin/queue/"))
    in_english.post("/admin/queue/", {"do": "release"})
    assert take_next() == "a"


def test_all_documents_of_an_owner_are_paused_and_resumed(in_english, minsu, wait_in_queue):
    wait_in_queue(minsu, "a", "b")
    in_english.post("/admin/queue/", {"do": f"pause:owner:{minsu.pk}"})
    assert take_next() is None
    assert Document.objects.paused().count() == 2
    in_english.post("/admin/queue/", {"do": f"resume:owner:{minsu.pk}"})
    assert take_next() == "a"


@pytest.mark.parametrize("wish", ["first:document:nothing", "eat:owner:1", "first:owner:99999"])
def test_an_unknown_wish_changes_nothing(in_english, wish):
    assert in_english.post("/admin/queue/", {"do": wish}).status_code == 404


def test_a_banner_is_shown_on_every_page_in_its_time_and_language(client, minsu):
    now = timezone.now()
    Banner.objects.create(text_ko="오늘 점검", text_en="Maintenance today", level="warning")
    Banner.objects.create(
        text_ko="지난 공지", starts_at=now - timedelta(2), ends_at=now - timedelta(1)
    )
    assert "오늘 점검" in client.get("/accounts/login/").content.decode()
    client.force_login(minsu)
    client.cookies["django_language"] = "en"
    for address in ("/", "/documents", "/settings/keys"):
        page = client.get(address).content.decode()
        assert "Maintenance today" in page, address
        assert "지난 공지" not in page


def test_the_administration_shows_how_urgent_a_banner_is(admin_client):
    for level in ("info", "warning", "error"):
        Banner.objects.create(text_ko=f"공지 {level}", level=level)
    page = admin_client.get("/admin/storage/").content.decode()
    for level in ("info", "warning", "error"):
        assert f'nu-notice-{level}">공지 {level}' in page


def test_a_banner_is_put_away_in_one_browser(client, minsu):
    banner = Banner.objects.create(text_ko="오늘 점검")
    fixed = Banner.objects.create(text_ko="늘 보이는 공지", dismissible=False)
    client.force_login(minsu)
    assert client.post(f"/banners/{banner.pk}/away").status_code == 302
    assert client.post(f"/banners/{fixed.pk}/away").status_code == 404
    page = client.get("/documents").content.decode()
    assert "오늘 점검" not in page
    assert "늘 보이는 공지" in page
    assert "오늘 점검" in Client().get("/accounts/login/").content.decode()


def test_an_old_backup_and_a_damaged_one_are_told(in_english):
    assert "No backup has been taken yet" in to_text(in_english.get("/admin/backup/"))
    record_backup(BackupEvent.TAKEN, place="/backups", name="20260101T000000Z")
    record_backup(BackupEvent.VERIFIED, place="/backups", problem="damaged: a.pdf")
    page = to_text(in_english.get("/admin/backup/"))
    assert "20260101T000000Z" in page
    assert "damaged: a.pdf" in page
    assert "more than" not in page
    BackupRecord.objects.update(at=timezone.now() - timedelta(days=8))
    assert "more than 7 days old" in to_text(in_english.get("/admin/backup/"))


def test_retention_shows_the_settings_and_what_was_purged(in_english, settings):
    settings.RETENTION_DELETED_DAYS = 17
    record_event(Action.DATA_PURGED, details={"chats": 4, "rows": 0})
    page = to_text(in_english.get("/admin/retention/"))
    assert re.search(r"versions of documents\s+17 days", page)
    assert re.search(r"chats 4", page)


def test_what_was_purged_has_korean_names(admin_client):
    record_event(Action.DATA_PURGED, details={"chats": 4, "temporary": 2})
    page = to_text(admin_client.get("/admin/retention/"))
    assert "대화 4" in page
    assert "임시 파일 2" in page


def test_an_upgrade_is_told_with_what_has_changed(in_english):
    InstalledVersion.objects.all().delete()
    record_version()
    assert "was upgraded" not in to_text(in_english.get("/admin/"))
    InstalledVersion.objects.update(version="0.0.9", since=timezone.now() - timedelta(days=90))
    record_version()
    assert "was upgraded" in to_text(in_english.get("/admin/"))
    notes = in_english.get("/admin/version/")
    assert "<h3>" in notes.content.decode()


def test_an_auditor_sees_usage_without_rows_and_no_page_else(minsu, ask):
    ask(label="documents")
    set_role(user=minsu, role=AccountRole.AUDITOR)
    client = Client()
    client.force_login(minsu)
    client.cookies["django_language"] = "en"
    page = client.get("/admin/")
    assert read_tiles(page)["Questions"] == ("1", "")
    assert "/admin/chats/" not in page.content.decode()
    open_to_auditors = {"overview", "usage"}
    for name in set(PLAIN) - open_to_auditors:
        assert client.get(reverse(f"admin:{name}")).status_code == 403, name
