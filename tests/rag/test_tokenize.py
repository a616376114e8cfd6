"""Text to lexical terms."""

import unicodedata

import pytest

from rag import morphemes, particles, stems, tokenize
from rag.errors import EngineUnavailable

NOUNS = [
    "숙박비",
    "출장",
    "회의",
    "나이",
    "책",
    "고양이",
    "가로등",
    "이사회",
    "전자조달시스템",
    "서버",
    "계약서",
    "은행",
    "도로",
    "사과",
    "학교",
    "문서",
]
PARTICLES = {  # by whether the noun ends in a consonant
    True: "은 이 을 과 으로 에서 의 만 까지 이라는 에서는",
    False: "는 가 를 와 로 에서 의 만 까지 라는 에서는",
}


def _ends_closed(word):
    return (ord(word[-1]) - 0xAC00) % 28 != 0


@pytest.fixture(params=[True, False], ids=["kiwi", "fallback"])
def analyser(request, monkeypatch):
    """With the morphological analyser, and as on a machine without it."""
    if not request.param:

        def missing(texts):
            raise EngineUnavailable("not here")

        monkeypatch.setattr(morphemes, "analyse", missing)


@pytest.mark.usefixtures("analyser")
def test_a_noun_with_a_particle_and_the_bare_noun_find_each_other():
    for noun in NOUNS:
        for particle in PARTICLES[_ends_closed(noun)].split():
            dressed = noun + particle
            assert set(tokenize.query_terms(noun)) & set(tokenize.terms(dressed)), dressed
            assert set(tokenize.query_terms(dressed)) & set(tokenize.terms(noun)), dressed


@pytest.mark.usefixtures("analyser")
def test_decomposed_hangul_gives_the_same_terms():
    text = "숙박비 상한은 1박 90,000원이다."
    assert tokenize.terms(unicodedata.normalize("NFD", text)) == tokenize.terms(text)


def test_codes_are_kept_whole_and_split():
    found = tokenize.terms("오류 E-1234가 발생했다")
    assert {"e-1234", "1234", "오류", "발생"} <= set(found)


def test_numbers_lose_their_thousands_separators():
    assert "90000" in tokenize.terms("90,000원")
    assert "3.5" in tokenize.terms("3.5점")


def test_compounds_are_split_and_kept_whole():
    assert {"전자", "조달", "시스템", "전자조달시스템"} <= set(
        tokenize.terms("전자조달시스템의 개선")
    )


def test_names_of_several_words_are_found_by_each_word():
    assert {"마리", "앙투아네트"} <= set(tokenize.terms("마리 앙투아네트의 출생"))


def test_identifiers_are_found_by_their_parts():
    assert {"use", "stat"} <= set(tokenize.terms("useState"))


def test_zero_width_marks_do_not_hide_words():
    assert tokenize.terms("숙\u200b박\u200b비") == tokenize.terms("숙박비")


def test_words_that_only_ask_are_no_terms_of_a_question():
    assert set(tokenize.subject_terms("숙박비 상한을 알려 주세요")) == {"숙박비", "상한"}
    assert tokenize.subject_terms("please explain") == set()


def test_a_question_of_nothing_but_asking_words_still_has_terms():
    assert tokenize.query_terms("알려줘")


def test_a_batch_gives_the_same_terms_as_one_by_one():
    texts = ["숙박비 상한은 90,000원이다.", "", "The services are running", "제3조(목적)"]
    assert list(tokenize.terms_of_all(texts)) == [tokenize.terms(text) for text in texts]


def test_words_that_only_ask_weigh_little_beside_the_subject():
    weights = tokenize.query_terms("숙박비 정산 방법을 알려줘")
    assert min(weights["숙박비"], weights["정산"]) >= 1
    assert 0 < weights["방법"] < 1


def test_words_that_only_ask_weigh_in_full_where_nothing_else_stands():
    assert tokenize.query_terms("방법은?")["방법"] >= 1


def test_no_term_is_longer_than_an_index_entry_takes():
    assert max(len(term) for term in tokenize.terms("x" * 10_000 + " " + "가" * 500)) <= 64


@pytest.mark.parametrize(
    "family",
    [
        "study studies studied",
        "run runs running",
        "box boxes",
        "policy policies",
        "class classes",
        "manage manages managed managing",
    ],
)
def test_forms_of_an_english_word_share_their_stem(family):
    assert len({stems.stem(word) for word in family.split()}) == 1


def test_stripping_a_particle_leaves_at_least_a_syllable():
    assert particles.strip("은") == "은"
    assert particles.strip("학교에서는") == "학교"
