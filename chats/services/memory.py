"""What is remembered of a user: read out of his turns, confirmed, changed and forgotten by him.

The engine says what a turn tells and what that does to what is known (`rag.memory`). Here it is
stored, each turn once, under the lock of its user.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone
from django.utils.translation import get_language

from chats.errors import NotFound
from chats.models import Chat, Message, ProfileChoice, ProfileSlot, Turn
from chats.services import answer_cache, turn_store
from jobs.connections import KEYS, KeptQuery
from rag.memory.extract import Extraction, extract_statements
from rag.memory.profile import (
    Effect,
    Packs,
    Policy,
    Slot,
    SlotStatus,
    Statement,
    apply_statements,
    change_slot,
    end_slot,
    find_forgotten,
    is_protected,
    is_same_key,
    load_packs,
    to_entry,
)
from rag.tokenize.text import to_letters

logger = structlog.get_logger()

MAX_SLOTS = 1000
"""Of one user; what is told after that is not kept."""
REDACTED = "…"
"""Stands in the turn store for a sentence that was forgotten."""


def get_packs() -> Packs:
    """The kinds that this installation remembers."""
    return load_packs(settings.RAG.profile.packs)


def is_memory_on(user_id: int) -> bool:
    """Whether the user wants to be remembered."""
    return not ProfileChoice.objects.filter(owner_id=user_id, enabled=False).exists()


def switch_memory(*, owner: User, enabled: bool) -> None:
    """Remember things of the user from now on, or no longer; what is known stays."""
    ProfileChoice.objects.update_or_create(owner=owner, defaults={"enabled": enabled})


_slots_of = KeptQuery(
    lambda owners: ProfileSlot.objects.extra(where=["owner_id = ANY(%s)"], params=[owners]), KEYS
)


def load_profiles(
    answers: Collection[Message], known: Collection[int]
) -> dict[UUID, tuple[Slot, ...]]:
    """What the engine is told of those who wait for these answers, by the answer's id.

    An answer that is missing is to know of nobody, nor to add to what is known. The owner of each
    chat is at hand with his choice (`profile_choice`); `known` are owners of whom there is anything
    to be told.
    """
    wanted = {
        one.pk: one.chat.owner_id
        for one in answers
        if uses_memory(one.chat, one.scope) and _wants_memory(one.chat.owner)
    }
    slots: dict[int, list[Slot]] = {owner_id: [] for owner_id in wanted.values()}
    asked = [owner_id for owner_id in slots if owner_id in known]
    for row in _slots_of.fetch(asked) if asked else ():
        slots[row.owner_id].append(row.to_slot())
    return {pk: tuple(slots[owner_id]) for pk, owner_id in wanted.items()}


def _wants_memory(user: User) -> bool:
    try:
        return user.profile_choice.enabled
    except ProfileChoice.DoesNotExist:
        return True


def uses_memory(chat: Chat, scope: dict[str, Any] | None) -> bool:
    """Whether a question of this chat knows of the user, and adds to what is known."""
    return chat.use_memory and not chat.temporary and (scope or {}).get("memory", True) is True


# Reading turns


def learn_from_turn(turn_id: UUID) -> None:
    """Store what a turn says about its user. Each turn is read once."""
    with transaction.atomic():
        turn = (
            Turn.objects.without_search_columns()
            .select_related("chat__owner", "message__parent", "parent")
            .select_for_update(of=("self",))
            .filter(pk=turn_id, profile_read_at=None)
            .first()
        )
        if turn is None:
            return
        Turn.objects.filter(pk=turn.pk).update(profile_read_at=timezone.now())
        if not uses_memory(turn.chat, turn.message.scope) or not _lock_profile(turn.chat.owner):
            return
        _apply_extraction(turn, extract_from_turn(turn))


def extract_from_turn(turn: Turn) -> Extraction:
    """What the rules extract from the user's message of a turn."""
    return extract_statements(turn.user_text, get_packs(), foreign=_list_foreign(turn))


def find_text_for_model(turn_id: UUID) -> tuple[str, list[str]] | None:
    """A turn's message for a model to read, and the quoted texts in it that are not the user's.

    None where the rules found something: they are more reliable than the model.
    """
    rows = Turn.objects.without_search_columns().select_related(
        "chat__owner", "message__parent", "parent"
    )
    turn = rows.filter(pk=turn_id).first()
    if turn is None or not uses_memory(turn.chat, turn.message.scope):
        return None
    if ProfileChoice.objects.filter(owner=turn.chat.owner, enabled=False).exists():
        return None
    read = extract_from_turn(turn)
    told = any(not one.known_only for one in read.statements)
    heard = told or read.forgets or read.everything or read.wish
    return None if heard else (turn.user_text, _list_foreign(turn))


def store_model_statements(turn_id: UUID, statements: Sequence[Statement]) -> None:
    """Store what a model extracted from a turn; protected kinds only as proposals to the user."""
    with transaction.atomic():
        rows = Turn.objects.without_search_columns().select_related("chat__owner", "message")
        turn = rows.filter(pk=turn_id).first()
        if turn is None or not uses_memory(turn.chat, turn.message.scope):
            return
        owner = turn.chat.owner
        if not _lock_profile(owner):
            return
        packs, source = get_packs(), turn.message.parent_id
        asked = [one for one in statements if packs.kinds[one.kind].policy is Policy.PROTECTED]
        sure = [one for one in statements if one not in asked]
        store_statements(owner=owner, statements=sure, message_id=source, at=turn.ts)
        for one in asked:
            _propose_statement(owner, one, at=turn.ts, source=str(source or ""))


def _propose_statement(owner: User, said: Statement, *, at: datetime, source: str) -> None:
    """Ask the user whether something is so, unless it is known or asked already."""
    for row in ProfileSlot.objects.owned_by(owner).filter(kind=said.kind):
        if is_same_key(row.key, said.key):
            return
    slot = Slot(
        said.kind,
        said.key,
        said.value,
        said.unit,
        at=at,
        source=source,
        sentence=said.sentence,
        certainty=said.certainty,
        status=SlotStatus.PROPOSED,
    )
    _store_slot(owner, slot)


def _lock_profile(owner: User) -> bool:
    """Lock what is known of a user; False where he wants nothing remembered."""
    ProfileChoice.objects.get_or_create(owner=owner)
    return ProfileChoice.objects.select_for_update().get(owner=owner).enabled


def _list_foreign(turn: Turn) -> list[str]:
    """Texts before the user's eyes that are not his: passages of this answer and the last one."""
    shown = [*turn.doc_refs, *(turn.parent.doc_refs if turn.parent else ())]
    texts = [text for ref in shown for text in ref.get("passages", ())]
    said = turn.parent.assistant_text if turn.parent and turn.parent.doc_refs else ""
    return [*texts, said]


def _apply_extraction(turn: Turn, read: Extraction) -> None:
    owner = turn.chat.owner
    message_id = turn.message.parent_id
    if read.everything:
        forget_everything(owner=owner)
    for wish in read.forgets:
        _forget_by_wish(owner, wish, turn)
    store_statements(owner=owner, statements=read.statements, message_id=message_id, at=turn.ts)


def _forget_by_wish(owner: User, wish: str, turn: Turn) -> None:
    """Forget what a wish names; what is protected is only proposed to be forgotten."""
    packs = get_packs()
    rows = ProfileSlot.objects.owned_by(owner).exclude(status=SlotStatus.PROPOSED)
    known = {str(row.pk): row for row in rows}
    for slot in find_forgotten([row.to_slot() for row in known.values()], wish, packs):
        if not is_protected(slot, packs):
            forget_slot(slot=known[slot.id])
        elif not known[slot.id].proposals.exists():
            _store_slot(
                owner,
                replace(
                    slot,
                    id="",
                    history=(),
                    at=turn.ts,
                    sentence=turn.user_text[:500],
                    source=str(turn.message.parent_id or ""),
                    status=SlotStatus.PROPOSED,
                    replaces=slot.id,
                    effect=Effect.END,
                ),
            )


def store_statements(
    *,
    owner: User,
    statements: Sequence[Statement],
    message_id: UUID | None,
    at: datetime | None = None,
) -> None:
    """Store what statements change of what is known. The caller holds the profile."""
    if not statements:
        return
    rows = ProfileSlot.objects.owned_by(owner)
    slots = [row.to_slot() for row in rows[:MAX_SLOTS]]
    changed = apply_statements(
        slots,
        statements,
        get_packs(),
        at=at or timezone.now(),
        source=str(message_id or ""),
    )
    room = MAX_SLOTS - len(slots)
    for slot in changed:
        room -= not slot.id
        if slot.id or room >= 0:
            _store_slot(owner, slot)
        else:
            logger.warning("profile_full", user_id=owner.pk)


def _store_slot(owner: User, slot: Slot) -> ProfileSlot:
    values: dict[str, Any] = {
        "kind": slot.kind,
        "key": slot.key,
        "value": slot.value,
        "unit": slot.unit,
        "noted_at": slot.at or timezone.now(),
        "message_id": _find_message(slot.source),
        "sentence": slot.sentence,
        "certainty": slot.certainty,
        "status": slot.status.value,
        "history": [dict(entry) for entry in slot.history],
        "replaces_id": slot.replaces or None,
        "effect": slot.effect.value,
    }
    if slot.id:
        ProfileSlot.objects.filter(pk=slot.id, owner=owner).update(**values)
        return ProfileSlot.objects.get(pk=slot.id)
    return ProfileSlot.objects.create(owner=owner, **values)


def _find_message(source: str) -> UUID | None:
    """The message that a slot comes from, if it is still there."""
    if not source:
        return None
    return Message.objects.filter(pk=source).values_list("pk", flat=True).first()


# The owner's own hand


@transaction.atomic
def add_slot(*, owner: User, kind: str, key: str, value: str, unit: str = "") -> ProfileSlot:
    """Keep what the user wrote himself; what was known of the same key goes into its history."""
    _lock_profile(owner)
    fresh = Slot(kind, key, value, unit, at=timezone.now())
    same = ProfileSlot.objects.owned_by(owner).filter(kind=kind, key=key)
    held = same.exclude(status=SlotStatus.PROPOSED).first()
    return _store_slot(owner, change_slot(held.to_slot(), fresh) if held else fresh)


@transaction.atomic
def edit_slot(*, slot: ProfileSlot, changes: dict[str, str]) -> ProfileSlot:
    """Change key, value or unit by the user's own hand; proposals to it are settled."""
    _lock_profile(slot.owner)
    before = _get_held(slot)
    if before.status == SlotStatus.PROPOSED:
        return _accept_proposal(before, changes)
    entry = to_entry(before.to_slot())
    for name, value in changes.items():
        setattr(before, name, value)
    before.history = [*before.history, entry]
    before.noted_at, before.certainty = timezone.now(), 1.0
    before.save()
    before.proposals.all().delete()
    return before


@transaction.atomic
def confirm_slot(*, slot: ProfileSlot, accept: bool) -> ProfileSlot | None:
    """Apply a proposal, or drop it; the slot that holds now, None where none does.

    What is there already is only marked as sure.
    """
    _lock_profile(slot.owner)
    held = _get_held(slot)
    if held.status != SlotStatus.PROPOSED:
        if not accept:
            forget_slot(slot=held)
            return None
        ProfileSlot.objects.filter(pk=held.pk).update(certainty=1.0)
        return held
    if accept:
        return _accept_proposal(held, {})
    target = held.replaces
    held.delete()
    return target


def _get_held(slot: ProfileSlot) -> ProfileSlot:
    """The row as it is now. Raises `NotFound`."""
    rows = ProfileSlot.objects.select_related("owner", "replaces")
    held = rows.filter(pk=slot.pk).first()
    if held is None:
        raise NotFound
    return held


def _accept_proposal(proposal: ProfileSlot, changes: dict[str, str]) -> ProfileSlot:
    """What was proposed holds from now on, with the user's own changes to it."""
    fresh = replace(proposal.to_slot(), certainty=1.0, status=SlotStatus.ACTIVE, replaces="", id="")
    fresh = replace(
        fresh,
        key=changes.get("key", fresh.key),
        value=changes.get("value", fresh.value),
        unit=changes.get("unit", fresh.unit),
    )
    target = proposal.replaces
    proposal.delete()
    if target is None:
        return _store_slot(proposal.owner, fresh)
    known = target.to_slot()
    if Effect(proposal.effect) is Effect.END and not changes:
        known = end_slot(known, at=fresh.at, sentence=fresh.sentence, source=fresh.source)
    else:
        known = change_slot(known, fresh)
    return _store_slot(proposal.owner, known)


# Forgetting


@transaction.atomic
def forget_slot(*, slot: ProfileSlot) -> None:
    """Forget one thing: its row with its history, and its sentences in the turn store."""
    _forget_sentences(slot.owner, _list_sentences([slot, *slot.proposals.all()]))
    slot.delete()


@transaction.atomic
def forget_everything(*, owner: User) -> int:
    """Forget all that is known of the user; how many things."""
    rows = ProfileSlot.objects.owned_by(owner)
    slots = list(rows)
    _forget_sentences(owner, _list_sentences(slots))
    rows.delete()
    return sum(slot.status != SlotStatus.PROPOSED for slot in slots)


def _list_sentences(slots: Iterable[ProfileSlot]) -> list[str]:
    told = [
        sentence
        for slot in slots
        for sentence in (slot.sentence, *(one.get("sentence", "") for one in slot.history))
    ]
    return [one for one in dict.fromkeys(told) if to_letters(one)]


def _forget_sentences(owner: User, sentences: Sequence[str]) -> None:
    """Take sentences out of what conversations remember; the messages stay in their chats.

    What summaries were made of such turns is made anew without them.
    """
    for sentence in sentences:
        told = (
            Q(user_text__contains=sentence)
            | Q(summary__contains=sentence)
            | Q(running_summary__contains=sentence)
            | Q(assistant_text__contains=sentence)
        )
        for turn in (
            Turn.objects.without_search_columns()
            .filter(told, chat__owner=owner)
            .order_by("chat", "number")
        ):
            turn_store.forget_running_summaries(turn)
            answer_cache.forget_answers(Message.objects.filter(turn=turn))
            Turn.objects.filter(pk=turn.pk).update(
                user_text=_redact_sentence(turn.user_text, sentence),
                assistant_text=_redact_sentence(turn.assistant_text, sentence),
                running_summary=_redact_sentence(turn.running_summary, sentence),
                **turn_store.make_unsummarised_fields(),
            )


def _redact_sentence(text: str, sentence: str) -> str:
    return re.sub(re.escape(sentence), REDACTED, text)


def forget_source_chats(chat_ids: Iterable[UUID]) -> None:
    """Of chats that go for good nothing stays but what is known: no sentence of theirs."""
    rows = ProfileSlot.objects.filter(message__chat__in=list(chat_ids))
    for row in rows:
        row.history = [{**one, "sentence": "", "source": ""} for one in row.history]
        row.sentence = ""
        row.save(update_fields=("history", "sentence"))


# For others


def list_slots(owner: User) -> QuerySet[ProfileSlot]:
    """All that is known of the user, with where it comes from."""
    return ProfileSlot.objects.owned_by(owner).select_related("message")


def describe_slot(slot: ProfileSlot) -> dict[str, Any]:
    """A slot as plain JSON: for REST, exports and the page."""
    return {
        "id": slot.pk,
        "kind": slot.kind,
        "key": slot.key,
        "value": slot.value,
        "unit": slot.unit,
        "at": slot.noted_at,
        "status": slot.status,
        "effect": slot.effect,
        "certainty": round(slot.certainty, 3),
        "replaces": slot.replaces_id,
        "source_message_id": slot.message_id,
        "source_chat_id": _find_chat(slot),
        "sentence": slot.sentence,
        "history": slot.history,
    }


def _find_chat(slot: ProfileSlot) -> UUID | None:
    return slot.message.chat_id if slot.message is not None else None


def describe_used_slots(chat: Chat, language: str) -> list[dict[str, Any]]:
    """What a question of this chat may be told of its owner, each with the `title` of its kind."""
    if not uses_memory(chat, None) or not is_memory_on(chat.owner_id):
        return []
    packs = get_packs()
    return [
        {**describe_slot(slot), "title": packs.get_kind_title(slot.kind, language)}
        for slot in list_slots(chat.owner).filter(status=SlotStatus.ACTIVE)
    ]


def describe_profile(owner: User) -> list[dict[str, Any]]:
    """All that is known of the user as plain JSON."""
    return [describe_slot(slot) for slot in list_slots(owner)]


def describe_used_memory(steps: dict[str, Any], owner: User) -> dict[str, Any]:
    """The steps of a trace, with the slots that it used in words: it stores only their ids."""
    used = steps.get("profile", {}).get("slots", [])
    rows = ProfileSlot.objects.owned_by(owner).in_bulk([UUID(pk) for pk in used if pk])
    packs, language = get_packs(), get_reply_language()
    known = [
        {
            "id": pk,
            "title": packs.get_kind_title(rows[UUID(pk)].kind, language),
            "key": packs.get_key_title(rows[UUID(pk)].key, language),
            "value": rows[UUID(pk)].value,
            "unit": rows[UUID(pk)].unit,
        }
        for pk in used
        if pk and UUID(pk) in rows
    ]
    return steps | {"profile": {"slots": used, "known": known}} if used else steps


def get_reply_language() -> str:
    """The language of the page, as the packs name theirs."""
    return "ko" if (get_language() or "ko").startswith("ko") else "en"
