"""Answers the questions of an evaluation set as if a user had asked them, over their documents.

They go through the engine as in an answers worker, with the user's stores, scope rules and
conversation; the queue, leases and run log are left out. Nothing is stored: no chat, message or
turn, and no quota is used. Turns of a conversation are held in memory, as the turn store would.
"""

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.contrib.auth.models import User
from django.utils import timezone

from chats.history import to_references
from chats.models import EvaluationCase, Feedback, Message
from chats.runs import log
from chats.serializers import to_sources_json
from chats.services import turn_store
from chats.services.turn_store import AnswerOutcome
from chats.services.turns import clean_content
from documents import spaces
from documents.models import Document
from documents.search.store import ReleasingStore, ScopedStore
from jobs.connections import in_database
from rag.config import RagConfig
from rag.conversation import (
    Conversation,
    Memory,
    MemoryHistory,
    PastTurn,
    Question,
    RememberedDocument,
    RunningSummary,
)
from rag.errors import NuraError
from rag.evaluation.measures import AnsweredTurn, Recorder
from rag.evaluation.question_set import QuestionLine
from rag.events import Delta, Event, Finished, Replaced, SourcesFound
from rag.factory import Engine, get_light_model, get_main_model
from rag.memory.extract import extract_statements
from rag.memory.profile import Slot, apply_statements, load_packs
from rag.memory.summary import list_turns_to_fold
from rag.pipeline import FIXED_MODEL, OFFLINE_MODEL
from rag.types import QuestionType, Scope, ScopeReason

logger = structlog.get_logger()

INDEX_SETTINGS = ("chunk_", "embedding_", "vision", "user_dictionary")
"""Prefixes of settings that affect how documents are indexed."""
_SECRET_NAME = re.compile(r"(?:KEY|PASSWORD|SECRET|TOKEN)$", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"://[^/\s]*@|\bsk-")
"""A URL with credentials, a key of a provider."""


class SettingRefused(ValueError):
    """A setting cannot be compared; the message says why."""


class DocumentUnknown(ValueError):
    """A line names a document that its user does not have, or has more than once."""


@dataclass(slots=True)
class Configuration:
    """A set of settings to evaluate, with its display name."""

    name: str
    rag: RagConfig
    recorder: Recorder = field(default_factory=Recorder)
    engine: Engine = field(init=False)

    def __post_init__(self) -> None:
        main, light = get_main_model(self.rag.llm), get_light_model(self.rag.light_llm)
        self.engine = Engine(
            self.rag,
            llm=self.recorder.wrap(main) if main else None,
            light=replace(light, llm=self.recorder.wrap(light.llm)) if light else None,
        )

    @property
    def model(self) -> str:
        """The name of the language model that writes the answers; "" where there is none."""
        return self.rag.llm.model if self.rag.llm else ""


@dataclass(frozen=True, slots=True)
class AskableDocuments:
    """A user's indexed documents: their ids by name and by id."""

    ids: tuple[UUID, ...]
    by_name: Mapping[str, tuple[UUID, ...]]

    @classmethod
    def from_user(cls, user: User) -> "AskableDocuments":
        """The user's documents, oldest first."""
        rows = Document.objects.visible_to(user).searchable().order_by("created_at", "id")
        names: dict[str, tuple[UUID, ...]] = {}
        for pk, name in (pairs := list(rows.values_list("pk", "name"))):
            names[name] = (*names.get(name, ()), pk)
            names[str(pk)] = (pk,)
        return cls(tuple(pk for pk, _ in pairs), names)

    def find_ids(self, line: QuestionLine) -> tuple[UUID, ...]:
        """The documents that a line names. Raises `DocumentUnknown`."""
        matches = {name: self.by_name.get(name, ()) for name in line.documents}
        for name, ids in matches.items():
            if len(ids) != 1:
                problem = "there are several; give its id" if ids else "there is no such document"
                raise DocumentUnknown(f"{line.id}: {name}: {problem}")
        return tuple(ids[0] for ids in matches.values())


def make_current_configuration() -> Configuration:
    """The current configuration."""
    return Configuration("", spaces.get_space_in_use().config)


def make_changed_configuration(changes: Sequence[str]) -> Configuration:
    """The configuration with `NAME=VALUE` in the environment.

    Raises `SettingRefused` if that changes nothing, or affects the index; `ImproperlyConfigured`
    for an invalid value.
    """
    pairs = {}
    for change in changes:
        name, equals, value = change.partition("=")
        if not (equals and name):
            raise SettingRefused("takes NAME=VALUE")
        pairs[name] = value
    with _set_environment(pairs):
        changed: RagConfig = settings.BUILD_RAG()
    changed_names = [
        name
        for name, value in _to_fields(changed).items()
        if value != _to_fields(settings.RAG)[name]
    ]
    if not changed_names:
        raise SettingRefused(f"{', '.join(pairs)}: this changes nothing of how answers are made")
    if index_settings := [name for name in changed_names if name.startswith(INDEX_SETTINGS)]:
        raise SettingRefused(
            f"{', '.join(index_settings)}: decides what is stored of documents; "
            "index them anew and evaluate again"
        )
    current = spaces.get_space_in_use().config
    values = {name: getattr(changed, name) for name in changed_names}
    return Configuration(", ".join(map(_show_change, pairs.items())), replace(current, **values))


def _show_change(change: tuple[str, str]) -> str:
    """The setting for display, without a secret value."""
    name, value = change
    is_secret = _SECRET_NAME.search(name) or _SECRET_VALUE.search(value)
    return f"{name}=…" if is_secret else f"{name}={value}"


def _to_fields(config: RagConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in RagConfig.__dataclass_fields__}


@contextmanager
def _set_environment(pairs: Mapping[str, str]) -> Iterator[None]:
    old_values = {name: os.environ.get(name) for name in pairs}
    os.environ.update(pairs)
    try:
        yield
    finally:
        for name, value in old_values.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


async def answer_line(
    configuration: Configuration, line: QuestionLine, askable: AskableDocuments
) -> list[AnsweredTurn]:
    """The turns of a line, asked one after the other in a new conversation."""
    selected = Scope(askable.find_ids(line), ScopeReason.EXPLICIT)
    all_documents = Scope(askable.ids, ScopeReason.ALL)
    profile = _read_profile(line.known, configuration.rag.profile.packs)
    conversation = _EvaluatedConversation(configuration, askable.ids, profile=profile)
    # without memory, the question itself says what is known
    introduction = "" if profile else " ".join(line.known)
    return [
        await conversation.ask(
            f"{introduction} {expected.user}" if introduction and not number else expected.user,
            selected if expected.is_ticked else all_documents,
        )
        for number, expected in enumerate(line.turns)
    ]


def _read_profile(known: Sequence[str], packs: tuple[str, ...]) -> tuple[Slot, ...]:
    """The memory of a user who said these texts, each in a conversation of its own."""
    slots: dict[str, Slot] = {}
    kinds = load_packs(packs)
    for number, text in enumerate(known):
        statements = extract_statements(text, kinds).statements
        for slot in apply_statements([*slots.values()], statements, kinds, at=timezone.now()):
            name = slot.id or f"{number}.{len(slots)}"
            slots[name] = replace(slot, id=name)
    return tuple(slots.values())


@dataclass(slots=True)
class _EvaluatedConversation:
    """A conversation held in memory."""

    configuration: Configuration
    readable: tuple[UUID, ...]
    turns: tuple[PastTurn, ...] = ()
    shown: PastTurn | None = None
    memory: Memory = field(default_factory=Memory)
    running: RunningSummary | None = None
    profile: tuple[Slot, ...] = ()

    async def ask(self, text: str, scope: Scope) -> AnsweredTurn:
        """Answer from the documents of the scope, and remember the turn."""
        await self._note_last_turn()
        recorder = _AnswerRecorder(self.configuration.recorder)
        try:
            await self._stream_answer(text, scope, recorder)
        except NuraError as error:
            recorder.error = error.code
        except Exception:  # a failed answer counts in the results; it does not end the set
            logger.exception("evaluated_answer_failed")
            recorder.error = NuraError.code
        answer = recorder.to_answered_turn()
        await in_database(self._remember_turn, text, recorder)
        return answer

    async def _stream_answer(self, text: str, scope: Scope, recorder: "_AnswerRecorder") -> None:
        versions = await in_database(self._find_versions)
        question = Question(
            text=clean_content(text),
            scope=scope,
            conversation=Conversation(
                turns=self.turns,
                total=len(self.turns),
                memory=self.memory,
                shown_turn=self.shown,
                summary=self.running,
                readable=versions,
            ),
            profile=self.profile or None,
        )
        document_ids = dict.fromkeys((*scope.document_ids, *versions))
        space = (await in_database(spaces.get_space_in_use)).space
        store = ReleasingStore(ScopedStore(tuple(document_ids), space=space))
        events = self.configuration.engine.answer(question, store, MemoryHistory(self.turns))
        async with aclosing(events):
            async for event in events:
                recorder.add_event(event)

    def _find_versions(self) -> dict[UUID, int]:
        """The documents of earlier turns that can still be read, and their versions."""
        document_ids = {ref.document_id for turn in self.turns for ref in turn.doc_refs}
        rows = Document.objects.searchable().filter(pk__in=document_ids & {*self.readable})
        return dict(rows.values_list("pk", "version"))

    def _remember_turn(self, text: str, recorder: "_AnswerRecorder") -> None:
        outcome = recorder.to_outcome()
        rows = turn_store.list_references(outcome)
        refs = to_references(rows)
        turn = PastTurn(
            number=len(self.turns) + 1,
            user_text=text,
            assistant_text=outcome.content,
            question_type=outcome.question_type,
            mode=outcome.mode,
            doc_refs=refs,
            candidates=to_references(outcome.candidates),
            view=recorder.finished.view if recorder.finished else None,
        )
        self.turns = (*self.turns, turn)
        documents = tuple(
            RememberedDocument(UUID(row["document_id"]), row["title"], row["score"])
            for row in turn_store.list_remembered(rows, outcome)
        )
        if refs:
            self.shown = turn
        elif outcome.forgets:
            self.shown = None
        if not documents and not outcome.forgets:
            documents = self.memory.documents
        kind = outcome.question_type
        last_type = QuestionType(kind) if kind in set(QuestionType) else None
        self.memory = Memory(documents, text, outcome.content, last_type)

    async def _note_last_turn(self) -> None:
        """Summarise the last turn, as the worker does before the next question."""
        if not self.turns:
            return
        *others, last = self.turns
        numbers = list_turns_to_fold(
            last.number, self.running, pairs=self.configuration.rag.history_pairs
        )
        earlier = [turn for turn in others if turn.number in numbers]
        result = await self.configuration.engine.note_turn(last, earlier, self.running)
        self.turns = (*others, replace(last, summary=result.summary))
        self.running = result.running


@dataclass(slots=True)
class _AnswerRecorder:
    """Collects the events of an answer while it is made."""

    recorder: Recorder
    text: str = ""
    retrieved: SourcesFound | None = None
    finished: Finished | None = None
    error: str = ""
    calls_before_first_word: int | None = None
    first_word_ms: float | None = None
    started_at: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.recorder.calls.clear()

    def add_event(self, event: Event) -> None:
        """Record what an event adds to the answer."""
        match event:
            case Delta():
                if self.first_word_ms is None:
                    self.first_word_ms = self._measure_milliseconds()
                    self.calls_before_first_word = len(self.recorder.calls)
                self.text += event.text
            case Replaced():
                self.text = event.text
            case SourcesFound():
                self.retrieved = event
            case Finished():
                self.finished = event

    def to_answered_turn(self) -> AnsweredTurn:
        """The answer as it is measured."""
        finished, calls = self.finished, tuple(self.recorder.calls)
        calls_before = self.calls_before_first_word
        trace: Mapping[str, Any] = finished.trace if finished else {}
        prompt = trace.get("prompt", {})
        writer = prompt.get("model")
        return AnsweredTurn(
            content=self.text,
            mode=str(finished.mode) if finished else "",
            label=(finished.label or "") if finished else "",
            model=None if writer in {OFFLINE_MODEL, FIXED_MODEL} else writer,
            sources=(finished.sources or ()) if finished else (),
            evidence=self.retrieved.sources if self.retrieved else (),
            checks=finished.checks if finished else (),
            calls=calls,
            calls_before_first_word=len(calls) if calls_before is None else calls_before,
            prompt_characters=prompt,
            first_word_ms=self.first_word_ms,
            total_ms=self._measure_milliseconds(),
            error=self.error,
        )

    def to_outcome(self) -> AnswerOutcome:
        """The answer as the turn store records it."""
        finished, retrieved = self.finished, self.retrieved
        if finished is None:
            return AnswerOutcome(status=Message.Status.FAILED, content=self.text)
        return AnswerOutcome(
            status=Message.Status.COMPLETED,
            content=self.text,
            mode=finished.mode,
            question_type=finished.question_type,
            label=finished.label or "",
            relevant_document_ids=finished.relevant_document_ids,
            sources=to_sources_json(finished.sources or ()) or None,
            passages={source.chunk_id: source.text for source in retrieved.sources}
            if retrieved
            else {},
            method=retrieved.method if retrieved else "",
            candidates=_to_plain(finished.candidates),
            trace=finished.trace,
        )

    def _measure_milliseconds(self) -> float:
        return round((time.perf_counter() - self.started_at) * 1000, 2)


def _to_plain(items: Iterable[Any]) -> list[dict[str, Any]]:
    return log.to_plain([asdict(item) for item in items])  # type: ignore[no-any-return]


def list_feedback_lines(user: User) -> Iterator[dict[str, Any]]:
    """A line for each answer that the user rated unhelpful, oldest first.

    Earlier questions of the branch are included; the facts are left for people to fill in. Answers
    whose named documents were all unreadable are left out: a set cannot express that.
    """
    rows = Feedback.objects.filter(
        user=user, value=-1, message__in=Message.objects.visible_to(user)
    ).select_related("message")
    for verdict in rows.order_by("updated_at", "pk"):
        annotations = {"reason": verdict.reason, "answer": verdict.message.content}
        line = _make_line(verdict.message, annotations)
        if line is not None:
            yield line


def list_case_lines() -> Iterator[dict[str, Any]]:
    """A line for each answer that an administrator made a case, with its facts."""
    for case in EvaluationCase.objects.select_related("message").iterator(chunk_size=100):
        line = _make_line(case.message, {"gold": case.facts, "answerable": case.answerable})
        if line is not None:
            yield line


def _make_line(answer: Message, annotations: Mapping[str, Any]) -> dict[str, Any] | None:
    """The questions up to an answer, with `annotations` of the last one."""
    turns: list[dict[str, Any]] = [
        {"user": text, "gold": [], "answerable": None} for text in list_questions_before(answer)
    ]
    scope = answer.scope or {}
    is_narrowed = scope.get("reason") in {ScopeReason.EXPLICIT, ScopeReason.CHAT}
    if not turns or (is_narrowed and not scope["document_ids"]):
        return None
    documents = {"documents": scope["document_ids"]} if is_narrowed else {}
    return {"id": str(answer.pk), **documents, "turns": [*turns[:-1], {**turns[-1], **annotations}]}


def list_questions_before(answer: Message) -> list[str]:
    """The user's messages in the branch up to an answer, oldest first."""
    messages = {message.pk: message for message in Message.objects.filter(chat_id=answer.chat_id)}
    questions: list[str] = []
    current: Message | None = answer
    while current is not None:
        if current.role == Message.Role.USER:
            questions.append(current.content)
        current = messages.get(current.parent_id) if current.parent_id else None
    return questions[::-1]
