"""Where a follow-up is searched: in the remembered documents, unless outside is clearly better."""

from dataclasses import replace

import pytest

from rag.conversation import Conversation, Memory, PastTurn, RememberedDocument
from rag.types import QuestionType, Scope, ScopeReason, Topic
from rag.understand.analysis import QuestionAnalysis
from tests.rag.memory_store import MemoryStore
from tests.rag.worlds import Library, make_engine

TRAVEL = (
    "숙박비 상한은 1박 90,000원이다. 정산은 귀임 후 5일 이내에 한다. 영수증을 잃으면 사유서를 낸다."
)
LEAVE = "연차휴가는 매월 1일씩 생긴다. 정산은 연말에 한다. 못 쓴 휴가는 수당으로 지급한다."
SECURITY = "보안 서약서는 입사일에 제출한다. 노트북 반출은 팀장이 승인한다."


@pytest.fixture
def library():
    made = Library(make_engine())
    made.add("여비 규정.md", TRAVEL, metadata={"title": "여비 규정"})
    made.add("취업 규칙.md", LEAVE, metadata={"title": "취업 규칙"})
    made.add("정보보안 지침.md", SECURITY, metadata={"title": "정보보안 지침"})
    return made


NOWHERE = Scope((), ScopeReason.ALL)


def make_followup(text, **fields) -> QuestionAnalysis:
    """The text, taken for a follow-up."""
    values = {"follows": True, "certainty": 0.8, "standalone": text, **fields}
    return QuestionAnalysis(QuestionType.FOLLOWUP, text, NOWHERE, **values)


def make_memory(library, *names) -> Memory:
    """These documents are remembered."""
    return Memory(tuple(RememberedDocument(library.ids[name], name, 1.0) for name in names))


def search(library, text, analysis=None, *, remembered=("여비 규정.md",), scope=None):
    """Search with these documents remembered."""
    asked = analysis or make_followup(text)
    within = scope or library.scope()
    known = replace(asked, scope=within, memory=make_memory(library, *remembered))
    return library.engine.searcher.search(known, library.store.within(within.document_ids))


class Recorder:
    """A reranker that leaves the order, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked = []

    def rerank(self, query, hits, top_k):
        """As they come."""
        self.asked.append((query, tuple(hit.passage.key for hit in hits)))
        return list(hits[:top_k])


def list_found_names(found) -> set[str]:
    """The documents found."""
    return {hit.passage.document_name for hit in found.hits}


def test_a_follow_up_is_searched_within_the_remembered_documents(library):
    found = search(library, "정산은?")
    assert list_found_names(found) == {"여비 규정.md"}
    assert found.plan.scope == Scope((library.ids["여비 규정.md"],), ScopeReason.FOLLOWUP)
    assert not found.widened


def test_a_question_that_does_not_follow_is_searched_everywhere(library):
    verdict = QuestionAnalysis(QuestionType.SINGLE, "정산은?", NOWHERE, standalone="정산은?")
    found = search(library, "정산은?", verdict)
    assert found.plan.scope == library.scope()
    assert not found.widened


def test_words_that_only_another_document_holds_widen(library):
    found = search(library, "노트북 반출은 팀장이 승인하나요?")
    assert list_found_names(found) == {"정보보안 지침.md"}
    assert found.plan.scope == library.scope()
    assert found.widened


@pytest.mark.parametrize("text", ["서약서는 언제 내나요?", "노트북 주나요?"])
def test_a_word_that_no_remembered_passage_holds_widens_in_a_small_library_too(library, text):
    found = search(library, text, make_followup(text, standalone=f"여비 정산 {text}"))
    assert list_found_names(found) == {"정보보안 지침.md"}
    assert found.widened


@pytest.mark.parametrize("text", ["노트북은?", "그거 노트북 주나요?", "수당은 영수증으로 주나요?"])
def test_a_fragment_a_reference_and_a_word_found_inside_do_not_widen_by_one_word(library, text):
    found = search(library, text, make_followup(text, standalone=f"여비 정산 {text}"))
    assert found.plan.scope.reason is ScopeReason.FOLLOWUP


def test_a_document_named_by_its_title_is_not_hidden(library):
    found = search(library, "취업 규칙에서 정산은 언제 하나요?")
    assert list_found_names(found) == {"취업 규칙.md"}
    assert found.widened


def test_the_same_topic_never_widens(library):
    text = "노트북 반출은 팀장이 승인하나요?"
    found = search(library, text, make_followup(text, by="user", topic=Topic.SAME))
    assert found.plan.scope.reason is ScopeReason.FOLLOWUP
    assert not found.widened
    assert "정보보안 지침.md" not in list_found_names(found)


def test_the_wider_topic_is_searched_everywhere_and_still_follows(library):
    found = search(library, "정산은?", make_followup("정산은?", by="user", topic=Topic.WIDER))
    assert found.plan.scope == library.scope()
    assert found.plan.follows
    assert {"여비 규정.md", "취업 규칙.md"} <= list_found_names(found)


def test_the_simple_rule_never_widens(library):
    text = "노트북 반출은 팀장이 승인하나요?"
    found = search(library, text, make_followup(text, by="simple"))
    assert found.plan.scope.reason is ScopeReason.FOLLOWUP


@pytest.mark.parametrize("reason", [ScopeReason.EXPLICIT, ScopeReason.SLOT])
def test_documents_that_the_user_chose_are_searched_as_they_are(library, reason):
    scope = replace(library.scope(), reason=reason)
    assert search(library, "정산은?", scope=scope).plan.scope == scope


def test_remembered_documents_out_of_scope_are_not_searched(library):
    scope = Scope((library.ids["취업 규칙.md"],), ScopeReason.CHAT)
    found = search(library, "정산은?", scope=scope)
    assert found.plan.scope == scope
    assert list_found_names(found) == {"취업 규칙.md"}


def test_nothing_remembered_means_everything(library):
    assert search(library, "정산은?", remembered=()).plan.scope == library.scope()


def test_an_empty_scope_stays_empty(library):
    found = search(library, "정산은?", scope=Scope((), ScopeReason.ALL))
    assert found.hits == ()
    assert found.plan.scope.document_ids == ()


def test_several_remembered_documents_keep_their_order(library):
    found = search(library, "정산은?", remembered=("취업 규칙.md", "여비 규정.md"))
    kept = (library.ids["취업 규칙.md"], library.ids["여비 규정.md"])
    assert found.plan.scope.document_ids == kept


def test_a_sure_answer_inside_asks_nobody_outside(library):
    asked = []

    class Watched:
        """A store that tells when all of it is searched."""

        def __getattr__(self, name):
            if name == "bm25":
                asked.append(name)
            return getattr(library.store, name)

    text = "그 숙박비 상한은?"
    wanted = replace(
        make_followup(text),
        certainty=0.97,
        scope=library.scope(),
        memory=make_memory(library, "여비 규정.md"),
    )
    found = library.engine.searcher.search(wanted, Watched())
    assert list_found_names(found) == {"여비 규정.md"}
    assert asked == []


def test_a_follow_up_of_a_conversation_stays_in_its_documents(library):
    turn = PastTurn(1, "출장 숙박비 상한은 얼마인가요?", "1박 90,000원입니다. [1]")
    before = Conversation((turn,), 1, make_memory(library, "여비 규정.md"))
    found = library.search("정산은 언제까지 해?", conversation=before)
    assert found.plan.question_type is QuestionType.FOLLOWUP
    assert found.plan.scope.reason is ScopeReason.FOLLOWUP
    assert list_found_names(found) == {"여비 규정.md"}


def open_to_both(text) -> QuestionAnalysis:
    """A question whose words decide little."""
    return QuestionAnalysis(QuestionType.SINGLE, text, NOWHERE, certainty=0.6, standalone=text)


def test_what_words_leave_open_is_a_follow_up_where_a_remembered_document_holds_it_best(library):
    question = "영수증을 잃어버리면 어떡해?"
    found = search(library, question, open_to_both(question))
    assert (found.plan.follows, found.plan.question_type) == (True, QuestionType.FOLLOWUP)
    assert found.plan.scope.reason is ScopeReason.FOLLOWUP
    assert not found.widened


def test_what_words_leave_open_stands_alone_where_another_document_holds_it_best(library):
    question = "노트북 반출은 누가 승인해?"
    found = search(library, question, open_to_both(question))
    assert (found.plan.follows, found.plan.scope.reason) == (False, ScopeReason.ALL)
    assert list_found_names(found) == {"정보보안 지침.md"}


def test_what_words_decide_is_not_asked_of_the_evidence(library):
    question = "영수증을 잃어버리면 어떡해?"
    sure = replace(open_to_both(question), certainty=0.9)
    assert search(library, question, sure).plan.scope.reason is ScopeReason.ALL


def test_the_same_is_never_searched_nor_reranked_twice_for_a_question(monkeypatch):
    reranker = Recorder()
    made = Library(make_engine(reranker=reranker))
    for number in range(30):
        text = f"{number}번 부서의 업무 분장. 회의실 예약은 총무팀에 알린다."
        made.add(f"{number}번 규정.md", text, metadata={"title": f"{number}번 규정"})
    made.add("여비 규정.md", TRAVEL, metadata={"title": "여비 규정"})
    found = []
    lexical = MemoryStore.find_by_terms

    def recorded(store, terms, limit):
        found.append(
            (tuple(terms.items()), limit, tuple(one.key for one in store.read_all(99) or ()))
        )
        return lexical(store, terms, limit)

    monkeypatch.setattr(MemoryStore, "find_by_terms", recorded)
    search(made, "여비 규정에서 우주선 발사 일정은 누가 정하나요?")
    assert len(found) == len(set(found)) > 1
    assert len(reranker.asked) == len(set(reranker.asked)) <= 3
