"""The words of a user dictionary in the analysis."""

import functools

import pytest

from rag import tokenize
from rag.config import RagConfig
from rag.factory import Engine
from rag.tokenize import korean
from rag.tokenize.korean import DictionaryUnreadable, use_dictionary
from tests.rag.worlds import LetterEmbedder

WORD = "먹고보자"
"""A name that reads as two verbs."""


load_once = functools.cache(korean._load_kiwi)


@pytest.fixture
def dictionary(tmp_path, monkeypatch):
    """A dictionary with one word, for an analyser of the test's own."""
    monkeypatch.setattr(korean, "_load_kiwi", load_once)  # a second each time
    monkeypatch.setattr(korean, "_ANALYSER", korean.Analyser())
    path = tmp_path / "words.txt"
    path.write_text(f"# 우리 말\n\n{WORD}\tNNP\t5.0\n", encoding="utf-8")
    return str(path)


def test_an_engine_keeps_the_words_of_its_dictionary_whole(dictionary):
    assert WORD not in tokenize.count_terms(f"{WORD}에게서 온 편지")
    Engine(RagConfig(user_dictionary=dictionary), embedder=LetterEmbedder())
    assert WORD in tokenize.count_terms(f"{WORD}에게서 온 편지")
    assert WORD in tokenize.weigh_query_terms(f"{WORD}의 편지는 어디에 있나요?")


def test_the_same_dictionary_again_loads_nothing(dictionary):
    use_dictionary(dictionary)
    first = tokenize.analyse_morphemes(WORD)
    use_dictionary(dictionary)
    assert tokenize.analyse_morphemes(WORD) is first


def test_without_a_dictionary_the_analysis_is_as_before(dictionary):
    before = tokenize.count_terms(WORD)
    use_dictionary(dictionary)
    assert tokenize.count_terms(WORD) != before
    use_dictionary("")
    assert tokenize.count_terms(WORD) == before


def test_a_broken_dictionary_is_refused_and_the_one_in_use_stays(dictionary, tmp_path):
    use_dictionary(dictionary)
    broken = tmp_path / "broken.txt"
    broken.write_text("한 줄\n", encoding="utf-8")
    with pytest.raises(DictionaryUnreadable, match="line 1"):
        use_dictionary(str(broken))
    assert WORD in tokenize.count_terms(WORD)


def test_words_of_a_dictionary_may_hold_spaces_and_latin_letters(tmp_path, dictionary):
    path = tmp_path / "mixed.txt"
    path.write_bytes("\ufeff전자 조달청\tNNP\r\nAI바우처\tNNP\t1.5\r\n".encode())
    use_dictionary(str(path))
    assert "ai바우처" in tokenize.count_terms("AI바우처를 신청한다")
    assert {"전자", "조달청"} <= set(tokenize.count_terms("전자 조달청의 공고"))
