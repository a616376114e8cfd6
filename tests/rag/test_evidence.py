"""Which passages stand in the prompt: as many as fit, each said to bear on the question or not."""

from uuid import uuid4

import pytest

from rag.config import ContextRules, RagConfig
from rag.context.tokens import get_counter
from rag.ports import Piece
from rag.retrieve.evidence import select_evidence, select_passages, to_evidence, to_sources
from rag.types import Gate, Hit, Plan, QuestionType, Retrieval, ScopeReason, StrategyName
from tests.rag.worlds import (
    Library,
    ScriptedLLM,
    find_finished,
    ignore_progress,
    make_chunk,
    make_engine,
)

FILLER = "회의실 예약과 주차 등록 절차를 안내한다. "


def count_cost(item, before=None):
    """One token a character."""
    return len(item.content)


@pytest.fixture
def library():
    return Library(make_engine())


def add(library, name, number, *, overlap=0):
    """A document whose chunks follow each other, each repeating the end of the one before."""
    document, whole, size = uuid4(), FILLER * 400, 100
    chunks = []
    for index in range(number):
        start = max(0, index * size - overlap)
        text = f"{name} {index}장 " + whole[start + 10 : (index + 1) * size]
        if overlap:
            text = whole[start : (index + 1) * size]
        made = make_chunk(index, text)
        chunks.append(type(made)(index, text, start, start + len(text), None, None, f"제{index}장"))
    indexed = list(library.engine.index_chunks(chunks, name, ignore_progress, number))
    library.store.add(document, name, indexed)
    library.ids[name] = document
    return document


def make_retrieval(library, places, *, relevance=0.9, score=0.9, **fields):
    """A retrieval whose hits are the passages at these (name, index), best first."""
    by_place = {(one.document_name, one.index): one for one in library.store.read_all(10_000) or ()}
    values = {
        "question_type": QuestionType.SINGLE,
        "strategy": StrategyName.RRF,
        "top_k": 2,
        "needs_multi_doc": False,
        "standalone_query": "q",
        "scope": library.scope(fields.pop("reason", ScopeReason.ALL)),
    }
    named, whole = fields.pop("named", ()), fields.pop("whole", False)
    plan = Plan(**{**values, **fields})
    hits = tuple(Hit(by_place[place], 1.0, {"relevance": relevance}) for place in places)
    return Retrieval(plan, hits, Gate(score, 0.5), named_documents=named, whole=whole)


def list_places(selection):
    return [(item.passage.document_name, item.passage.index) for item in selection.evidence]


def test_a_scope_that_fits_goes_in_whole_in_reading_order(library):
    add(library, "가", 3)
    add(library, "나", 2)
    selection = select_evidence(
        make_retrieval(library, [("나", 1)]), library.store, room=2000, cost=count_cost
    )
    assert selection.method == "whole"
    assert list_places(selection) == [("나", 1), ("나", 0), ("가", 0), ("가", 1), ("가", 2)]
    assert [item.weak for item in selection.evidence] == [False, True, True, True, True]


def test_what_nobody_finds_likely_is_supplied_all_the_same(library):
    add(library, "가", 3)
    unlikely = make_retrieval(library, [("가", 1)], relevance=0.05, score=0.05)
    selection = select_evidence(unlikely, library.store, room=2000, cost=count_cost)
    assert len(selection.evidence) == 3
    assert all(item.weak for item in selection.evidence)


def test_in_a_larger_scope_the_best_come_with_their_neighbours(library):
    add(library, "가", 30)
    add(library, "나", 30)
    hits = [("가", 10), ("나", 3), ("나", 20)]
    selection = select_evidence(
        make_retrieval(library, hits), library.store, room=550, cost=count_cost
    )
    assert selection.method == "best"
    assert set(list_places(selection)) >= {("가", 9), ("가", 10), ("가", 11), ("나", 3)}
    assert sum(map(count_cost, selection.evidence)) <= 550


def test_where_little_is_found_what_stands_around_the_best_fills_the_room(library):
    add(library, "가", 30)
    add(library, "나", 30)
    selection = select_evidence(
        make_retrieval(library, [("나", 20)]), library.store, room=550, cost=count_cost
    )
    assert sorted(list_places(selection)) == [("나", place) for place in range(18, 23)]
    assert [item.passage.index for item in selection.evidence if not item.weak] == [19, 20, 21]


def test_passages_stand_by_document_in_reading_order_with_one_slot_each(library):
    add(library, "가", 30)
    add(library, "나", 30)
    hits = [("나", 20), ("가", 10), ("나", 3)]
    selection = select_evidence(
        make_retrieval(library, hits), library.store, room=900, cost=count_cost
    )
    strong = [item for item in selection.evidence if not item.weak]
    names = [item.passage.document_name for item in strong]
    assert names == sorted(names, key=["나", "가"].index)
    assert [item.number for item in selection.evidence] == [*range(1, len(selection.evidence) + 1)]
    assert {item.slot for item in strong if item.passage.document_name == "나"} == {1}


def test_text_that_two_passages_share_is_said_once(library):
    add(library, "가", 3, overlap=20)
    selection = select_evidence(
        make_retrieval(library, [("가", 0)]), library.store, room=2000, cost=count_cost
    )
    evidence = sorted(selection.evidence, key=lambda item: item.start)
    assert all(
        item.text == item.passage.text[item.start - item.passage.start :] for item in evidence
    )
    whole = "".join(item.text for item in evidence if item.weak)
    assert len(whole) == 200


def test_a_comparison_gives_each_named_document_its_share_and_no_other_any(library):
    one, two = add(library, "가", 30), add(library, "나", 30)
    add(library, "다", 30)
    hits = [("가", 1), ("다", 5), ("가", 7), ("가", 9), ("다", 8), ("나", 4)]
    compared = make_retrieval(
        library,
        hits,
        question_type=QuestionType.COMPARE,
        needs_multi_doc=True,
        named=(one, two),
    )
    selection = select_evidence(compared, library.store, room=800, cost=count_cost)
    sizes = dict.fromkeys("가나다", 0)
    for item in selection.evidence:
        sizes[item.passage.document_name] += count_cost(item)
    assert selection.method == "documents"
    assert sizes["다"] == 0
    assert min(sizes["가"], sizes["나"]) >= 200


def test_compared_documents_whose_passages_are_too_long_together_keep_within_the_room(library):
    ids = tuple(add(library, name, 30) for name in "가나다라마")
    compared = make_retrieval(
        library,
        [(name, 1) for name in "다가나마라"],
        question_type=QuestionType.COMPARE,
        needs_multi_doc=True,
        named=ids,
    )
    selection = select_evidence(compared, library.store, room=250, cost=count_cost)
    assert list_places(selection) == [("다", 1), ("가", 1)]
    assert (selection.tokens <= 250, selection.dropped_count) == (True, 3)


@pytest.mark.parametrize("count", [5, 60])
async def test_the_lines_of_many_documents_are_counted_too(count):
    llm = ScriptedLLM(Piece("답"), Piece(finish_reason="stop"))
    made = Library(make_engine(llm=llm, config=RagConfig(context=ContextRules(tokens=2000))))
    title = "국가연구개발사업의 관리 등에 관한 긴 이름의 규정 시행세칙 "
    for number in range(count):
        metadata = {
            "title": f"{title}{number}",
            "issuer": "과학기술정보통신부",
            "date": "2024-03-01",
        }
        made.add(f"{number}.md", f"숙박비 상한은 {number}만 원이다.", metadata=metadata)
    trace = find_finished(await made.ask("숙박비 상한은?")).trace
    read = sum(get_counter("scripted").count(one.content) for one in llm.asked[-1])
    assert read <= 2000
    assert trace["token_plan"]["used"] == pytest.approx(read, rel=0.1)


def test_a_compared_document_that_holds_no_word_is_opened(library):
    one, two = add(library, "가", 30), add(library, "나", 30)
    compared = make_retrieval(
        library,
        [("가", 1)],
        question_type=QuestionType.COMPARE,
        needs_multi_doc=True,
        named=(one, two),
    )
    selection = select_evidence(compared, library.store, room=800, cost=count_cost)
    assert ("나", 0) in list_places(selection)


@pytest.mark.parametrize("reason", [ScopeReason.EXPLICIT, ScopeReason.SLOT])
def test_documents_that_the_user_chose_are_always_read(library, reason):
    add(library, "가", 40)
    nothing = make_retrieval(library, [], reason=reason, score=0.0)
    selection = select_evidence(nothing, library.store, room=500, cost=count_cost)
    assert list_places(selection)[0] == ("가", 0)


def test_nothing_is_read_where_nothing_was_found_in_many_documents(library):
    add(library, "가", 40)
    nothing = make_retrieval(library, [], score=0.0)
    assert select_evidence(nothing, library.store, room=500, cost=count_cost).evidence == ()


def test_small_talk_reads_nothing(library):
    add(library, "가", 1)
    talk = make_retrieval(library, [("가", 0)], question_type=QuestionType.SMALLTALK)
    assert select_evidence(talk, library.store, room=500, cost=count_cost).method == "none"


def test_whole_documents_that_do_not_fit_come_in_portions_that_do(library):
    add(library, "가", 40)
    asked = make_retrieval(library, [("가", 0)], reason=ScopeReason.EXPLICIT, whole=True)
    selection = select_evidence(asked, library.store, room=500, cost=count_cost)
    numbers = [item.number for portion in selection.portions for item in portion]
    assert numbers == [*range(1, 41)]
    assert all(sum(map(count_cost, portion)) <= 500 for portion in selection.portions)


def test_what_was_noted_stands_first_and_stays_citable(library):
    add(library, "가", 40)
    asked = make_retrieval(library, [("가", 0)], reason=ScopeReason.EXPLICIT, whole=True)
    selection = select_evidence(asked, library.store, room=500, cost=count_cost)
    read = selection.with_noted_passages({33, 7, 12, 20, 25, 30}, 350, count_cost)
    assert {item.number for item in read.evidence} < {33, 7, 12, 20, 25, 30}
    assert {item.number for item in read.citable} == {33, 7, 12, 20, 25, 30}
    assert read.tokens <= 350


def test_where_nothing_was_noted_each_section_has_its_turn(library):
    add(library, "가", 40)
    asked = make_retrieval(library, [("가", 0)], reason=ScopeReason.EXPLICIT, whole=True)
    selection = select_evidence(asked, library.store, room=500, cost=count_cost)
    read = selection.with_noted_passages((), 500, count_cost)
    assert read.evidence
    assert sum(map(count_cost, read.evidence)) <= 500


def test_sources_follow_the_evidence(library):
    add(library, "가", 3)
    retrieval = make_retrieval(library, [("가", 1)])
    evidence = to_evidence(
        [hit.passage for hit in retrieval.hits], {retrieval.hits[0].passage.key: 0.7}
    )
    (source,) = to_sources(evidence, retrieval.hits, dense=False)
    assert (source.slot, source.similarity, source.cited) == (1, 0.7, False)
    assert source.text == evidence[0].passage.content


def test_given_passages_go_in_as_far_as_they_fit(library):
    add(library, "가", 10)
    passages = library.store.read_all(100)
    selection = select_passages(passages, room=300, cost=count_cost)
    assert [item.passage.index for item in selection.evidence] == [0, 1, 2][
        : len(selection.evidence)
    ]
    assert selection.dropped_count == 0
    assert not any(item.weak for item in selection.evidence)
