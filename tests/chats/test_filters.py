"""What a question names narrows its search, and the answer says so; nobody else's names count."""

import pytest

from chats.models import Message
from chats.services.turns import open_turn
from documents import index, metadata, spaces
from rag import tokenize
from rag.events import Finished
from rag.types import AnswerMode, IndexedChunk, Page, QuestionType, TextChunk
from tests.chats.conftest import make_document
from tests.chats.engines import Delta, SourcesFound, make_source
from tests.chats.test_answering import play, run_to_its_end
from tests.documents.conftest import store_rows

__all__ = ["play"]
pytestmark = pytest.mark.django_db(transaction=True)
URL = "/api/v1/search"


def add_indexed(owner, name, text, **metadata):
    """A completed document of one passage, with its labels and without vectors."""
    document = make_document(owner, name=name, status="PROCESSING")
    chunk = TextChunk(0, text, 0, len(text), None, None, "")
    space, _ = spaces.get_space_for_writing()
    indexed = [IndexedChunk(chunk, tokenize.count_terms(text), None)]
    store_rows([Page(None, text)], indexed, space, index.IngestFindings(metadata))
    return document


@pytest.fixture
def laws(owner):
    deposit = add_indexed(
        owner, "one.md", "공탁금의 이자는 대법원규칙으로 정한다.", issuer="법무부"
    )
    grain = add_indexed(
        owner, "two.md", "공매로 판 양곡의 이자와 대금을 낸다.", issuer="농림축산식품부"
    )
    return deposit, grain


def search(api, query, **wishes):
    response = api.post(URL, {"query": query, **wishes}, format="json")
    assert response.status_code == 200, response.data
    return response.data


def list_found_names(answer):
    return {hit["document_name"] for hit in answer["hits"]}


def test_a_search_is_filtered_to_the_issuer_that_it_names(api, laws, answers_worker):
    answer = search(api, "법무부에서 정한 이자는?")
    assert list_found_names(answer) == {"one.md"}
    assert answer["plan"]["filters"] == {"issuer": "법무부"}
    assert answer["plan"]["dropped_filters"] == {}
    assert len(answer["plan"]["document_ids"]) == 2


def test_empty_filters_are_none(api, laws, answers_worker):
    answer = search(api, "법무부에서 정한 이자는?", filters={})
    assert list_found_names(answer) == {"one.md", "two.md"}
    assert answer["plan"]["filters"] == {}


def test_given_filters_are_exactly_these(api, laws, answers_worker):
    answer = search(api, "법무부에서 정한 이자는?", filters={"issuer": "농림축산식품부"})
    assert list_found_names(answer) == {"two.md"}
    assert answer["plan"]["filters"] == {"issuer": "농림축산식품부"}


def test_the_filters_of_a_plan_can_be_given_again(api, laws, answers_worker):
    filters = search(api, "법무부와 농림축산식품부의 이자 차이")["plan"]["filters"]
    assert filters == {"issuer": "법무부 | 농림축산식품부"}
    assert list_found_names(search(api, "이자", filters=filters)) == {"one.md", "two.md"}


def test_a_filter_that_leaves_nothing_is_dropped_and_told(api, laws, answers_worker):
    answer = search(api, "법무부에서 정한 양곡 공매 대금은?")
    assert answer["hits"][0]["document_name"] == "two.md"
    assert answer["plan"]["filters"] == {}
    assert answer["plan"]["dropped_filters"] == {"issuer": "법무부"}


def test_names_of_a_strangers_documents_filter_nothing(api, laws, stranger, answers_worker):
    theirs = add_indexed(stranger, "theirs.md", "통계청의 이자 통계.", issuer="통계청")
    answer = search(api, "통계청에서 정한 이자는?")
    assert answer["plan"]["filters"] == answer["plan"]["dropped_filters"] == {}
    assert list_found_names(answer) <= {"one.md", "two.md"}
    answer = search(api, "이자", filters={"issuer": "통계청"})
    assert (answer["hits"], answer["plan"]["document_ids"]) == ([], [])
    assert metadata.find_named_documents([theirs.pk], ["통계청"])


def test_an_answer_keeps_what_it_was_filtered_to(api, owner, play):
    turn = open_turn(user=owner, content="법무부에서 정한 이자는?")
    told = {"filters": {"issuer": "법무부"}, "dropped_filters": {}}
    sources = (make_source(),)
    finished = Finished(AnswerMode.DOCUMENTS, QuestionType.SINGLE, sources, None, {"plan": told})
    play(SourcesFound(sources), Delta("답 [1]"), finished)
    message = run_to_its_end(turn)
    scope = api.get(f"/api/v1/messages/{message.pk}").data["scope"]
    assert scope["filters"] == {"issuer": "법무부"}
    assert scope["dropped_filters"] == {}
    assert scope["reason"] == "all"


def test_messages_without_a_filter_say_so(api, owner):
    turn = open_turn(user=owner, content="질문")
    scope = api.get(f"/api/v1/messages/{turn.assistant_message.pk}").data["scope"]
    assert scope["filters"] == scope["dropped_filters"] == {}
    assert Message.objects.get(pk=turn.user_message.pk).scope is None
