"""Codes, numbers, dates, addresses and mixed words: whole, split, and found by either form."""

import time
import unicodedata

import pytest

from rag import tokenize


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("E-1234가", "e-1234 e1234 1234"),
        ("제2024-15호의", "제2024-15호 2024-15 2024 15"),
        ("2세대를", "2세대 2 세대"),
        ("GPT-4o는", "gpt-4o gpt4o gpt 4o"),
        ("3.5%를", "3.5% 3.5"),
        ("1,234,567원을", "1234567원 1234567"),
        ("v2.1.0에서", "v2.1.0 2.1.0 v2"),
        ("RFC 9110은", "rfc 9110"),
        ("hong.gil@nura.kr로", "hong.gil@nura.kr nura.kr hong gil nura"),
        ("https://www.nura.kr/docs/page-1", "www.nura.kr nura doc page"),
        ("세입(歲入)을", "세입 歲入"),
        ("使用說明書를", "使用說明書 使用 說明"),
        ("AI반도체를", "ai반도체 ai 반도체"),
        ("5G망은", "5g망 5g 망"),
        ("K-컬처의", "k-컬처 k 컬처"),
        ("30일까지", "30일 30"),
        ("2024.03.15부터", "2024.03.15 2024 3 15"),
        ("IT 예산", "it 예산"),
        ("C++와 R&D", "c++ r&d"),
        ("제①항", "1"),
    ],
)
@pytest.mark.usefixtures("analyser")
def test_what_is_joined_is_kept_whole_and_split(text, wanted):
    assert set(wanted.split()) <= set(tokenize.count_terms(text))
    assert set(wanted.split()) <= set(tokenize.weigh_query_terms(text))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("E-1234", "E1234"),
        ("GPT-4o", "GPT4o"),
        ("국가 계약법", "국가계약법"),
        ("전자조달 시스템", "전자 조달시스템"),
        ("AI 반도체", "AI반도체"),
        ("2024-03-05", "2024년 3월 5일"),
        ("90,000원", "90000 원"),
        ("RFC9110", "RFC 9110"),
        ("ㅎㅏㄴㄱㅡㄹ", "한글"),
        ("３．５％", "3.5%"),
        ("café", "cafe\u0301"),
    ],
)
@pytest.mark.usefixtures("analyser")
def test_two_ways_to_write_the_same_find_each_other(one, other):
    for question, text in ((one, other), (other, one)):
        shared = tokenize.weigh_query_terms(question).keys() & tokenize.count_terms(text).keys()
        assert any(len(term) > 1 for term in shared)


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
@pytest.mark.usefixtures("analyser")
def test_all_unicode_forms_give_the_same_terms(form):
    text = "제①항 숙박비 ３０，０００원과 歲入, GPT-4o의 café는?"
    assert tokenize.count_terms(unicodedata.normalize(form, text)) == tokenize.count_terms(text)
    assert tokenize.weigh_query_terms(
        unicodedata.normalize(form, text)
    ) == tokenize.weigh_query_terms(text)


def test_a_particle_behind_a_latin_word_or_a_number_is_no_term():
    assert set(tokenize.count_terms("API를")) == {"api"}
    assert "까지" not in tokenize.count_terms("30까지")


def test_words_of_other_scripts_are_terms():
    assert "мир" in tokenize.count_terms("Мир и труд")
    assert "سلام" in tokenize.count_terms("سلام عليكم")


HOSTILE = {
    "one word": "국가계약법" * 40_000,
    "one letter": "x" * 1_000_000,
    "one syllable": "가" * 20_000,
    "combining marks": "a" + "\u0316\u0301" * 50_000,
    "lone surrogates": "\ud800가나\udfff 예산" * 1_000,
    "only particles": "은 는 이 가 을 를 " * 5_000,
    "emoji": "👩‍👩‍👧‍👦🇰🇷" * 20_000,
    "right to left": "\u202eسلام עולם " * 10_000,
    "path": "a/b-c." * 50_000,
    "camel": "aB" * 100_000,
    "commas": "1,234" * 50_000,
    "jamo": "ㅎㅏㄴ" * 20_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_read_in_bounded_time(text):
    began = time.process_time()
    terms = tokenize.count_terms(text)
    assert time.process_time() - began < 60
    assert all(len(term) <= 64 for term in terms)
    "".join(terms).encode()


@pytest.mark.parametrize("text", ["", " ", "은", "\ud800", "👍", "\u0301" * 100, "?!", "을 를"])
@pytest.mark.usefixtures("analyser")
def test_questions_without_a_word_are_no_error(text):
    assert all(weight > 0 for weight in tokenize.weigh_query_terms(text).values())
