"""Dialogues with what should be known of the user at their end, and how far a memory knows it.

A line of JSON is `{id, language, about, turns, slots, may, never}`. A turn is `{user, day?}`,
`{assistant}` or `{document}`, in the order in which they were said or shown. `slots` are wanted:
`{kind, holds, status}`, where `holds` stands in the key or the value. Those of `may` are neither
wanted nor wrong, and what stands in `never` must not be known in any state.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from rag.memory.extract import Extraction, extract_statements
from rag.memory.profile import (
    FADED,
    Packs,
    Slot,
    SlotStatus,
    apply_statements,
    find_forgotten,
    is_protected,
    weigh_slot,
)
from rag.tokenize.text import to_letters

BEGIN = datetime(2026, 1, 5, 9, tzinfo=UTC)
HALF_LIFE_DAYS = 14.0

Extractor = Callable[[str, Sequence[str]], Extraction]
"""What a message of the user holds; the texts that he was shown before are not his."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """See the module."""

    id: str
    language: str
    about: str
    turns: tuple[Mapping[str, Any], ...]
    slots: tuple[Mapping[str, str], ...]
    may: tuple[Mapping[str, str], ...]
    never: tuple[str, ...]


@dataclass(slots=True)
class Score:
    """Counts over dialogues; `missed` and `wrong` tell which."""

    wanted: int = 0
    found: int = 0
    right: int = 0
    wishes: int = 0
    heard: int = 0
    unconfirmed: int = 0
    """Protected slots that were changed or ended without the user's word."""
    missed: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def precision(self) -> float:
        """Of what is known, the share that should be."""
        return self.right / self.found if self.found else 1.0

    @property
    def recall(self) -> float:
        """Of what should be known, the share that is."""
        return (self.wanted - len(self.missed)) / self.wanted if self.wanted else 1.0

    @property
    def wish_recall(self) -> float:
        """The same of what the user asked to be remembered."""
        return self.heard / self.wishes if self.wishes else 1.0


def load_dialogues(lines: Iterable[str]) -> list[Dialogue]:
    """The dialogues of a file of JSON Lines."""
    told = [json.loads(line) for line in lines if line.strip()]
    return [
        Dialogue(
            one["id"],
            one["language"],
            one["about"],
            tuple(one["turns"]),
            tuple(one["slots"]),
            tuple(one["may"]),
            tuple(one["never"]),
        )
        for one in told
    ]


def extract_by_rules(packs: Packs) -> Extractor:
    """The rules alone."""
    return lambda text, shown: extract_statements(text, packs, foreign=shown)


def play_dialogue(dialogue: Dialogue, packs: Packs, extract: Extractor) -> tuple[Slot, ...]:
    """What is known at the end; symptoms that have faded count as past."""
    known: dict[str, Slot] = {}
    shown: list[str] = []
    now = BEGIN
    for number, turn in enumerate(dialogue.turns):
        if "user" not in turn:
            shown.append(turn.get("assistant") or turn["document"])
            continue
        now = max(now + timedelta(minutes=1), BEGIN + timedelta(days=turn.get("day", 0)))
        held = extract(turn["user"], shown)
        if held.forgets_everything:
            known.clear()
        for wish in held.forgets:
            for slot in find_forgotten([*known.values()], wish, packs):
                del known[slot.id]
        source = str(number)
        for slot in apply_statements(
            [*known.values()], held.statements, packs, at=now, source=source
        ):
            key = slot.id or f"{number}.{len(known)}"
            known[key] = replace(slot, id=key)
    return tuple(_faded(slot, packs, now) for slot in known.values())


def _faded(slot: Slot, packs: Packs, now: datetime) -> Slot:
    is_gone = (
        slot.status is SlotStatus.ACTIVE
        and not is_protected(slot, packs)
        and weigh_slot(slot, packs, now, HALF_LIFE_DAYS) < FADED
    )
    return replace(slot, status=SlotStatus.PAST) if is_gone else slot


def score_dialogues(dialogues: Iterable[Dialogue], packs: Packs, extract: Extractor) -> Score:
    """How far what is known at the end of each is what should be."""
    score = Score()
    for dialogue in dialogues:
        _add(score, dialogue, play_dialogue(dialogue, packs, extract), packs)
    return score


def _add(score: Score, dialogue: Dialogue, slots: Sequence[Slot], packs: Packs) -> None:
    left = Counter(range(len(slots)))
    for wanted in dialogue.slots:
        place = next((one for one in left if _is_meant(slots[one], wanted)), None)
        is_wish = dialogue.about == "wish"
        score.wanted += 1
        score.wishes += is_wish
        if place is None:
            score.missed.append(f"{dialogue.id} {wanted['kind']}: {wanted['holds']}")
            kept = packs.kinds.get(wanted["kind"])
            score.unconfirmed += (
                wanted["status"] == "active"
                and kept is not None
                and dialogue.about == "change"
                and kept.policy.value == "protected"
            )
            continue
        del left[place]
        score.heard += is_wish
        score.found += 1
        score.right += 1
    for place in left:
        slot = slots[place]
        if any(_holds(slot, one) for one in dialogue.may):
            continue
        score.found += 1
        score.wrong.append(f"{dialogue.id} {slot.kind} {slot.status}: {slot.key} = {slot.shown}")
    for word in dialogue.never:
        if any(
            word.casefold() in f"{one.key} {one.value} {one.sentence}".casefold() for one in slots
        ):
            score.wrong.append(f"{dialogue.id} knows {word}")


def _is_meant(slot: Slot, wanted: Mapping[str, str]) -> bool:
    return slot.status.value == wanted["status"] and _holds(slot, wanted)


def _holds(slot: Slot, wanted: Mapping[str, str]) -> bool:
    told = to_letters(f"{slot.key} {slot.shown}")
    return slot.kind == wanted["kind"] and to_letters(wanted["holds"]) in told
