"""A user's profile memory: extracted from turns, and confirmed, edited and forgotten by the user.

The engine extracts statements from a turn and decides how they change the memory (`rag.memory`).
This module stores the result, once per turn, under the user's lock.
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
"""Slots per user; statements beyond that are not stored."""
REDACTED = "…"
"""Replaces a forgotten sentence in the turn store."""


def get_packs() -> Packs:
    """The memory packs of this installation."""
    return load_packs(settings.RAG.profile.packs)


def is_memory_on(user_id: int) -> bool:
    """Whether the user has memory switched on."""
    return not ProfileChoice.objects.filter(owner_id=user_id, enabled=False).exists()


def switch_memory(*, owner: User, enabled: bool) -> None:
    """Switch a user's memory on or off; what is stored stays."""
    ProfileChoice.objects.update_or_create(owner=owner, defaults={"enabled": enabled})


_slots_of = KeptQuery(
    lambda owners: ProfileSlot.objects.extra(where=["owner_id = ANY(%s)"], params=[owners]), KEYS
)


def load_profiles(
    answers: Collection[Message], known_owners: Collection[int]
) -> dict[UUID, tuple[Slot, ...]]:
    """The slots to use for each of these answers, by the answer's id.

    An answer that is missing from the result neither uses nor adds to memory. The chats' owners
    should be loaded with their `profile_choice`; `known_owners` are owners that have any slots.
    """
    owners = {
        answer.pk: answer.chat.owner_id
        for answer in answers
        if uses_memory(answer.chat, answer.scope) and _wants_memory(answer.chat.owner)
    }
    slots: dict[int, list[Slot]] = {owner_id: [] for owner_id in owners.values()}
    owner_ids = [owner_id for owner_id in slots if owner_id in known_owners]
    for row in _slots_of.fetch(owner_ids) if owner_ids else ():
        slots[row.owner_id].append(row.to_slot())
    return {pk: tuple(slots[owner_id]) for pk, owner_id in owners.items()}


def _wants_memory(user: User) -> bool:
    try:
        return user.profile_choice.enabled
    except ProfileChoice.DoesNotExist:
        return True


def uses_memory(chat: Chat, scope: dict[str, Any] | None) -> bool:
    """Whether questions of this chat use the user's memory and add to it."""
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
    return extract_statements(turn.user_text, get_packs(), foreign=_list_quoted_texts(turn))


def find_text_for_model(turn_id: UUID) -> tuple[str, list[str]] | None:
    """A turn's message for a model to read, and the quoted texts in it that are not the user's.

    None if the rules found something: they are more reliable than the model.
    """
    rows = Turn.objects.without_search_columns().select_related(
        "chat__owner", "message__parent", "parent"
    )
    turn = rows.filter(pk=turn_id).first()
    if turn is None or not uses_memory(turn.chat, turn.message.scope):
        return None
    if ProfileChoice.objects.filter(owner=turn.chat.owner, enabled=False).exists():
        return None
    extraction = extract_from_turn(turn)
    has_statements = any(not statement.known_only for statement in extraction.statements)
    is_understood = (
        has_statements or extraction.forgets or extraction.forgets_everything or extraction.wish
    )
    return None if is_understood else (turn.user_text, _list_quoted_texts(turn))


def store_model_statements(turn_id: UUID, statements: Sequence[Statement]) -> None:
    """Store what a model extracted from a turn; protected kinds only as proposals."""
    with transaction.atomic():
        rows = Turn.objects.without_search_columns().select_related("chat__owner", "message")
        turn = rows.filter(pk=turn_id).first()
        if turn is None or not uses_memory(turn.chat, turn.message.scope):
            return
        owner = turn.chat.owner
        if not _lock_profile(owner):
            return
        packs, source = get_packs(), turn.message.parent_id
        protected = [
            statement
            for statement in statements
            if packs.kinds[statement.kind].policy is Policy.PROTECTED
        ]
        others = [statement for statement in statements if statement not in protected]
        store_statements(owner=owner, statements=others, message_id=source, at=turn.ts)
        for statement in protected:
            _propose_statement(owner, statement, at=turn.ts, source=str(source or ""))


def _propose_statement(owner: User, statement: Statement, *, at: datetime, source: str) -> None:
    """Store a statement as a proposal, unless its key is known or proposed already."""
    for row in ProfileSlot.objects.owned_by(owner).filter(kind=statement.kind):
        if is_same_key(row.key, statement.key):
            return
    slot = Slot(
        statement.kind,
        statement.key,
        statement.value,
        statement.unit,
        at=at,
        source=source,
        sentence=statement.sentence,
        certainty=statement.certainty,
        status=SlotStatus.PROPOSED,
    )
    _store_slot(owner, slot)


def _lock_profile(owner: User) -> bool:
    """Lock a user's memory; False if it is switched off."""
    ProfileChoice.objects.get_or_create(owner=owner)
    return ProfileChoice.objects.select_for_update().get(owner=owner).enabled


def _list_quoted_texts(turn: Turn) -> list[str]:
    """Texts the user may be quoting: passages of this answer and the last one."""
    references = [*turn.doc_refs, *(turn.parent.doc_refs if turn.parent else ())]
    texts = [text for ref in references for text in ref.get("passages", ())]
    answer = turn.parent.assistant_text if turn.parent and turn.parent.doc_refs else ""
    return [*texts, answer]


def _apply_extraction(turn: Turn, extraction: Extraction) -> None:
    owner = turn.chat.owner
    message_id = turn.message.parent_id
    if extraction.forgets_everything:
        forget_everything(owner=owner)
    for wish in extraction.forgets:
        _forget_by_wish(owner, wish, turn)
    store_statements(
        owner=owner, statements=extraction.statements, message_id=message_id, at=turn.ts
    )


def _forget_by_wish(owner: User, wish: str, turn: Turn) -> None:
    """Forget the slots that a wish names; for protected ones only propose it."""
    packs = get_packs()
    rows = ProfileSlot.objects.owned_by(owner).exclude(status=SlotStatus.PROPOSED)
    by_id = {str(row.pk): row for row in rows}
    for slot in find_forgotten([row.to_slot() for row in by_id.values()], wish, packs):
        if not is_protected(slot, packs):
            forget_slot(slot=by_id[slot.id])
        elif not by_id[slot.id].proposals.exists():
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
    """Apply statements to the user's slots. The caller holds the profile lock."""
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
    free = MAX_SLOTS - len(slots)
    for slot in changed:
        free -= not slot.id
        if slot.id or free >= 0:
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


# Changes by the user


@transaction.atomic
def add_slot(*, owner: User, kind: str, key: str, value: str, unit: str = "") -> ProfileSlot:
    """Store a slot entered by the user; an existing one with the same key becomes its history."""
    _lock_profile(owner)
    new_slot = Slot(kind, key, value, unit, at=timezone.now())
    rows = ProfileSlot.objects.owned_by(owner).filter(kind=kind, key=key)
    existing = rows.exclude(status=SlotStatus.PROPOSED).first()
    return _store_slot(owner, change_slot(existing.to_slot(), new_slot) if existing else new_slot)


@transaction.atomic
def edit_slot(*, slot: ProfileSlot, changes: dict[str, str]) -> ProfileSlot:
    """Change key, value or unit as the user says; proposals for the slot are dropped."""
    _lock_profile(slot.owner)
    row = _reload_slot(slot)
    if row.status == SlotStatus.PROPOSED:
        return _accept_proposal(row, changes)
    entry = to_entry(row.to_slot())
    for name, value in changes.items():
        setattr(row, name, value)
    row.history = [*row.history, entry]
    row.noted_at, row.certainty = timezone.now(), 1.0
    row.save()
    row.proposals.all().delete()
    return row


@transaction.atomic
def confirm_slot(*, slot: ProfileSlot, accept: bool) -> ProfileSlot | None:
    """Apply or drop a proposal; returns the slot now in force, or None.

    A slot that is no proposal is only marked as certain.
    """
    _lock_profile(slot.owner)
    row = _reload_slot(slot)
    if row.status != SlotStatus.PROPOSED:
        if not accept:
            forget_slot(slot=row)
            return None
        ProfileSlot.objects.filter(pk=row.pk).update(certainty=1.0)
        return row
    if accept:
        return _accept_proposal(row, {})
    target = row.replaces
    row.delete()
    return target


def _reload_slot(slot: ProfileSlot) -> ProfileSlot:
    """The row's current state. Raises `NotFound`."""
    rows = ProfileSlot.objects.select_related("owner", "replaces")
    row = rows.filter(pk=slot.pk).first()
    if row is None:
        raise NotFound
    return row


def _accept_proposal(proposal: ProfileSlot, changes: dict[str, str]) -> ProfileSlot:
    """Apply a proposal with the user's changes."""
    new_slot = replace(
        proposal.to_slot(), certainty=1.0, status=SlotStatus.ACTIVE, replaces="", id=""
    )
    new_slot = replace(
        new_slot,
        key=changes.get("key", new_slot.key),
        value=changes.get("value", new_slot.value),
        unit=changes.get("unit", new_slot.unit),
    )
    target = proposal.replaces
    proposal.delete()
    if target is None:
        return _store_slot(proposal.owner, new_slot)
    updated = target.to_slot()
    if Effect(proposal.effect) is Effect.END and not changes:
        updated = end_slot(
            updated, at=new_slot.at, sentence=new_slot.sentence, source=new_slot.source
        )
    else:
        updated = change_slot(updated, new_slot)
    return _store_slot(proposal.owner, updated)


# Forgetting


@transaction.atomic
def forget_slot(*, slot: ProfileSlot) -> None:
    """Forget one slot: its row with its history, and its sentences in the turn store."""
    _forget_sentences(slot.owner, _list_sentences([slot, *slot.proposals.all()]))
    slot.delete()


@transaction.atomic
def forget_everything(*, owner: User) -> int:
    """Forget all slots of the user; how many."""
    rows = ProfileSlot.objects.owned_by(owner)
    slots = list(rows)
    _forget_sentences(owner, _list_sentences(slots))
    rows.delete()
    return sum(slot.status != SlotStatus.PROPOSED for slot in slots)


def _list_sentences(slots: Iterable[ProfileSlot]) -> list[str]:
    sentences = [
        sentence
        for slot in slots
        for sentence in (slot.sentence, *(one.get("sentence", "") for one in slot.history))
    ]
    return [one for one in dict.fromkeys(sentences) if to_letters(one)]


def _forget_sentences(owner: User, sentences: Sequence[str]) -> None:
    """Redact sentences in the turn store; the messages stay in their chats.

    Summaries of the affected turns are written again without them.
    """
    for sentence in sentences:
        condition = (
            Q(user_text__contains=sentence)
            | Q(summary__contains=sentence)
            | Q(running_summary__contains=sentence)
            | Q(assistant_text__contains=sentence)
        )
        for turn in (
            Turn.objects.without_search_columns()
            .filter(condition, chat__owner=owner)
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
    """Remove sentences and sources of chats being purged from slots; the slots stay."""
    rows = ProfileSlot.objects.filter(message__chat__in=list(chat_ids))
    for row in rows:
        row.history = [{**entry, "sentence": "", "source": ""} for entry in row.history]
        row.sentence = ""
        row.save(update_fields=("history", "sentence"))


# Reading


def list_slots(owner: User) -> QuerySet[ProfileSlot]:
    """All slots of the user, with their source messages."""
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
    """The slots that questions of this chat use, each with the `title` of its kind."""
    if not uses_memory(chat, None) or not is_memory_on(chat.owner_id):
        return []
    packs = get_packs()
    return [
        {**describe_slot(slot), "title": packs.get_kind_title(slot.kind, language)}
        for slot in list_slots(chat.owner).filter(status=SlotStatus.ACTIVE)
    ]


def describe_profile(owner: User) -> list[dict[str, Any]]:
    """All slots of the user as plain JSON."""
    return [describe_slot(slot) for slot in list_slots(owner)]


def describe_used_memory(steps: dict[str, Any], owner: User) -> dict[str, Any]:
    """The steps of a trace with the slots it used described; it stores only their ids."""
    used = steps.get("profile", {}).get("slots", [])
    rows = ProfileSlot.objects.owned_by(owner).in_bulk([UUID(pk) for pk in used if pk])
    packs, language = get_packs(), get_page_language()
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


def get_page_language() -> str:
    """The language of the page as memory packs name it: `ko` or `en`."""
    return "ko" if (get_language() or "ko").startswith("ko") else "en"
