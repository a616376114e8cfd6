"""Text to lexical terms."""

import unicodedata
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from rag import tokenize
from rag.tokenize import korean
from rag.tokenize.korean import strip_particle


@pytest.mark.usefixtures("analyser")
def test_decomposed_hangul_gives_the_same_terms():
    text = "숙박비 상한은 1박 90,000원이다."
    assert tokenize.count_terms(unicodedata.normalize("NFD", text)) == tokenize.count_terms(text)


def test_codes_are_kept_whole_and_split():
    found = tokenize.count_terms("오류 E-1234가 발생했다")
    assert {"e-1234", "1234", "오류", "발생"} <= set(found)


def test_numbers_lose_their_thousands_separators():
    assert "90000" in tokenize.count_terms("90,000원")
    assert "3.5" in tokenize.count_terms("3.5점")


def test_compounds_are_split_and_kept_whole():
    assert {"전자", "조달", "시스템", "전자조달시스템"} <= set(
        tokenize.count_terms("전자조달시스템의 개선")
    )


def test_names_of_several_words_are_found_by_each_word():
    assert {"마리", "앙투아네트"} <= set(tokenize.count_terms("마리 앙투아네트의 출생"))


def test_identifiers_are_found_by_their_parts():
    assert {"use", "stat"} <= set(tokenize.count_terms("useState"))


def test_zero_width_marks_do_not_hide_words():
    assert tokenize.count_terms("숙\u200b박\u200b비") == tokenize.count_terms("숙박비")


def test_words_that_only_ask_are_no_terms_of_a_question():
    assert set(tokenize.find_subject_terms("숙박비 상한을 알려 주세요")) == {"숙박비", "상한"}
    assert tokenize.find_subject_terms("please explain") == set()


def test_a_question_of_nothing_but_asking_words_still_has_terms():
    assert tokenize.weigh_query_terms("알려줘")


def test_a_batch_gives_the_same_terms_as_one_by_one():
    texts = ["숙박비 상한은 90,000원이다.", "", "The services are running", "제3조(목적)"]
    assert list(tokenize.count_terms_per_text(texts)) == [
        tokenize.count_terms(text) for text in texts
    ]


@pytest.mark.usefixtures("analyser")
def test_a_word_has_the_same_terms_whatever_stands_beside_it():
    text = "배가 나는 이 길은 제출 시 (안)을 90,000원을 API를 멱등해야 한다."
    together = sum((Counter(tokenize.count_terms(word)) for word in text.split()), Counter())
    assert tokenize.count_terms(text) == together


def test_a_question_asks_for_the_terms_that_a_text_of_its_words_has():
    text = "시 제출 시 나는 배가 건너뛰기를 멱등해야 한다"
    assert tokenize.weigh_query_terms(text).keys() >= tokenize.count_terms(text).keys()


def test_a_word_that_reads_otherwise_alone_counts_half_for_either_reading():
    terms = tokenize.weigh_query_terms("출장 여비 상한 예외는?")
    assert (terms["출장"], terms["상한"], terms["상하"]) == (2.0, 1.5, 0.5)


def test_a_word_weighs_by_what_it_is_in_the_question():
    when = tokenize.weigh_query_terms("폼 제출 시 입력 값 읽기")
    assert when["시"] < 1 <= when["제출"]
    assert tokenize.weigh_query_terms("윤동주의 시는 무엇인가요?")["시"] >= 1


def test_a_word_that_comes_back_is_analysed_once(monkeypatch):
    words = [f"고라니뿔사슴벌레{letter}" for letter in "가나다라"]
    asked = []
    analyse = korean.analyse_word
    monkeypatch.setattr(
        korean, "analyse_word", lambda analyser, word: asked.append(word) or analyse(analyser, word)
    )
    list(tokenize.count_terms_per_text([" ".join(words * 3), " ".join(words)]))
    assert asked == words


@pytest.mark.usefixtures("analyser")
def test_threads_find_the_same_terms():
    texts = [f"두더지{number}호는 땅속 {number}미터에서 산다" for number in range(40)] * 4
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(tokenize.count_terms, texts))
    assert found == list(tokenize.count_terms_per_text(texts))


def test_words_that_only_ask_weigh_little_beside_the_subject():
    weights = tokenize.weigh_query_terms("숙박비 정산 방법을 알려줘")
    assert min(weights["숙박비"], weights["정산"]) >= 1
    assert 0 < weights["방법"] < 1


def test_latin_words_weigh_more_in_a_korean_question_only():
    korean = tokenize.weigh_query_terms("Kubernetes 설치 순서")
    assert korean["kubernet"] == tokenize.LATIN_WEIGHT
    assert set(tokenize.weigh_query_terms("Kubernetes cluster").values()) == {1.0}


def test_words_that_only_ask_weigh_in_full_where_nothing_else_stands():
    assert tokenize.weigh_query_terms("방법은?")["방법"] >= 1


def test_no_term_is_longer_than_an_index_entry_takes():
    assert max(len(term) for term in tokenize.count_terms("x" * 10_000 + " " + "가" * 500)) <= 64


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
    assert len({tokenize.stem_word(word) for word in family.split()}) == 1


def test_stripping_a_particle_leaves_at_least_a_syllable():
    assert strip_particle("은") == "은"
    assert strip_particle("학교에서는") == "학교"


@pytest.mark.parametrize("word", ["국가", "사과", "나이", "물가", "효과", "평가"])
def test_what_only_looks_like_a_particle_stays(word):
    assert strip_particle(word) == word


@pytest.mark.parametrize("word", ["책은", "나무는", "책으로", "서울로", "나무로", "법으로부터는"])
def test_particles_that_fit_are_stripped(word):
    assert strip_particle(word) in {"책", "나무", "서울", "법"}
