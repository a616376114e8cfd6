"""Languages of texts, and how far an embedder knows them."""

from rag.tokenize.language import dense_weight, reply_language

ENGLISH = frozenset({"en"})


def test_an_english_embedder_takes_no_part_in_korean_and_full_part_in_english():
    assert dense_weight("숙박비 상한은 얼마인가요?", ENGLISH) == 0
    assert dense_weight("What is the limit?", ENGLISH) == 1


def test_a_mixed_question_counts_in_proportion():
    weight = dense_weight("kubernetes deployment rollback strategy 설명", ENGLISH)
    assert 0 < weight < 1


def test_a_multilingual_embedder_takes_full_part_in_everything():
    assert dense_weight("숙박비 상한은?", frozenset({"*"})) == 1
    assert dense_weight("숙박비 상한은?", frozenset({"ko", "en"})) == 1


def test_a_question_with_some_korean_is_answered_in_korean():
    assert reply_language("RETRY_LIMIT 값은?") == "ko"
    assert reply_language("what is RETRY_LIMIT?") == "en"
