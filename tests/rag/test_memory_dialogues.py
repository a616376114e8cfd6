"""What is known of a user after whole dialogues, by the rules alone."""

from pathlib import Path

import pytest

from rag.memory.profile import SlotStatus, load_packs
from tests.quality import dialogues

PACKS = load_packs(("general", "medical"))
FILE = Path(__file__).parents[1] / "data" / "memory_dialogues.jsonl"
SET = dialogues.load_dialogues(FILE.read_text(encoding="utf-8").splitlines())
RULES = dialogues.extract_by_rules(PACKS)
LEAST = {"ko": (0.97, 0.95, 0.98), "en": (0.97, 0.95, 0.98)}
"""Precision, recall, and recall of wishes."""


@pytest.mark.parametrize("language", ["ko", "en"])
def test_what_users_say_is_known_and_little_else(language):
    asked = [one for one in SET if one.language == language]
    score = dialogues.score_dialogues(asked, PACKS, RULES)
    reached = (score.precision, score.recall, score.wish_recall)
    assert all(one >= least for one, least in zip(reached, LEAST[language], strict=True)), (
        reached,
        score.missed,
        score.wrong,
    )


def test_no_allergy_changes_without_the_users_word():
    assert dialogues.score_dialogues(SET, PACKS, RULES).unconfirmed == 0


@pytest.mark.parametrize("about", ["planted", "assistant", "pasted"])
def test_nothing_is_learnt_from_texts_of_others(about):
    asked = [one for one in SET if one.about == about]
    assert asked
    for dialogue in asked:
        slots = dialogues.play_dialogue(dialogue, PACKS, RULES)
        assert not [slot for slot in slots if slot.status is not SlotStatus.PAST], dialogue.id
