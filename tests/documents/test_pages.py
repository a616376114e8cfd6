import re
import uuid
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.contrib.postgres.search import SearchVector
from django.db.models import Value
from django.utils import timezone
from django.utils.translation import override

from documents import errors, spaces
from documents.libraries import create_library
from documents.models import Chunk, Document, DocumentPicture, DocumentVersion
from documents.views import draw_bars, list_facts, to_ranges_text
from rag import tokenize
from rag.types import IndexedChunk, Page, TextChunk
from tests.documents.conftest import store_rows

HTMX = {"HX-Request": "true"}


def make_document(owner, name="규정.pdf", **fields):
    values = {
        "name": name,
        "original_name": name,
        "file": f"documents/{uuid.uuid4()}/original",
        "content_type": "application/pdf",
        "size": 2048,
        "sha256": "0" * 64,
        "status": "COMPLETED",
    }
    return Document.objects.create(owner=owner, **(values | fields))


def make_chunk(document, index=0, text="제1조 목적", **fields):
    return Chunk.objects.create(
        document=document,
        owner_id=document.owner_id,
        index=index,
        text=text,
        start=0,
        end=len(text),
        lexemes=SearchVector(Value("")),
        **fields,
    )


def store_text(text):
    """The document that is being processed gets this text."""
    chunk = IndexedChunk(
        TextChunk(0, text, 0, len(text), None, None, ""), tokenize.count_terms(text), None
    )
    space, _ = spaces.get_space_for_writing()
    store_rows([Page(None, text)], [chunk], space)


def names_in(answer):
    """Names of the documents in the table, in its order."""
    return re.findall(r'data-name="([^"]*)"', answer.content.decode())


@pytest.fixture
def owner(db):
    return User.objects.create_user("owner", password="pw")


@pytest.fixture
def visitor(client, owner):
    client.force_login(owner)
    return client


@pytest.fixture
def stranger(client, db):
    client.force_login(User.objects.create_user("stranger", password="pw"))
    return client


@pytest.mark.django_db
def test_the_pages_of_documents_are_for_people_who_signed_in(client):
    assert client.get("/documents").url.startswith("/accounts/login/")
    assert client.get(f"/documents/{uuid.uuid4()}").url.startswith("/accounts/login/")


@pytest.mark.parametrize("page", ["documents", "sources", "assistants", "prompts", "shared"])
def test_a_slash_at_the_end_of_an_address_leads_to_the_page(visitor, page):
    arrived = visitor.get(f"/{page}/?q=a", follow=True)
    assert arrived.status_code == 200
    assert arrived.request["PATH_INFO"] == f"/{page}"
    assert arrived.request["QUERY_STRING"] == "q=a"


def test_the_table_shows_ones_own_documents(visitor, owner):
    make_document(owner, "취업규칙.pdf", page_count=12)
    text = visitor.get("/documents").content.decode()
    assert "취업규칙.pdf" in text
    assert "12" in text


def test_a_stranger_sees_neither_row_nor_page(owner, stranger):
    document = make_document(owner, "남몰래.pdf")
    assert "남몰래" not in stranger.get("/documents").content.decode()
    assert (
        "남몰래" not in stranger.get("/documents", {"q": "남몰래"}, headers=HTMX).content.decode()
    )
    answer = stranger.get(f"/documents/{document.pk}")
    assert answer.status_code == 404
    assert "남몰래" not in answer.content.decode()


def test_a_failed_document_says_why(visitor, owner):
    document = make_document(owner, status="FAILED", error_code="encrypted")
    with override("ko"):
        sentence = errors.explain_code("encrypted")
    for path in ("/documents", f"/documents/{document.pk}"):
        page = visitor.get(path).content.decode()
        assert sentence in page
        assert 'data-error="encrypted"' in page


def test_a_failed_document_says_when_it_was_last_tried(visitor, owner):
    tried_at = timezone.now()
    document = make_document(owner, status="FAILED", error_code="corrupt", started_at=tried_at)
    make_document(owner, "둘.pdf", started_at=tried_at)
    for path in ("/documents", f"/documents/{document.pk}"):
        page = visitor.get(path).content.decode()
        times = re.findall(r'<time datetime="([^"]*)">(?:Last tried|마지막 시도)', page)
        assert times == [timezone.localtime(tried_at).isoformat()]


def test_the_table_is_narrowed_by_status_and_name(visitor, owner):
    make_document(owner, "하나.pdf")
    make_document(owner, "둘.pdf", status="FAILED", error_code="corrupt")
    failed = visitor.get("/documents", {"status": "FAILED"}, headers=HTMX).content.decode()
    assert "둘.pdf" in failed
    assert "하나.pdf" not in failed
    named = visitor.get("/documents", {"q": "하나"}, headers=HTMX).content.decode()
    assert "하나.pdf" in named
    assert "둘.pdf" not in named


@pytest.mark.parametrize(
    "values",
    [
        {"q": "\x00"},
        {"q": "%"},
        {"status": "x"},
        {"page": "-1"},
        {"sort": "x"},
        {"issuer": "\x00"},
    ],
)
def test_odd_filters_are_answered(visitor, owner, values):
    make_document(owner)
    assert visitor.get("/documents", values).status_code == 200


def test_htmx_gets_the_table_alone(visitor, owner):
    make_document(owner)
    assert b"<html" not in visitor.get("/documents", headers=HTMX).content


def test_the_page_of_a_document_shows_what_was_read(visitor, owner):
    document = make_document(owner, metadata={"issuer": "해솔시", "front": {"deep": 1}})
    make_chunk(document, page=3)
    text = visitor.get(f"/documents/{document.pk}").content.decode()
    assert "해솔시" in text
    assert "PDF" in text
    assert "제1조 목적" in text
    assert "3쪽" in text


def test_what_a_document_lacks_is_said_in_the_table_and_on_its_page(visitor, owner):
    document = make_document(owner, warnings=["page_unreadable"])
    with override("ko"):
        sentence = errors.explain_warning("page_unreadable")
    for path in ("/documents", f"/documents/{document.pk}"):
        assert sentence in visitor.get(path).content.decode()


def test_metadata_reads_as_lines_of_text():
    metadata = {"a": " x ", "b": [1, {"c": 2}], "d": {"e": True, "f": None}, "g": "", "h": []}
    with override("en"):
        assert list(list_facts(metadata)) == [("a", "x"), ("b", "1, c: 2"), ("d · e", "Yes")]


def test_a_name_is_text(visitor, owner):
    document = make_document(owner, '"><img src=x onerror=alert(1)>.pdf')
    for path in ("/documents", f"/documents/{document.pk}"):
        assert b"<img src=x" not in visitor.get(path).content


def test_the_table_is_narrowed_by_who_issued_and_for_which_project(visitor, owner):
    make_document(owner, "하나.pdf", metadata={"issuer": "해솔시", "project_name": "돌봄"})
    make_document(owner, "둘.pdf", metadata={"issuer": "새벽군"})
    make_document(owner, "셋.pdf", metadata={"issuer": ["해솔시", "새벽군"]})
    offered = visitor.get("/documents").content.decode()
    assert '<option value="해솔시"' in offered
    assert '<option value="돌봄"' in offered
    assert "[&quot;" not in offered
    found = visitor.get("/documents", {"issuer": "새벽군"}, headers=HTMX)
    assert names_in(found) == ["둘.pdf"]


def test_names_of_others_are_not_offered(stranger, owner):
    make_document(owner, metadata={"issuer": "해솔시"})
    assert "해솔시" not in stranger.get("/documents").content.decode()


ORDERS = {
    "": ["다.pdf", "나.pdf", "가.pdf"],
    "oldest": ["가.pdf", "나.pdf", "다.pdf"],
    "name": ["가.pdf", "나.pdf", "다.pdf"],
    "largest": ["나.pdf", "다.pdf", "가.pdf"],
}


@pytest.mark.parametrize(("order", "names"), ORDERS.items())
def test_the_table_has_an_order(visitor, owner, order, names):
    for name, size in (("가.pdf", 1), ("나.pdf", 9), ("다.pdf", 5)):
        make_document(owner, name, size=size)
    assert names_in(visitor.get("/documents", {"sort": order}, headers=HTMX)) == names


def test_a_document_that_an_index_serves_can_be_asked_while_it_is_read_again(visitor, owner):
    make_document(owner, status="PROCESSING", stage="parsing", indexed_at=timezone.now())
    assert 'data-indexed="true"' in visitor.get("/documents").content.decode()


def test_the_page_says_who_said_what_of_the_document(visitor, owner):
    document = make_document(
        owner, metadata={"issuer": "해솔시", "author": "김"}, stated={"author": "김"}
    )
    text = visitor.get(f"/documents/{document.pk}").content.decode()
    shown = text[text.index('id="metadata-shown"') : text.index('id="metadata-form"')]
    marks = re.findall(r'class="metadata-by">\s*(\S[^<]*?)\s*<', shown)
    assert len(marks) == len(set(marks)) == 2


def test_the_page_lists_the_versions_with_their_state(visitor, owner):
    document = make_document(owner, "규정.pdf", version=2)
    facts_of_file = {
        "original_name": "",
        "content_type": "application/pdf",
        "size": 5,
        "sha256": "",
        "created_at": timezone.now(),
    }
    for number, state, code in ((1, "old", ""), (3, "refused", "encrypted"), (4, "pending", "")):
        DocumentVersion.objects.create(
            document=document,
            number=number,
            state=state,
            name=f"{number}.pdf",
            error_code=code,
            **facts_of_file,
        )
    text = visitor.get(f"/documents/{document.pk}").content.decode()
    listed = re.findall(r'data-version="(\d)"\s+data-state="(\w+)"', text)
    assert listed == [("4", "pending"), ("3", "refused"), ("2", "current"), ("1", "old")]
    assert f"/api/v1/documents/{document.pk}/file?version=1" in text
    assert "?version=3" not in text
    with override("ko"):
        assert errors.explain_code("encrypted") in text


def test_the_page_shows_what_was_indexed(visitor, owner):
    document = make_document(owner, seconds={"parsing": 1.25})
    make_chunk(document, 0, "가" * 120)
    make_chunk(document, 1, "표의 값", kind="table", header="| 이름 | 값 |")
    document.pages.create(number=1, start=0, text="가")
    for number in (2, 3, 5):
        document.pages.create(number=number, start=0, text="")
    picture = {"digest": "", "width": 9, "height": 9}
    DocumentPicture.objects.create(document=document, index=0, description="막대그래프", **picture)
    DocumentPicture.objects.create(document=document, index=1, rejected="too_small", **picture)
    text = visitor.get(f"/documents/{document.pk}").content.decode()
    assert "2–3, 5" in text
    assert "<rect" in text
    assert "| 이름 | 값 |" in text
    assert "막대그래프" in text
    assert f"/api/v1/documents/{document.pk}/pictures/0.png" in text
    assert "pictures/1.png" not in text


def test_the_highest_bar_fills_the_drawing_and_the_lowest_can_be_seen():
    histogram = [{"from": 0, "to": 10, "count": 1000}, {"from": 10, "to": 20, "count": 1}]
    high, low = draw_bars([*histogram, {"from": 20, "to": 30, "count": 0}])[:2]
    assert high["y"] == 0
    assert 0 < low["height"] < high["height"]


def test_pages_are_named_in_runs():
    assert to_ranges_text([]) == ""
    assert to_ranges_text([3, 7, 8, 9, 12]) == "3, 7–9, 12"


def test_a_document_is_found_by_its_text_and_says_where(visitor, owner):
    document = make_document(owner, "여비.md", status="PROCESSING")
    store_text("숙박비는 하루 칠만 원을 넘지 못한다.")
    make_document(owner, "다른.md")
    text = visitor.get("/documents", {"q": "숙박비"}).content.decode()
    assert f"/documents/{document.pk}?chunk=0&amp;q=" in text
    assert "<mark>숙박비</mark>" in text
    assert "다른.md" not in text


def test_a_text_of_somebody_else_finds_nothing(stranger, owner):
    document = make_document(owner, "남몰래.md", status="PROCESSING")
    store_text("숙박비는 하루 칠만 원을 넘지 못한다.")
    assert "숙박비는" not in stranger.get("/documents", {"q": "숙박비"}).content.decode()
    assert str(document.pk) not in stranger.get("/documents", {"q": "숙박비"}).content.decode()


def test_documents_are_narrowed_by_type_and_age(visitor, owner):
    make_document(owner, "안내.md", content_type="text/markdown")
    make_document(owner, "공고.pdf")
    Document.objects.filter(name="공고.pdf").update(created_at=timezone.now() - timedelta(days=20))
    by_type = visitor.get("/documents", {"type": "application/pdf"}).content.decode()
    assert "공고.pdf" in by_type
    assert "안내.md" not in by_type
    by_age = visitor.get("/documents", {"since": "7"}).content.decode()
    assert "안내.md" in by_age
    assert "공고.pdf" not in by_age


def test_only_filters_that_tell_documents_apart_are_offered(visitor, owner):
    make_document(owner, "안내.md", content_type="text/markdown")
    text = visitor.get("/documents").content.decode()
    assert 'name="type"' not in text
    assert 'name="since"' not in text
    make_document(owner, "공고.pdf")
    assert 'name="type"' in visitor.get("/documents").content.decode()


def test_the_chats_of_a_document_are_nobody_elses(stranger, owner):
    document = make_document(owner)
    assert stranger.get(f"/panels/documents/{document.pk}/chats").status_code == 404
    assert stranger.get(f"/panels/documents/{uuid.uuid4()}/chats").status_code == 404


def test_the_redrawn_table_brings_the_counts_of_the_libraries(visitor, owner):
    library = create_library(creator=owner, name="규정집")
    page = f"/documents?library={library.pk}"
    assert "규정집 (0)" in visitor.get(page).content.decode()
    make_document(owner, library=library)
    redrawn = visitor.get(page, headers=HTMX).content.decode()
    [options] = re.findall(
        r'<select id="library" hx-swap-oob="innerHTML">(.*?)</select>', redrawn, re.DOTALL
    )
    assert "selected>규정집 (1)" in options


def test_a_list_of_several_pages_says_how_many_documents_it_has(visitor, owner):
    for number in range(21):
        make_document(owner, f"{number}.pdf")
    assert "<span>2 / 2 · 문서 21개</span>" in visitor.get("/documents?page=2").content.decode()
