"""Turns of conversations with what they are: own dialogues, and questions of the data sets.

Own dialogues lie in `tests/data/turns_*.jsonl`; every third is never looked at while rules are
made. Documents are called by their titles, and by `key` where only their names matter.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from rag.config import MemoryRules, RagConfig
from rag.conversation import (
    Conversation,
    DocRef,
    Memory,
    MemoryHistory,
    PastTurn,
    Question,
    RememberedDocument,
)
from rag.types import QuestionType, Scope, ScopeReason
from rag.understand.analysis import QuestionAnalysis, analyse_by_rules
from tests.quality import sets

OWN = Path(__file__).parents[1] / "data"
LANGUAGES = ("ko", "en")
NO_HISTORY = MemoryHistory()


@dataclass(frozen=True, slots=True)
class Said:
    """A message, what was said before it, and what it is. `documents`: titles of the right ones."""

    text: str
    before: Conversation
    kind: QuestionType
    follows: bool
    documents: tuple[str, ...] = ()
    unseen: bool = False
    dialogue: str = ""
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Judged:
    """A message and what was decided of it."""

    said: Said
    analysis: QuestionAnalysis


def key(title: str) -> UUID:
    """A document's id where only its name matters."""
    return uuid5(NAMESPACE_URL, title)


def own(language: str) -> list[Said]:
    """The dialogues of this project in "ko" or "en", turn by turn."""
    lines = (OWN / f"turns_{language}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    dialogues = groupby(rows, key=lambda row: str(row["dialogue"]))
    return [said for _, turns in dialogues for said in _dialogue(list(turns))]


def after(conversation: Conversation, said: Said) -> Conversation:
    """The conversation once the message is answered from its documents."""
    number = conversation.total + 1
    refs = tuple(DocRef(at, key(name), name, name) for at, name in enumerate(said.documents, 1))
    turn = PastTurn(number, said.text, said.answer, said.kind.value, doc_refs=refs)
    documents = tuple(RememberedDocument(ref.document_id, ref.title, 1.0) for ref in refs)
    kept = () if said.kind is QuestionType.RESET else documents or conversation.memory.documents
    memory = Memory(kept, said.text, said.answer, said.kind)
    shown = None if said.kind is QuestionType.RESET else turn if refs else conversation.shown_turn
    return Conversation((*conversation.turns, turn), number, memory, shown)


def alone_in_conversation() -> list[Said]:
    """Questions of korquad1_dev, each after one on another article: none follows."""
    made = sets.load("korquad1_dev")
    questions = [(one.text, made.units[min(one.relevant)]) for one in made.questions]
    found = []
    for at, (text, unit) in enumerate(questions):
        earlier, other = questions[(at + len(questions) // 2) % len(questions)]
        if other.document == unit.document:
            continue
        before = _answered(earlier, other.text[:200], other.document)
        found.append(Said(text, before, QuestionType.SINGLE, False, (unit.document,)))  # noqa: FBT003
    return found


def chatting() -> list[Said]:
    """Utterances of ko_smalltalk, each after a question on a document: none follows."""
    made = sets.load("kr_law")
    questions = [(one.text, made.units[min(one.relevant)]) for one in made.questions]
    found = []
    for at, text in enumerate(sets.smalltalk()):
        earlier, unit = questions[at % len(questions)]
        before = _answered(earlier, unit.text[:200], unit.title)
        found.append(Said(text, before, QuestionType.SMALLTALK, follows=False))
    return found


def later_turns() -> list[Said]:
    """The last turns of mtrag/un that are not the first; most of them follow."""
    found = []
    for task in _tasks():
        messages: Sequence[Any] = task["input"]
        if len(messages) < 2:
            continue
        before = Conversation()
        for asked, said in zip(messages[:-1:2], messages[1:-1:2], strict=False):
            turn = Said(asked["text"], before, QuestionType.SINGLE, False, (), answer=said["text"])  # noqa: FBT003
            before = after(before, turn)
        text = messages[-1]["text"]
        found.append(Said(text, before, QuestionType.FOLLOWUP, True, dialogue=task["task_id"]))  # noqa: FBT003
    return found


def judge(said: Iterable[Said], rules: MemoryRules) -> list[Judged]:
    """What is decided of every message, by its words alone."""
    config, nowhere = RagConfig(memory=rules), Scope((), ScopeReason.ALL)
    return [
        Judged(one, analyse_by_rules(Question(one.text, nowhere, one.before), NO_HISTORY, config))
        for one in said
    ]


def macro_f1(pairs: Iterable[tuple[object, object]]) -> float:
    """The mean F1 over the classes, of pairs of what is and what was told."""
    right: dict[object, int] = defaultdict(int)
    told: dict[object, int] = defaultdict(int)
    are: dict[object, int] = defaultdict(int)
    for is_, said in pairs:
        are[is_] += 1
        told[said] += 1
        right[is_] += is_ == said
    classes = are.keys() | told.keys()
    return sum(2 * right[name] / (are[name] + told[name]) for name in classes) / len(classes)


def follow_f1(judged: Iterable[Judged]) -> float:
    """Macro-F1 of follow-up or not."""
    return macro_f1((one.said.follows, one.analysis.follows) for one in judged)


def kinds_f1(judged: Iterable[Judged]) -> float:
    """Macro-F1 over all kinds."""
    return macro_f1((one.said.kind, one.analysis.question_type) for one in judged)


def _dialogue(rows: Sequence[Any]) -> Iterator[Said]:
    before = Conversation()
    for row in rows:
        said = Said(
            text=row["user"],
            before=before,
            kind=QuestionType(row["type"]),
            follows=row["follows"],
            documents=tuple(row["documents"]),
            unseen=row["unseen"],
            dialogue=row["dialogue"],
            answer=row["assistant"],
        )
        yield said
        before = after(before, said)


def _answered(question: str, answer: str, title: str) -> Conversation:
    said = Said(question, Conversation(), QuestionType.SINGLE, False, (title,), answer=answer)  # noqa: FBT003
    return after(said.before, said)


def _tasks() -> list[dict[str, Any]]:
    lines = (sets.DATA / "mtrag/un/tasks.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line]
