"""A question that names an issuer, a project or a document is searched there first."""

from uuid import uuid4

import pytest

from rag.types import QuestionType, StrategyName
from rag.understand import filters
from rag.understand.filters import list_names, to_name_key
from tests.quality import sets
from tests.rag.memory_store import MemoryStore
from tests.rag.worlds import Library, make_engine


def store_of(**documents):
    """A store of empty documents: key -> metadata, and their ids by key."""
    store, ids = MemoryStore(), {}
    for key, metadata in documents.items():
        ids[key] = uuid4()
        store.add(ids[key], key, [], metadata)
    return store, ids


@pytest.fixture(scope="module")
def laws():
    return store_of(
        grain={"title": "양곡관리법", "issuer": "농림축산식품부"},
        grain_rule={"title": "양곡관리법 시행규칙", "issuer": "농림축산식품부"},
        deposit={"title": "공탁법", "issuer": "법무부"},
        tender={"project_name": "차세대 통합 연구관리 시스템 구축", "issuer": "한국생산기술연구원"},
        tender_two={"project_name": "클라우드 전환 사업", "issuer": "한국생산기술연구원"},
        guide={"title": "사용 방법", "issuer": "(주)한빛소프트, 통계청"},
        person={"title": "임종석"},
        english={"title": "Victoria and Albert Museum", "issuer": "WHO"},
    )


def find_named_laws(question, laws):
    store, ids = laws
    found = filters.find_filter(question, store)
    keys = {pk: key for key, pk in ids.items()}
    return set() if found is None else {keys[pk] for pk in found.document_ids}


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("공탁법의 목적은?", {"deposit"}),
        ("「공탁법」 제3조의 내용", {"deposit"}),
        ("공탁법제3조는 무엇을 정하나?", {"deposit"}),
        ("양곡 관리법에서 정한 매입 가격", {"grain"}),
        ("양곡관리법 시행규칙의 수수료", {"grain_rule"}),
        ("양곡관리법시행규칙에 따른 수수료", {"grain_rule"}),
        ("한국생산기술연구원에서 발주한 사업의 예산", {"tender", "tender_two"}),
        ("생산기술연구원이 낸 사업의 예산", {"tender", "tender_two"}),
        ("차세대 통합연구관리시스템 구축 사업의 마감일", {"tender"}),
        ("한빛소프트가 만든 제품", {"guide"}),
        ("통계청 자료의 표본 수", {"guide"}),
        ("Which rooms does the Victoria and Albert Museum have?", {"english"}),
        ("공탁법과 양곡관리법의 차이", {"deposit", "grain"}),
    ],
)
def test_a_question_that_names_documents_is_filtered_to_them(question, expected, laws):
    assert find_named_laws(question, laws) == expected


@pytest.mark.parametrize(
    "question",
    [
        "공탁금은 어디에 내나?",
        "임종석은 언제 태어났나?",
        "사용 방법을 알려줘",
        "법무부 장관은 누구인가?",
        "who invented the telephone?",
        "Victoria and Albert Museum",
        "오늘 날씨 어때?",
        "",
    ],
)
def test_ordinary_words_persons_and_bare_titles_do_not_filter(question, laws):
    assert find_named_laws(question, laws) == set()


def test_an_issuer_and_its_project_leave_what_is_both(laws):
    question = "한국생산기술연구원의 클라우드 전환 사업은 언제 끝나나?"
    assert find_named_laws(question, laws) == {"tender_two"}


def test_an_issuer_and_another_ones_document_leave_both(laws):
    assert find_named_laws("법무부와 양곡관리법", laws) == {"deposit", "grain"}


def test_the_filter_tells_names_as_written_and_the_question_without_them(laws):
    found = filters.find_filter("한국생산기술연구원의 클라우드전환사업은 언제 끝나나?", laws[0])
    assert found.values == {"issuer": "한국생산기술연구원", "project_name": "클라우드 전환 사업"}
    assert found.rest == "언제 끝나나?"


def test_the_longest_possible_question_is_read_within_bounds(laws):
    assert find_named_laws("말 " * 5_000 + "공탁법", laws) == set()


def test_names_are_found_without_legal_form_and_country():
    assert set(list_names("issuer", "(주)한글과컴퓨터")) >= {"주한글과컴퓨터", "한글과컴퓨터"}
    assert "생산기술연구원" in list_names("issuer", "한국생산기술연구원")
    assert set(list_names("issuer", "한국은행")) == {"한국은행"}
    assert set(list_names("title", "한국생산기술연구원 규정")) == {
        to_name_key("한국생산기술연구원 규정")
    }


# --- in a search ---


@pytest.fixture
def library():
    books = Library(make_engine())
    books.add(
        "one.md", "휴가는 열다섯 날이다.", "출장비는 하루 오만 원이다.", metadata=make_law("공탁법")
    )
    books.add(
        "two.md", "휴가는 스무 날이다.", "수당은 매월 지급한다.", metadata=make_law("변호사법")
    )
    books.add("three.md", "휴가와 수당과 휴가 일수와 벌칙을 적는다.", metadata=make_law("상고심법"))
    return books


def make_law(title):
    return {"title": title, "project_name": title, "issuer": "법무부"}


def list_found_documents(found):
    return {hit.passage.document_name for hit in found.hits}


def test_hits_come_from_the_document_named_alone(library):
    found = library.search("변호사법의 휴가는 며칠인가?")
    assert list_found_documents(found) == {"two.md"}
    assert found.plan.filters == {"project_name": "변호사법"}
    assert not found.dropped_filters


def test_the_plan_keeps_the_whole_scope_and_question(library):
    found = library.search("변호사법의 휴가는 며칠인가?")
    assert found.plan.scope == library.scope()
    assert found.plan.standalone_query == "변호사법의 휴가는 며칠인가?"


def test_the_filter_is_dropped_and_told_where_it_leaves_nothing(library):
    found = library.search("공탁법에서 수당은 언제 지급하나?")
    assert "two.md" in list_found_documents(found)
    assert found.plan.filters == {}
    assert found.dropped_filters == {"project_name": "공탁법"}


def test_no_filter_where_the_caller_wants_none(library):
    found = library.search("변호사법의 휴가는 며칠인가?", filters={})
    assert len(list_found_documents(found)) == 3
    assert found.plan.filters == {}


def test_a_comparison_hears_both_documents_named(library):
    found = library.search("공탁법과 변호사법의 휴가 차이를 비교해줘", top_k=2)
    assert list_found_documents(found) == {"one.md", "two.md"}
    assert found.plan.question_type is QuestionType.COMPARE
    assert found.plan.needs_multi_doc
    assert found.plan.filters == {"project_name": "공탁법 | 변호사법"}


def test_a_document_named_as_a_whole_opens_with_its_first_passages(library):
    found = library.search("변호사법을 요약해줘")
    assert [hit.passage.text for hit in found.hits] == [
        "휴가는 스무 날이다.",
        "수당은 매월 지급한다.",
    ]


@pytest.mark.parametrize("strategy", list(StrategyName))
def test_every_strategy_is_filtered(library, strategy):
    found = library.search("변호사법의 휴가는 며칠인가?", strategy=strategy)
    assert list_found_documents(found) == {"two.md"}


async def test_the_trace_tells_the_filters(library):
    events = await library.ask("변호사법의 휴가는 며칠인가?")
    assert events[-1].trace["plan"]["filters"] == {"project_name": "변호사법"}
    events = await library.ask("공탁법에서 수당은 언제 지급하나?")
    assert events[-1].trace["plan"]["dropped_filters"] == {"project_name": "공탁법"}


# --- on the question sets ---


@pytest.mark.skipif(not sets.available(), reason="the data is not beside the project")
@pytest.mark.parametrize(
    ("name", "filtered", "wrong"),
    [
        ("kr_law", 0.99, 0.001),
        ("korquad1_dev", 0.0, 0.001),
        ("ko_docs", 0.0, 0.005),
        ("xquad_en", 0.0, 0.001),
        ("clapnq_dev", 0.0, 0.01),
    ],
)
def test_the_right_document_stays_within_the_filter(name, filtered, wrong, whole):
    """Titles of all units are known; laws are asked for by name, the others mostly are not."""
    asked = sets.load(name)
    meta = {unit.document: {"title": unit.title} for unit in asked.units} | dict(asked.metadata)
    store, ids = store_of(**meta)
    questions = asked.questions[:: max(1, len(asked.questions) // (700 if whole else 150))]
    found = [(filters.find_filter(question.text, store), question) for question in questions]
    kept = [(one, question) for one, question in found if one is not None]
    lost = [
        question.text
        for one, question in kept
        if not one.document_ids & {ids[asked.units[place].document] for place in question.relevant}
    ]
    assert len(kept) >= filtered * len(questions)
    assert len(lost) <= wrong * len(questions), lost[:5]


@pytest.mark.parametrize(
    ("title", "short", "shortest"),
    [
        ("고향사랑 기부금에 관한 법률", "고향사랑기부금법", "고향사랑법"),
        ("고향사랑 기부금에 관한 법률 시행령", "고향사랑기부금법시행령", "고향사랑법시행령"),
        ("가정폭력범죄의 처벌 등에 관한 특례법", "가정폭력범죄의처벌특례법", "가정폭력범죄법"),
        ("효행 장려 및 지원에 관한 법률", "효행장려및지원법", "효행법"),
    ],
)
def test_a_law_goes_by_its_short_names_too(title, short, shortest):
    names = dict.fromkeys((to_name_key(title), short, shortest), title)
    assert list_names("title", title) == names


def test_other_titles_have_one_name():
    assert list(list_names("title", "검사 등에 관한 규칙")) == ["검사등에관한규칙"]
