"""What is known about a user: slots by kind, and how a new statement changes them.

Kinds, their policies and the rules that find statements are data: packs (`rag/memory/packs/*.toml`
and an installation's own files). Nothing here knows where slots are stored.
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
"""Earlier states that a slot keeps; the oldest are dropped."""
FADED = 0.25
"""A symptom whose weight falls below this is no longer mentioned."""
MIN_FORGOTTEN_SHARE = 0.5
"""Share of a wish's words that a slot must contain to be forgotten."""
OWN_WEIGHT = 0.15
"""Weight of a slot for any question, added to the share of terms in common."""
MIN_NAMED_CHARACTERS = 2
"""Shortest value that is looked for in texts; shorter ones occur within other words."""
MIN_MEDICAL_TERMS = 2
"""Number of medical words in a text that makes it about health."""
_OWNER = re.compile(r"^(?:(?:우리|저희|내|제|our|my|the)\s+)+", re.IGNORECASE)
_PIECE = re.compile(r"\{([a-z_]+)\}")


class Policy(StrEnum):
    """How a new statement changes a slot of the same kind and key."""

    OVERWRITE = "overwrite"
    ACCUMULATE = "accumulate"
    TIMELINE = "timeline"
    SERIES = "series"
    FADING = "fading"
    PROTECTED = "protected"


class SlotStatus(StrEnum):
    """Whether a slot is valid, waits for the user to confirm it, or was valid once."""

    ACTIVE = "active"
    PROPOSED = "proposed"
    PAST = "past"


DATED = frozenset((Policy.SERIES, Policy.TIMELINE, Policy.FADING))
"""Policies of slots that may be out of date; prompts give their dates."""


class Effect(StrEnum):
    """Whether a statement says that something is so, or that it no longer is."""

    SET = "set"
    END = "end"


@dataclass(frozen=True, slots=True)
class Statement:
    """Something that users said about themselves. `sentence` is a literal quotation.

    `explicit`: they asked for it to be remembered. `corrects`: they say that it changed.
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
    """It counts only if its slot exists already: alone, it does not say whom it is about."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One thing known about a user. `history` holds earlier states as plain JSON, oldest first.

    A PROPOSED slot waits to be confirmed; `replaces` is the id of the slot that it would change, or
    end if its `effect` is END. `source` names the turn that it comes from.
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
    """A kind of slot. `contradiction`: "latest", or "confirm" if the user is asked first.

    `related_only`: a prompt includes it only if it shares a word with the question.
    """

    name: str
    policy: Policy
    contradiction: str
    titles: Mapping[str, str]
    related_only: bool = False


@dataclass(frozen=True, slots=True)
class Packs:
    """The kinds and rules in use, and the titles of fixed keys by language."""

    kinds: Mapping[str, SlotKind]
    rules: tuple[ProfileRule, ...]
    titles: Mapping[str, Mapping[str, str]]
    terms: tuple[str, ...] = ()
    """Words that mark a text as belonging to a sensitive pack (medicine)."""

    def get_kind_title(self, kind: str, language: str) -> str:
        """The title of a kind; its name if no pack in use defines it."""
        slot_kind = self.kinds.get(kind)
        return slot_kind.titles.get(language, kind) if slot_kind else kind

    def get_key_title(self, key: str, language: str) -> str:
        """The title of a key; keys in the user's own words stay as they are."""
        return self.titles.get(key, {}).get(language, key)

    def is_asked_for(self, key: str, text: str) -> bool:
        """Whether a text refers to a key without naming it: "where I live"."""
        pattern = self.titles.get(key, {}).get("asked", "")
        return bool(pattern) and re.search(pattern, text, re.IGNORECASE) is not None


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
            pack = tomllib.loads(path.read_text(encoding="utf-8"))
            pieces = _fill_pieces(pack.get("pieces", {}))
            for kind, entry in pack.get("kinds", {}).items():
                asks = entry.get("contradiction", "latest")
                policy, called = Policy(entry["policy"]), entry.get("titles", {})
                kinds[kind] = SlotKind(kind, policy, asks, called, entry.get("related_only", False))
            rules += (_to_rule(entry, pieces) for entry in pack.get("rules", ()))
            titles |= pack.get("keys", {})
            terms += pack.get("terms", ())
        except (OSError, ValueError, KeyError, TypeError, re.error) as error:
            raise ValueError(f"{path}: {error}") from error
    unknown = {rule.kind for rule in rules} - kinds.keys()
    if unknown:
        raise ValueError(f"rules of unknown kinds: {', '.join(sorted(unknown))}")
    return Packs(kinds, tuple(rules), titles, tuple(terms))


def _fill_pieces(stored: Mapping[str, str]) -> dict[str, str]:
    pieces: dict[str, str] = {}
    for name, text in stored.items():
        pieces[name] = _PIECE.sub(lambda match: pieces[match[1]], text.replace("\n", ""))
    return pieces


def _to_rule(entry: Mapping[str, Any], pieces: Mapping[str, str]) -> ProfileRule:
    def compile_pattern(text: str) -> re.Pattern[str]:
        filled = _PIECE.sub(lambda match: pieces[match[1]], text.replace("\n", ""))
        return re.compile(filled, re.IGNORECASE)

    patterns = {
        name: compile_pattern(entry[name])
        for name in ("match", "item_match", "item_refuses")
        if name in entry
    }
    values: dict[str, Any] = {**entry, **patterns}
    values["effect"] = Effect(values.get("effect", Effect.SET))
    values["units"] = {name: tuple(to) for name, to in values.get("units", {}).items()}
    values["examples"] = tuple(tuple(one) for one in values.get("examples", ()))
    values["refuses"] = tuple(values.get("refuses", ()))
    return ProfileRule(**values)


# What a statement changes


def apply_statements(
    slots: Sequence[Slot],
    statements: Iterable[Statement],
    packs: Packs,
    *,
    at: datetime,
    source: str = "",
) -> tuple[Slot, ...]:
    """The slots that the statements of one turn change or add, in order.

    Slots without an id are new. Repeating a statement changes only the time, so a turn may be read
    twice.
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
    slots: Mapping[str, Slot], statement: Statement, kind: SlotKind, *, at: datetime, source: str
) -> dict[str, Slot]:
    """The changed slots by their key in `slots`; a new one under an empty key."""
    same_key = {
        name: slot
        for name, slot in slots.items()
        if slot.kind == statement.kind and is_same_key(slot.key, statement.key)
    }
    proposed = [slot for slot in same_key.values() if slot.status is SlotStatus.PROPOSED]
    current = next(
        (one for one in same_key.items() if one[1].status is not SlotStatus.PROPOSED), None
    )
    fresh = Slot(
        kind=statement.kind,
        key=statement.key,
        value=statement.value,
        unit=statement.unit,
        at=at,
        source=source,
        sentence=statement.sentence,
        certainty=statement.certainty,
    )
    if current is None:
        return _begin_slot(fresh, statement, kind, proposed)
    place, slot = current
    if statement.effect is Effect.END:
        changed = _end_or_propose(slot, fresh, statement, kind, proposed)
    elif is_same_value(slot, fresh):
        changed = _confirm_slot(slot, fresh, statement, kind, proposed)
    elif not _needs_confirmation(kind, statement):
        changed = change_slot(slot, fresh)
    else:
        changed = _propose_slot(fresh, slot, proposed)
    if changed is None:
        return {}
    return {"" if changed.status is SlotStatus.PROPOSED else place: changed}


def _begin_slot(
    fresh: Slot, statement: Statement, kind: SlotKind, proposed: Sequence[Slot]
) -> dict[str, Slot]:
    if statement.known_only or proposed:
        return {}
    if statement.effect is Effect.SET:
        return {"": fresh}
    # whoever no longer takes a medicine did take it, which is worth knowing
    past = replace(fresh, status=SlotStatus.PAST)
    return {"": past} if kind.policy is Policy.TIMELINE else {}


def _end_or_propose(
    slot: Slot, fresh: Slot, statement: Statement, kind: SlotKind, proposed: Sequence[Slot]
) -> Slot | None:
    if slot.status is SlotStatus.PAST:
        return None
    if not _needs_confirmation(kind, statement):
        return end_slot(slot, at=fresh.at, sentence=fresh.sentence, source=fresh.source)
    proposal = replace(fresh, value=slot.value, unit=slot.unit, effect=Effect.END)
    return _propose_slot(proposal, slot, proposed)


def _confirm_slot(
    slot: Slot, fresh: Slot, statement: Statement, kind: SlotKind, proposed: Sequence[Slot]
) -> Slot | None:
    if slot.status is SlotStatus.PAST:
        if _needs_confirmation(kind, statement):
            return _propose_slot(fresh, slot, proposed)
        return change_slot(slot, fresh)
    if kind.policy in {Policy.SERIES, Policy.FADING} and slot.at != fresh.at:
        return change_slot(slot, fresh)
    return replace(slot, at=fresh.at, certainty=max(slot.certainty, fresh.certainty))


def _propose_slot(fresh: Slot, slot: Slot, proposed: Sequence[Slot]) -> Slot | None:
    """A slot that waits to be confirmed; None if the same one already does."""
    if any(one.effect is fresh.effect and is_same_value(one, fresh) for one in proposed):
        return None
    return replace(fresh, status=SlotStatus.PROPOSED, replaces=slot.id)


def _needs_confirmation(kind: SlotKind, statement: Statement) -> bool:
    """Whether the user is asked before a statement changes a slot."""
    if kind.policy is Policy.PROTECTED:
        return True
    return kind.contradiction == "confirm" and not (statement.explicit or statement.corrects)


def change_slot(slot: Slot, fresh: Slot) -> Slot:
    """The slot with the state of `fresh`; its previous state goes into the history."""
    return replace(
        fresh,
        id=slot.id,
        key=slot.key,
        history=(*slot.history, to_entry(slot))[-MAX_HISTORY:],
        status=SlotStatus.ACTIVE,
        replaces="",
    )


def end_slot(slot: Slot, *, at: datetime | None, sentence: str, source: str) -> Slot:
    """The slot as no longer valid."""
    return replace(
        slot,
        at=at,
        sentence=sentence,
        source=source,
        status=SlotStatus.PAST,
        history=(*slot.history, to_entry(slot))[-MAX_HISTORY:],
    )


def to_entry(slot: Slot) -> dict[str, Any]:
    """A slot's state as its history keeps it: plain JSON."""
    return {
        "value": slot.value,
        "unit": slot.unit,
        "status": slot.status.value,
        "at": slot.at.isoformat() if slot.at else None,
        "sentence": slot.sentence,
        "source": slot.source,
    }


def is_same_key(key: str, other_key: str) -> bool:
    """Whether two keys name the same thing, apart from spelling and possessives."""
    key, other_key = _OWNER.sub("", key), _OWNER.sub("", other_key)
    key, other_key = to_letters(key) or key, to_letters(other_key) or other_key
    return other_key in {key, f"{key}s"} or key == f"{other_key}s"


def is_same_value(slot: Slot, other_slot: Slot) -> bool:
    """Whether two slots have the same value."""
    return to_letters(slot.shown) == to_letters(other_slot.shown)


# What is forgotten


def find_forgotten(slots: Sequence[Slot], wish: str, packs: Packs) -> tuple[Slot, ...]:
    """The slots that a wish to forget refers to, by the words in common."""
    wish_words = _find_words(wish)
    if not wish:  # "잊어줘" alone: what was said last
        latest = max((slot.at for slot in slots if slot.at), default=None)
        return tuple(slot for slot in slots if latest and slot.at == latest)
    named_slots = tuple(slot for slot in slots if packs.is_asked_for(slot.key, wish))
    if named_slots:
        return named_slots
    if not wish_words:
        return ()
    shares = [
        len(wish_words & _find_words(_join_names(slot, packs))) / len(wish_words) for slot in slots
    ]
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


# What a prompt includes


def weigh_slot(slot: Slot, packs: Packs, now: datetime, half_life_days: float) -> float:
    """How valid a slot still is, 0..1: symptoms fade, everything else stays."""
    kind = packs.kinds.get(slot.kind)
    if kind is None or slot.status is not SlotStatus.ACTIVE:
        return 0.0
    if kind.policy is not Policy.FADING or slot.at is None or half_life_days <= 0:
        return slot.certainty
    days = max(0.0, (now - slot.at).total_seconds() / 86400)
    return float(slot.certainty * 0.5 ** (days / half_life_days))


def is_protected(slot: Slot, packs: Packs) -> bool:
    """Whether every answer must take the slot into account."""
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
    """The slots still valid: protected ones first, then by relevance to the question."""
    question_terms = tokenize.weigh_query_terms(question) if question else {}
    total_weight = sum(question_terms.values()) or 1.0
    ranked: list[tuple[bool, float, Slot]] = []
    for slot in slots:
        weight_left = weigh_slot(slot, packs, now, half_life_days)
        is_kept = is_protected(slot, packs) and slot.status is SlotStatus.ACTIVE
        if weight_left < FADED and not is_kept:
            continue
        slot_words = _find_words(_join_names(slot, packs))
        shared = (
            sum(weight for term, weight in question_terms.items() if term in slot_words)
            / total_weight
        )
        if packs.kinds[slot.kind].related_only and not shared:
            continue
        is_preference = slot.kind == "preference"
        ranked.append((not is_kept, -(shared + OWN_WEIGHT * weight_left + is_preference), slot))
    return tuple(slot for _, _, slot in sorted(ranked, key=lambda one: one[:2]))


def describe_slots(slots: Iterable[Slot], packs: Packs, language: str) -> tuple[str, ...]:
    """One line per slot for a prompt; protected ones are marked."""
    lines = []
    for slot in slots:
        kind = packs.get_kind_title(slot.kind, language)
        key = packs.get_key_title(slot.key, language)
        label = kind if to_letters(key) in to_letters(slot.value) else f"{kind} · {key}"
        line = f"{label}: {slot.shown}"
        if is_protected(slot, packs):
            line += f" {prompts.load_prompt('profile_protected', language)}"
        elif slot.at is not None and packs.kinds[slot.kind].policy in DATED:
            line += f" ({slot.at.date().isoformat()})"
        lines.append(line)
    return tuple(lines)


def write_caution(slots: Iterable[Slot], texts: Sequence[str], packs: Packs, language: str) -> str:
    """The warning about allergies and the like that `texts` mention; empty if none."""
    lowered_texts = [text.casefold() for text in texts]
    items_by_title: dict[str, list[str]] = {}
    for slot in slots:
        value = slot.value.casefold()
        if slot.status is not SlotStatus.ACTIVE or not is_protected(slot, packs):
            continue
        if len(value) >= MIN_NAMED_CHARACTERS and any(value in text for text in lowered_texts):
            items_by_title.setdefault(packs.get_kind_title(slot.kind, language), []).append(
                slot.value
            )
    notes = [
        get_reply("profile_caution", language, title=title, items=", ".join(items))
        for title, items in items_by_title.items()
    ]
    return "\n\n".join(notes)


def is_medical(texts: Iterable[str]) -> bool:
    """Whether any of the texts contains several medical words."""
    terms = load_packs(("medical",)).terms
    return any(
        sum(term in text for term in terms) >= MIN_MEDICAL_TERMS
        for text in map(str.casefold, texts)
    )
