"""A law's decree is meant by its kind alone."""

import pytest

from rag.conversation import Conversation, Memory, PastTurn, RememberedDocument
from tests.rag.worlds import Library, make_engine


@pytest.fixture
def laws():
    made = Library(make_engine())
    made.add("공탁법.md", "공탁금의 이자는 대법원규칙으로 정한다.", metadata={"title": "공탁법"})
    decree = {"title": "공탁법 시행령"}
    made.add("공탁법 시행령.md", "공탁금의 이자는 연 1천분의 35로 한다.", metadata=decree)
    made.add("양곡법 시행령.md", "양곡의 이자를 낸다.", metadata={"title": "양곡법 시행령"})
    return made


def make_conversation(laws, name):
    title = name.removesuffix(".md")
    memory = Memory(
        (RememberedDocument(laws.ids[name], title, 0.9),), "공탁금의 이자는?", "정한다."
    )
    turn = PastTurn(1, "공탁법에서 공탁금의 이자는 어떻게 정하나요?", "대법원규칙으로 정합니다.")
    return Conversation((turn,), 1, memory)


@pytest.mark.parametrize(
    "said", ["시행령에서는?", "그럼 그 시행령은?", "시행령에는 어떻게 되어 있어?"]
)
def test_a_decree_is_that_of_the_law_before(laws, said):
    found = laws.search(said, conversation=make_conversation(laws, "공탁법.md"))
    assert found.plan.scope.document_ids == (laws.ids["공탁법 시행령.md"],)


def test_the_law_itself_is_meant_from_its_decree(laws):
    found = laws.search("본법에서는?", conversation=make_conversation(laws, "공탁법 시행령.md"))
    assert found.plan.scope.document_ids == (laws.ids["공탁법.md"],)


def test_a_kind_that_the_family_lacks_changes_nothing(laws):
    found = laws.search("시행규칙에서는?", conversation=make_conversation(laws, "공탁법.md"))
    assert laws.ids["공탁법 시행령.md"] not in found.plan.scope.document_ids[:1]
