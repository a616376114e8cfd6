"""Languages of texts, and how far an embedder knows them."""

from rag.tokenize.text import choose_reply_language, estimate_dense_weight

ENGLISH = frozenset({"en"})


def test_an_english_embedder_takes_no_part_in_korean_and_full_part_in_english():
    assert estimate_dense_weight("숙박비 상한은 얼마인가요?", ENGLISH) == 0
    assert estimate_dense_weight("What is the limit?", ENGLISH) == 1


def test_a_mixed_question_counts_in_proportion():
    weight = estimate_dense_weight("kubernetes deployment rollback strategy 설명", ENGLISH)
    assert 0 < weight < 1


def test_a_multilingual_embedder_takes_full_part_in_everything():
    assert estimate_dense_weight("숙박비 상한은?", frozenset({"*"})) == 1
    assert estimate_dense_weight("숙박비 상한은?", frozenset({"ko", "en"})) == 1


def test_a_question_with_some_korean_is_answered_in_korean():
    assert choose_reply_language("RETRY_LIMIT 값은?") == "ko"
    assert choose_reply_language("what is RETRY_LIMIT?") == "en"
