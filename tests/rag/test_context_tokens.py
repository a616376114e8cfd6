"""Counting tokens: exactly where the vocabulary is known, within bounds elsewhere."""

import json
import statistics
import threading
import time

import pytest

from rag.context.tokens import (
    MAX_RATIO,
    MIN_RATIO,
    EstimatingCounter,
    VocabularyCounter,
    cut_to_tokens,
    find_vocabulary,
    get_counter,
)

KOREAN = "숙박비 상한은 1박 90,000원이며, 정산은 귀임 후 5일 이내에 한다. "
ENGLISH = "The service listens on port 8080, and backups run every night at two. "


@pytest.mark.parametrize(
    ("model", "vocabulary"),
    [
        ("gpt-4o-mini", "o200k_base"),
        ("gpt-4.1", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("openai/gpt-oss-20b", "gpt-oss"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen3"),
        ("qwen3:8b", "qwen3"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", "qwen3"),
        ("deepseek-chat", "deepseek_v3"),
        ("google/gemma-3-12b-it", "gemma3"),
        ("gemma2:9b", "gemma2"),
        ("gemma-4-12b-it", "gemma4"),
        ("zai-org/GLM-4.5-Air", "glm4"),
        ("mistral-nemo", "mistral_v3"),
        ("codellama:7b", "codellama"),
        ("llama2:13b", "llama2"),
        ("kimi-k2", "kimi_k2"),
        ("phi4:14b", "phi4"),
    ],
)
def test_a_known_models_own_vocabulary_counts(model, vocabulary):
    found = get_counter(model)
    assert (found.name, find_vocabulary(model)) == (vocabulary, vocabulary)
    assert 10 <= found.count(ENGLISH) <= 25


@pytest.mark.parametrize(
    "model",
    [
        *("", "extractive", "LGAI-EXAONE/EXAONE-3.5-7.8B", "solar-pro", "gemma:7b", "GLM-4.6"),
        *("Qwen/Qwen3.5-9B", "microsoft/Phi-4-mini-instruct", "deepseek-r1:7b", "my-o1", "macro3"),
    ],
)
def test_a_model_of_another_vocabulary_is_estimated(model):
    assert get_counter(model).name == "estimate"


def test_counts_of_openais_vocabulary_are_the_published_ones():
    found = VocabularyCounter("o200k_base")
    assert found.count("hello world") == 2
    assert found.count("") == 0


@pytest.mark.parametrize(
    "found", [VocabularyCounter("o200k_base"), EstimatingCounter()], ids=lambda one: one.name
)
@pytest.mark.parametrize(
    "text", ["a\ud800b", "\0", "<|endoftext|><|im_start|>", "😀" * 500, "\u200b" * 500, " " * 5000]
)
def test_any_string_can_be_counted(found, text):
    assert 1 <= found.count(text) <= 4 * len(text)


def test_markers_of_chat_templates_count_as_the_plain_text_they_are():
    assert VocabularyCounter("o200k_base").count("<|endoftext|>") > 1


def cut_stretches(text):
    return [text[start : start + 500] for start in range(0, min(len(text), 20_000), 500)]


def read_korean_texts(data):
    korquad = json.loads((data / "korquad1_dev" / "KorQuAD_v1.0_dev.part.json").read_text())
    for article in korquad["data"][40:60]:
        for paragraph in article["paragraphs"][:4]:
            yield from cut_stretches(paragraph["context"])
    for path in sorted((data / "kr_law").rglob("*.md"))[-40:]:
        yield from cut_stretches(path.read_text())


def read_english_texts(data):
    xquad = json.loads((data / "xquad_en" / "xquad.en.part.json").read_text())
    for article in xquad["data"][-8:]:
        for paragraph in article["paragraphs"]:
            yield from cut_stretches(paragraph["context"])


@pytest.mark.parametrize("texts", [read_korean_texts, read_english_texts])
@pytest.mark.parametrize("vocabulary", ["o200k_base", "qwen3", "llama3", "gemma3", "deepseek_v3"])
def test_the_estimate_is_near_every_vocabulary_in_both_languages(shared_data, vocabulary, texts):
    exact, estimate = VocabularyCounter(vocabulary), EstimatingCounter()
    errors, sums = [], [0, 0]
    for text in texts(shared_data):
        real, guess = exact.count(text), estimate.count(text)
        errors.append(abs(guess - real) / max(1, real))
        sums = [sums[0] + real, sums[1] + guess]
    assert len(errors) > 20
    assert statistics.median(errors) < 0.12
    assert sums[1] == pytest.approx(sums[0], rel=0.12)


def test_the_estimate_learns_a_servers_own_way_of_counting():
    exact, estimate = VocabularyCounter("cl100k_base"), EstimatingCounter()
    text = KOREAN * 20
    before = abs(estimate.count(text) - exact.count(text))
    for _ in range(15):
        estimate.learn(estimate.count(text), exact.count(text))
    assert abs(estimate.count(text) - exact.count(text)) < before / 5


def test_reports_beyond_belief_move_it_no_further_than_its_bounds():
    estimate = EstimatingCounter()
    for _ in range(100):
        estimate.learn(100, 100_000)
    assert estimate.ratio == pytest.approx(MAX_RATIO)
    for _ in range(100):
        estimate.learn(200, 100)
    assert MIN_RATIO <= estimate.ratio < 1


@pytest.mark.parametrize(("counted", "reported"), [(1000, 0), (1000, 3), (0, 500), (-1, 5)])
def test_a_report_without_the_reused_beginning_of_a_prompt_teaches_nothing(counted, reported):
    estimate = EstimatingCounter()
    estimate.learn(counted, reported)
    assert estimate.ratio == 1.0


def test_what_is_learned_is_the_models_own_and_stays():
    try:
        get_counter("model-of-this-test").learn(100, 150)
        assert get_counter("model-of-this-test").count(KOREAN) > get_counter("another").count(
            KOREAN
        )
    finally:
        get_counter.cache_clear()


def test_an_exact_count_learns_nothing():
    found = VocabularyCounter("o200k_base")
    before = found.count(KOREAN)
    found.learn(100, 200)
    assert found.count(KOREAN) == before


def test_many_threads_may_count_and_teach_at_once():
    estimate, exact = EstimatingCounter(), VocabularyCounter("o200k_base")
    counts = []

    def work():
        for _ in range(50):
            estimate.learn(100, 120)
            counts.append(exact.count(KOREAN))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(counts)) == 1
    assert 1 < estimate.ratio <= MAX_RATIO


@pytest.mark.parametrize(
    "found", [VocabularyCounter("o200k_base"), EstimatingCounter()], ids=lambda one: one.name
)
@pytest.mark.parametrize("text", [KOREAN * 100, ENGLISH * 100, "가" * 20_000, "😀" * 9_000])
@pytest.mark.parametrize("room", [0, 1, 50, 900])
def test_a_cut_text_fits_and_fills_its_room(found, text, room):
    kept = cut_to_tokens(text, room, found)
    assert text.startswith(kept)
    assert found.count(kept) <= room
    assert found.count(kept) >= room * 0.8


def test_a_short_text_is_not_cut():
    assert cut_to_tokens(KOREAN, 900, VocabularyCounter("o200k_base")) == KOREAN


@pytest.mark.parametrize(
    "found", [VocabularyCounter("o200k_base"), EstimatingCounter()], ids=lambda one: one.name
)
def test_a_whole_prompt_is_counted_in_a_few_milliseconds(found):
    text = KOREAN * 150
    found.count(text)
    begun = time.process_time()
    for _ in range(10):
        found.count(text)
    assert (time.process_time() - begun) / 10 < 0.02
