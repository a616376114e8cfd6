"""What is known of a user: slots by kind, and what a new statement does to them.

Kinds, their policies and the rules that find them are data: packs (`rag/memory/packs/*.toml`, and
files of an installation's own). Nothing here knows where slots are stored.
"""

import functools
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from rag import prompts, tokenize
from rag.prompts import get_reply
from rag.tokenize.text import to_letters

PACKS = Path(__file__).parent / "packs"
SUFFIX = ".toml"
MAX_HISTORY = 50
"""Earlier states that a slot keeps, the latest ones."""
FADED = 0.25
"""A symptom of which less than this is left is not spoken of any more."""
MIN_FORGOTTEN_SHARE = 0.5
"""Share of the words of a wish to forget that a slot must hold."""
OWN_WEIGHT = 0.15
"""What a slot weighs for any question, beside the terms that it shares with it."""
MIN_NAMED_CHARACTERS = 2
"""Of a thing that is looked for in a text; shorter words stand in others."""
MIN_MEDICAL_TERMS = 2
"""Words of medicine in a text from which it is about health."""
_OWNER = re.compile(r"^(?:(?:우리|저희|내|제|our|my|the)\s+)+", re.IGNORECASE)
_PIECE = re.compile(r"\{([a-z_]+)\}")


class Policy(StrEnum):
    """What a new statement does to what is known of the same kind and key."""

    OVERWRITE = "overwrite"
    ACCUMULATE = "accumulate"
    TIMELINE = "timeline"
    SERIES = "series"
    FADING = "fading"
    PROTECTED = "protected"


class SlotStatus(StrEnum):
    """Whether a slot holds, waits for the user's word, or did hold once."""

    ACTIVE = "active"
    PROPOSED = "proposed"
    PAST = "past"


DATED = frozenset((Policy.SERIES, Policy.TIMELINE, Policy.FADING))
"""Policies of what may have changed since."""


class Effect(StrEnum):
    """What a statement says of its slot: that it is so, or that it is so no more."""

    SET = "set"
    END = "end"


@dataclass(frozen=True, slots=True)
class Statement:
    """Something that a user said of himself. `sentence` stands literally in what he wrote.

    `explicit`: he asked for it to be remembered. `corrects`: he says that it changed.
    """

    kind: str
    key: str
    value: str
    unit: str = ""
    sentence: str = ""
    certainty: float = 0.9
    effect: Effect = Effect.SET
    explicit: bool = False
    corrects: bool = False
    known_only: bool = False
    """It counts only where its slot is known already: it says too little of whom it is about."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One thing that is known. `history` holds its earlier states, oldest first, as plain JSON.

    A slot that is PROPOSED waits to be confirmed; `replaces` is the id of the one that it would
    change, and `effect` END would end it. `source` names the turn that it comes from.
    """

    kind: str
    key: str
    value: str
    unit: str = ""
    at: datetime | None = None
    source: str = ""
    sentence: str = ""
    certainty: float = 1.0
    status: SlotStatus = SlotStatus.ACTIVE
    history: tuple[Mapping[str, Any], ...] = ()
    id: str = ""
    replaces: str = ""
    effect: Effect = Effect.SET

    @property
    def shown(self) -> str:
        """The value with its unit."""
        return f"{self.value} {self.unit}".strip()


@dataclass(frozen=True, slots=True)
class ProfileRule:
    """A pattern that finds statements of a kind in a clause; see `packs/general.toml`."""

    kind: str
    language: str
    match: re.Pattern[str]
    item: str = ""
    item_match: re.Pattern[str] | None = None
    item_refuses: re.Pattern[str] | None = None
    key: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    value: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    unit: str = ""
    units: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    least: float | None = None
    most: float | None = None
    effect: Effect = Effect.SET
    corrects: bool = False
    needs_self: bool = False
    standing: bool = False
    supposes: bool = False
    professional: bool = False
    proper: bool = False
    last_word: bool = False
    known_only: bool = False
    deniable: bool = False
    examples: tuple[tuple[str, ...], ...] = ()
    refuses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SlotKind:
    """A kind of slot. `contradiction`: "latest", or "confirm" where the user is asked first.

    `related_only`: a prompt tells it only where it shares a word with the question.
    """

    name: str
    policy: Policy
    contradiction: str
    titles: Mapping[str, str]
    related_only: bool = False


@dataclass(frozen=True, slots=True)
class Packs:
    """The kinds and rules in use, and what fixed keys are called by language."""

    kinds: Mapping[str, SlotKind]
    rules: tuple[ProfileRule, ...]
    titles: Mapping[str, Mapping[str, str]]
    terms: tuple[str, ...] = ()
    """Words by which a text belongs to one of the packs that ask for care (medicine)."""

    def get_kind_title(self, kind: str, language: str) -> str:
        """What people call a kind; its name where no pack in use has it."""
        known = self.kinds.get(kind)
        return known.titles.get(language, kind) if known else kind

    def get_key_title(self, key: str, language: str) -> str:
        """What people call a key; those that are the user's own words stay."""
        return self.titles.get(key, {}).get(language, key)

    def is_asked_for(self, key: str, text: str) -> bool:
        """Whether a text means what is kept under a key without its name: "where I live"."""
        asked = self.titles.get(key, {}).get("asked", "")
        return bool(asked) and re.search(asked, text, re.IGNORECASE) is not None


@functools.lru_cache(maxsize=8)
def load_packs(names: tuple[str, ...]) -> Packs:
    """Packs by name ("general", "medical") or by the path of a TOML file; later ones may override.

    Raises `ValueError` with the file's name for one that cannot be read.
    """
    kinds: dict[str, SlotKind] = {}
    rules: list[ProfileRule] = []
    titles: dict[str, Mapping[str, str]] = {}
    terms: list[str] = []
    for name in names:
        path = Path(name) if name.endswith(SUFFIX) else PACKS / f"{name}{SUFFIX}"
        try:
            read = tomllib.loads(path.read_text(encoding="utf-8"))
            pieces = _fill_pieces(read.get("pieces", {}))
            for kind, told in read.get("kinds", {}).items():
                asks = told.get("contradiction", "latest")
                policy, called = Policy(told["policy"]), told.get("titles", {})
                kinds[kind] = SlotKind(kind, policy, asks, called, told.get("related_only", False))
            rules += (_to_rule(told, pieces) for told in read.get("rules", ()))
            titles |= read.get("keys", {})
            terms += read.get("terms", ())
        except (OSError, ValueError, KeyError, TypeError, re.error) as error:
            raise ValueError(f"{path}: {error}") from error
    unknown = {rule.kind for rule in rules} - kinds.keys()
    if unknown:
        raise ValueError(f"rules of unknown kinds: {', '.join(sorted(unknown))}")
    return Packs(kinds, tuple(rules), titles, tuple(terms))


def _fill_pieces(stored: Mapping[str, str]) -> dict[str, str]:
    pieces: dict[str, str] = {}
    for name, text in stored.items():
        pieces[name] = _PIECE.sub(lambda found: pieces[found[1]], text.replace("\n", ""))
    return pieces


def _to_rule(told: Mapping[str, Any], pieces: Mapping[str, str]) -> ProfileRule:
    def compile_pattern(text: str) -> re.Pattern[str]:
        filled = _PIECE.sub(lambda found: pieces[found[1]], text.replace("\n", ""))
        return re.compile(filled, re.IGNORECASE)

    patterns = {
        name: compile_pattern(told[name])
        for name in ("match", "item_match", "item_refuses")
        if name in told
    }
    given: dict[str, Any] = {**told, **patterns}
    given["effect"] = Effect(given.get("effect", Effect.SET))
    given["units"] = {name: tuple(to) for name, to in given.get("units", {}).items()}
    given["examples"] = tuple(tuple(one) for one in given.get("examples", ()))
    given["refuses"] = tuple(given.get("refuses", ()))
    return ProfileRule(**given)


# What a statement changes


def apply_statements(
    slots: Sequence[Slot],
    statements: Iterable[Statement],
    packs: Packs,
    *,
    at: datetime,
    source: str = "",
) -> tuple[Slot, ...]:
    """The slots after statements of one turn: those that changed or are new, in order.

    Slots without an id are new ones. Saying the same again changes nothing but the time, so that a
    turn may be read twice.
    """
    known = {slot.id or f"new {place}": slot for place, slot in enumerate(slots)}
    changed: dict[str, Slot] = {}
    for statement in statements:
        kind = packs.kinds.get(statement.kind)
        if kind is None:
            continue
        for name, slot in _apply_statement(known, statement, kind, at=at, source=source).items():
            place = name or f"new {len(known)}"
            known[place] = changed[place] = slot
    return tuple(changed.values())


def _apply_statement(
    known: Mapping[str, Slot], said: Statement, kind: SlotKind, *, at: datetime, source: str
) -> dict[str, Slot]:
    """Slots by their place in `known`; a new one by an empty name."""
    same = {
        name: slot
        for name, slot in known.items()
        if slot.kind == said.kind and is_same_key(slot.key, said.key)
    }
    proposed = [slot for slot in same.values() if slot.status is SlotStatus.PROPOSED]
    held = next((one for one in same.items() if one[1].status is not SlotStatus.PROPOSED), None)
    fresh = Slot(
        kind=said.kind,
        key=said.key,
        value=said.value,
        unit=said.unit,
        at=at,
        source=source,
        sentence=said.sentence,
        certainty=said.certainty,
    )
    if held is None:
        return _begin_slot(fresh, said, kind, proposed)
    place, slot = held
    if said.effect is Effect.END:
        changed = _end_or_propose(slot, fresh, said, kind, proposed)
    elif is_same_value(slot, fresh):
        changed = _confirm_slot(slot, fresh, said, kind, proposed)
    elif not _needs_confirmation(kind, said):
        changed = change_slot(slot, fresh)
    else:
        changed = _propose_slot(fresh, slot, proposed)
    if changed is None:
        return {}
    return {"" if changed.status is SlotStatus.PROPOSED else place: changed}


def _begin_slot(
    fresh: Slot, said: Statement, kind: SlotKind, proposed: Sequence[Slot]
) -> dict[str, Slot]:
    if said.known_only or proposed:
        return {}
    if said.effect is Effect.SET:
        return {"": fresh}
    # who says that he no longer takes a medicine took it: that is worth knowing
    past = replace(fresh, status=SlotStatus.PAST)
    return {"": past} if kind.policy is Policy.TIMELINE else {}


def _end_or_propose(
    slot: Slot, fresh: Slot, said: Statement, kind: SlotKind, proposed: Sequence[Slot]
) -> Slot | None:
    if slot.status is SlotStatus.PAST:
        return None
    if not _needs_confirmation(kind, said):
        return end_slot(slot, at=fresh.at, sentence=fresh.sentence, source=fresh.source)
    asked = replace(fresh, value=slot.value, unit=slot.unit, effect=Effect.END)
    return _propose_slot(asked, slot, proposed)


def _confirm_slot(
    slot: Slot, fresh: Slot, said: Statement, kind: SlotKind, proposed: Sequence[Slot]
) -> Slot | None:
    if slot.status is SlotStatus.PAST:
        if _needs_confirmation(kind, said):
            return _propose_slot(fresh, slot, proposed)
        return change_slot(slot, fresh)
    if kind.policy in {Policy.SERIES, Policy.FADING} and slot.at != fresh.at:
        return change_slot(slot, fresh)
    return replace(slot, at=fresh.at, certainty=max(slot.certainty, fresh.certainty))


def _propose_slot(fresh: Slot, slot: Slot, proposed: Sequence[Slot]) -> Slot | None:
    """A slot that waits to be confirmed; None where the same does already."""
    if any(one.effect is fresh.effect and is_same_value(one, fresh) for one in proposed):
        return None
    return replace(fresh, status=SlotStatus.PROPOSED, replaces=slot.id)


def _needs_confirmation(kind: SlotKind, said: Statement) -> bool:
    """Whether the user is asked before what he said changes what is known."""
    if kind.policy is Policy.PROTECTED:
        return True
    return kind.contradiction == "confirm" and not (said.explicit or said.corrects)


def change_slot(slot: Slot, fresh: Slot) -> Slot:
    """The slot with another's state, and its own in the history."""
    return replace(
        fresh,
        id=slot.id,
        key=slot.key,
        history=(*slot.history, to_entry(slot))[-MAX_HISTORY:],
        status=SlotStatus.ACTIVE,
        replaces="",
    )


def end_slot(slot: Slot, *, at: datetime | None, sentence: str, source: str) -> Slot:
    """The slot as one that holds no more."""
    return replace(
        slot,
        at=at,
        sentence=sentence,
        source=source,
        status=SlotStatus.PAST,
        history=(*slot.history, to_entry(slot))[-MAX_HISTORY:],
    )


def to_entry(slot: Slot) -> dict[str, Any]:
    """A state of a slot as its history keeps it: plain JSON."""
    return {
        "value": slot.value,
        "unit": slot.unit,
        "status": slot.status.value,
        "at": slot.at.isoformat() if slot.at else None,
        "sentence": slot.sentence,
        "source": slot.source,
    }


def is_same_key(one: str, other: str) -> bool:
    """Whether two keys name the same thing, however they are spelt and whosever it is."""
    mine, theirs = (_OWNER.sub("", each) for each in (one, other))
    mine, theirs = (to_letters(each) or each for each in (mine, theirs))
    return theirs in {mine, f"{mine}s"} or mine == f"{theirs}s"


def is_same_value(one: Slot, other: Slot) -> bool:
    """Whether two slots say the same."""
    return to_letters(one.shown) == to_letters(other.shown)


# What is forgotten


def find_forgotten(slots: Sequence[Slot], wish: str, packs: Packs) -> tuple[Slot, ...]:
    """The slots that a wish to forget means, by the words that they share with it."""
    wanted = _find_words(wish)
    if not wish:  # "잊어줘" alone: what was said last
        latest = max((slot.at for slot in slots if slot.at), default=None)
        return tuple(slot for slot in slots if latest and slot.at == latest)
    asked = tuple(slot for slot in slots if packs.is_asked_for(slot.key, wish))
    if asked:
        return asked
    if not wanted:
        return ()
    shares = [len(wanted & _find_words(_join_names(slot, packs))) / len(wanted) for slot in slots]
    best = max(shares, default=0.0)
    if best < MIN_FORGOTTEN_SHARE:
        return ()
    return tuple(slot for slot, share in zip(slots, shares, strict=True) if share == best)


def _join_names(slot: Slot, packs: Packs) -> str:
    titles = [
        name
        for language in ("ko", "en")
        for name in (
            packs.get_key_title(slot.key, language),
            packs.get_kind_title(slot.kind, language),
        )
    ]
    return " \n".join([*titles, slot.value, slot.sentence])


def _find_words(text: str) -> set[str]:
    return {term for term in tokenize.count_terms(text) if len(term) > 1}


# What a prompt is told


def weigh_slot(slot: Slot, packs: Packs, now: datetime, half_life_days: float) -> float:
    """How far a slot still holds, 0..1: symptoms fade, all else stays."""
    kind = packs.kinds.get(slot.kind)
    if kind is None or slot.status is not SlotStatus.ACTIVE:
        return 0.0
    if kind.policy is not Policy.FADING or slot.at is None or half_life_days <= 0:
        return slot.certainty
    days = max(0.0, (now - slot.at).total_seconds() / 86400)
    return float(slot.certainty * 0.5 ** (days / half_life_days))


def is_protected(slot: Slot, packs: Packs) -> bool:
    """Whether nothing may be said without it."""
    kind = packs.kinds.get(slot.kind)
    return kind is not None and kind.policy is Policy.PROTECTED


def rank_slots(
    slots: Iterable[Slot],
    question: str,
    packs: Packs,
    *,
    now: datetime,
    half_life_days: float,
) -> tuple[Slot, ...]:
    """The slots that still hold: protected ones first, then by what they have to do with it."""
    wanted = tokenize.weigh_query_terms(question) if question else {}
    whole = sum(wanted.values()) or 1.0
    ranked: list[tuple[bool, float, Slot]] = []
    for slot in slots:
        left = weigh_slot(slot, packs, now, half_life_days)
        kept = is_protected(slot, packs) and slot.status is SlotStatus.ACTIVE
        if left < FADED and not kept:
            continue
        held = _find_words(_join_names(slot, packs))
        shared = sum(weight for term, weight in wanted.items() if term in held) / whole
        if packs.kinds[slot.kind].related_only and not shared:
            continue
        always = slot.kind == "preference"
        ranked.append((not kept, -(shared + OWN_WEIGHT * left + always), slot))
    return tuple(slot for _, _, slot in sorted(ranked, key=lambda one: one[:2]))


def describe_slots(slots: Iterable[Slot], packs: Packs, language: str) -> tuple[str, ...]:
    """A line for each slot, as a prompt tells it; protected ones are marked."""
    lines = []
    for slot in slots:
        kind = packs.get_kind_title(slot.kind, language)
        key = packs.get_key_title(slot.key, language)
        named = kind if to_letters(key) in to_letters(slot.value) else f"{kind} · {key}"
        line = f"{named}: {slot.shown}"
        if is_protected(slot, packs):
            line += f" {prompts.load_prompt('profile_protected', language)}"
        elif slot.at is not None and packs.kinds[slot.kind].policy in DATED:
            line += f" ({slot.at.date().isoformat()})"
        lines.append(line)
    return tuple(lines)


def write_caution(slots: Iterable[Slot], texts: Sequence[str], packs: Packs, language: str) -> str:
    """What an answer says first of allergies and the like that `texts` name; empty for none."""
    held = [text.casefold() for text in texts]
    touched: dict[str, list[str]] = {}
    for slot in slots:
        named = slot.value.casefold()
        if slot.status is not SlotStatus.ACTIVE or not is_protected(slot, packs):
            continue
        if len(named) >= MIN_NAMED_CHARACTERS and any(named in text for text in held):
            touched.setdefault(packs.get_kind_title(slot.kind, language), []).append(slot.value)
    notes = [
        get_reply("profile_caution", language, title=title, items=", ".join(items))
        for title, items in touched.items()
    ]
    return "\n\n".join(notes)


def is_medical(texts: Iterable[str]) -> bool:
    """Whether texts are about health: they hold a word of medicine each, or one holds several."""
    terms = load_packs(("medical",)).terms
    return any(
        sum(term in text for term in terms) >= MIN_MEDICAL_TERMS
        for text in map(str.casefold, texts)
    )
