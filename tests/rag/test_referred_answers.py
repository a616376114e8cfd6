"""References by place, through the whole engine: searched, shown, or asked back."""

import pytest

from rag.conversation import Conversation, DocRef, PastTurn, Question
from rag.types import AnswerMode, Scope, ScopeReason
from tests.rag.worlds import Library, find_finished, join_text, make_engine

LAWS = {
    "공탁법": "공탁금은 청구로 회수한다. 이의신청 기한은 7일이다.",
    "상표법": "상표권 존속기간은 10년이다. 이의신청 기한은 2개월이다.",
    "저작권법": "보호기간은 사망 후 70년이다. 이의신청 기한은 30일이다.",
}


class History:
    """The turns of a branch at their port."""

    def __init__(self, refs) -> None:
        self.refs = refs

    def list_documents(self):
        return self.refs

    def list_turns(self, limit, before=None):
        return []

    def get_turns(self, numbers):
        return []


@pytest.fixture(scope="module")
def library():
    made = Library(make_engine())
    for name, text in LAWS.items():
        made.add(name, text)
    return made


def make_refs(library) -> tuple[DocRef, ...]:
    return tuple(
        DocRef(slot, key, name, name, passages=("그때 보여 드린 글",))
        for slot, (name, key) in enumerate(library.ids.items(), 1)
    )


async def ask(library, text, *later, fresh=False, gone=(), scope=None):
    refs = make_refs(library)
    first = PastTurn(
        1, "이의신청 기한은?", "7일 [1]", question_type="single", mode="documents", doc_refs=refs
    )
    turns = () if fresh else (first, *later)
    readable = {ref.document_id: 1 for ref in refs if ref.title not in gone}
    conversation = Conversation(
        turns, len(turns), shown_turn=None if fresh else first, readable=readable
    )
    question = Question(text, scope or library.scope(), conversation)
    history = History(() if fresh else refs)
    return [event async for event in library.engine.answer(question, library.store, history)]


async def test_a_place_is_searched_and_nothing_else(library):
    events = await ask(library, "이전 2번 문서에서 이의신청 기한은?")
    assert "2개월" in join_text(events)
    assert "7일" not in join_text(events)
    assert find_finished(events).trace["scope"]["reason"] == "slot"


@pytest.mark.parametrize("text", ["방금 2번", "두 번째 문서", "2번 자세히", "the second document"])
async def test_a_place_alone_tells_of_the_document(library, text):
    events = await ask(library, text)
    assert find_finished(events).mode is AnswerMode.DOCUMENTS
    assert "존속기간은 10년" in join_text(events)


async def test_what_was_asked_is_asked_of_another_document(library):
    events = await ask(library, "3번은?")
    assert "**이의신청 기한은 30일이다.**" in join_text(events)


async def test_a_whole_document_is_shown_and_not_answered_from(library):
    events = await ask(library, "3번 문서 전체 보여줘")
    assert find_finished(events).mode is AnswerMode.DOCUMENT
    assert LAWS["저작권법"] in join_text(events)
    assert find_finished(events).view.parts == 1


async def test_a_document_that_is_gone_is_shown_as_it_was(library):
    events = await ask(library, "3번 문서 전체 보여줘", gone=("저작권법",))
    assert "그때 보여 드린 글" in join_text(events)
    assert LAWS["저작권법"] not in join_text(events)


async def test_several_documents_are_offered_and_a_choice_goes_on_with_the_question(library):
    events = await ask(library, "그 문서에서 이의신청 기한은?")
    end = find_finished(events)
    assert end.mode is AnswerMode.CLARIFY
    assert [ref.title for ref in end.candidates] == list(LAWS)
    said = ("그 문서에서 이의신청 기한은?", join_text(events))
    asked = PastTurn(2, *said, mode="clarify", candidates=end.candidates)
    assert "2개월" in join_text(await ask(library, "상표법이요", asked))
    picked = Scope((end.candidates[2].document_id,), ScopeReason.EXPLICIT)
    events = await ask(library, "그 문서에서 이의신청 기한은?", asked, scope=picked)
    assert "30일" in join_text(events)


async def test_in_a_new_chat_a_place_is_asked_back(library):
    events = await ask(library, "이전 1번 문서를 참고해서 알려줘", fresh=True)
    assert find_finished(events).mode is AnswerMode.CLARIFY
    assert find_finished(events).candidates == ()
