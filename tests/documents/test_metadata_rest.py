"""Metadata: what people say stands over what was read, and lists are narrowed by it."""

import unicodedata

import pytest

from documents import ingest, services
from documents.metadata import merge_metadata
from documents.models import Document
from tests.documents.conftest import make_row, upload

pytestmark = pytest.mark.django_db
URL = "/api/v1/documents"
READ = "---\ntitle: 읽은 제목\nauthor: 김철수\nissuer: 조달청\n---\n\n# 글\n\n본문이다.\n"


@pytest.fixture
def document(owner, sent, tiny_engine):
    """A document in which three facts were read, one of which its owner had stated otherwise."""
    document = upload(owner, content=READ, metadata={"issuer": "법무부"})
    ingest.ingest_next_document()
    document.refresh_from_db()
    assert document.status == "COMPLETED", document.error_code
    return document


def patch(api, document, metadata):
    body = {"metadata": metadata}
    return api.patch(f"{URL}/{document.pk}", body, format="json").json()["metadata"]


def list_names(api, query):
    return sorted(row["name"] for row in api.get(URL, query).json()["results"])


def facts(metadata):
    return {key: metadata.get(key) for key in ("title", "author", "issuer")}


def test_what_people_say_stands_over_what_was_read(document):
    assert facts(document.metadata) == {
        "title": "읽은 제목",
        "author": "김철수",
        "issuer": "법무부",
    }
    assert document.stated == {"issuer": "법무부"}


def test_a_change_is_merged_into_what_is_there(api, document):
    metadata = patch(api, document, {"title": "새 제목", "쪽": 3})
    assert facts(metadata) == {"title": "새 제목", "author": "김철수", "issuer": "법무부"}
    assert metadata["쪽"] == 3


def test_null_takes_a_key_away_for_good(api, document, tiny_engine):
    assert "author" not in patch(api, document, {"author": None})
    services.reprocess_document(document=document)
    ingest.ingest_next_document()
    document.refresh_from_db()
    assert facts(document.metadata) == {"title": "읽은 제목", "author": None, "issuer": "법무부"}


def test_a_key_that_was_taken_away_can_be_stated_again(api, document):
    patch(api, document, {"author": None})
    assert patch(api, document, {"author": "이영희"})["author"] == "이영희"


def test_nothing_but_metadata_changes_with_it(api, document):
    patch(api, document, {"title": "새 제목"})
    now = Document.objects.get(pk=document.pk)
    assert (now.name, now.status, now.indexed_at) == (
        document.name,
        "COMPLETED",
        document.indexed_at,
    )


def test_what_people_said_in_all_has_a_limit(api, document):
    patch(api, document, {"a": "가" * 5000})
    body = {"metadata": {"b": "나" * 5000}}
    response = api.patch(f"{URL}/{document.pk}", body, format="json")
    assert (response.status_code, response.json()["code"]) == (400, "invalid_metadata")


def test_showing_twice_is_showing_once():
    stated = {"a": None, "b": 2}
    once = merge_metadata({"a": 1, "b": 1, "c": 1}, stated)
    assert once == merge_metadata(once, stated) == {"b": 2, "c": 1}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"metadata.issuer": "조달청"}, ["가.md", "나.md"]),
        ({"metadata.issuer": "조달청", "metadata.year": "2024"}, ["가.md"]),
        ({"metadata.year": "2024"}, ["가.md", "다.md"]),
        ({"metadata.authors": "김철수"}, ["나.md"]),
        ({"metadata.number": "제2024-1호"}, ["다.md"]),
        ({"metadata.issuer": "법무부"}, []),
        ({"metadata.issuer": ""}, 400),
        ({"metadata.": "x"}, 400),
        ({"metadata.issuer": "가" * 300}, 400),
        ({"metadata.issuer": "\0"}, 400),
        ({f"metadata.{number}": "x" for number in range(21)}, 400),
        ({"metadata.issuer__contains": "조"}, []),
    ],
)
def test_the_list_is_narrowed_by_any_key(api, owner, stranger, query, found):
    make_row(owner, name="가.md", metadata={"issuer": "조달청", "year": 2024})
    make_row(owner, name="나.md", metadata={"issuer": "조달청", "authors": ["김철수", "이영희"]})
    make_row(owner, name="다.md", metadata={"number": "제2024-1호", "year": "2024"})
    make_row(stranger, name="남의.md", metadata={"issuer": "조달청", "year": 2024})
    if isinstance(found, int):
        assert api.get(URL, query).status_code == found
    else:
        assert list_names(api, query) == found


@pytest.mark.parametrize("key", ["issuer", "부서"])
def test_a_value_is_found_however_its_letters_are_composed(api, owner, key):
    make_row(owner, metadata={key: "법무부"})
    apart = [unicodedata.normalize("NFD", text) for text in (key, "법무부")]
    query = {f"metadata.{apart[0]}": apart[1]}
    assert list_names(api, query) == ["규정.md"]


def test_the_filters_of_the_list_go_together(api, owner):
    make_row(owner, name="가.md", status="COMPLETED", metadata={"issuer": "조달청"})
    make_row(owner, name="나.md", status="FAILED", metadata={"issuer": "조달청"})
    assert list_names(api, {"metadata.issuer": "조달청", "status": "FAILED"}) == ["나.md"]


def test_a12_a_filter_finds_nothing_of_another_user(stranger_api, document):
    assert list_names(stranger_api, {"metadata.issuer": "법무부"}) == []
