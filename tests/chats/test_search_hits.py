"""What `POST /search` says of a passage beside its text, and how the schema describes it."""

import pytest

from documents import spaces
from rag import tokenize
from rag.types import IndexedChunk, Kind, Page, TextChunk
from tests.chats.conftest import make_document
from tests.documents.conftest import store_rows

pytestmark = pytest.mark.django_db(transaction=True)
HEADER = "| 등급 | 여비 |\n|---|---|"
ROWS = "| 부장 | 칠만 원 |"


def test_a_hit_says_its_kind_and_the_header_that_its_table_goes_on_with(api, owner, answers_worker):
    make_document(owner, status="PROCESSING")
    part = TextChunk(0, ROWS, 0, len(ROWS), None, None, "", kind=Kind.TABLE, header=HEADER)
    space, _ = spaces.get_space_for_writing()
    store_rows(
        [Page(None, ROWS)], [IndexedChunk(part, tokenize.count_terms(part.content), None)], space
    )
    answer = api.post("/api/v1/search", {"query": "부장 여비"}, format="json")
    (hit,) = answer.data["hits"]
    assert (hit["kind"], hit["header"], hit["text"]) == ("table", HEADER, ROWS)


def test_the_schema_names_all_that_a_hit_has(api, owner, answers_worker):
    make_document(owner, status="PROCESSING")
    text = "출장비는 하루 오만 원이다."
    chunk = IndexedChunk(
        TextChunk(0, text, 0, len(text), None, None, ""), tokenize.count_terms(text), None
    )
    space, _ = spaces.get_space_for_writing()
    store_rows([Page(None, text)], [chunk], space)
    answer = api.post("/api/v1/search", {"query": "출장비"}, format="json").data
    shapes = api.get("/api/schema/?format=json").json()["components"]["schemas"]
    assert set(shapes["SearchResult"]["properties"]) == set(answer)
    assert set(shapes["Hit"]["properties"]) == set(answer["hits"][0])
