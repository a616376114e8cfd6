"""Questions in their conversations: what was said before, and which units are right.

mtrag has conversations with (un) and without (human) the agent's replies. The Korean ones are our
own, `tests/data/followups_ko.jsonl`: an article of a law or a section of a manual, then elliptical
questions on others of the same; an answer is the beginning of the right unit, as it would be shown.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.quality import sets
from tests.quality.sets import QuestionSet

OWN = Path(__file__).parents[2] / "tests" / "data" / "followups_ko.jsonl"
NAMES = ("mtrag_un", "mtrag_human", "kr_law", "ko_docs")


@dataclass(frozen=True, slots=True)
class Before:
    """An earlier question, the reply to it, and the units that it showed."""

    question: str
    reply: str = ""
    shown: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Message:
    """A question in its conversation.

    `part` is the half of the conversations that it belongs to: weights were chosen on "A" and
    "seen". `rewritten` is what people made of it to stand alone; empty: not known.
    """

    text: str
    before: tuple[Before, ...]
    relevant: frozenset[int]
    part: str
    rewritten: str = ""


def messages(made: QuestionSet) -> list[Message]:
    """All messages of the conversations over a set, one of `NAMES`."""
    loaders = {"mtrag_un": _un, "mtrag_human": _human}
    return list(loaders.get(made.name, _own)(made))


def _un(made: QuestionSet) -> Iterator[Message]:
    right = _right(made, "un")
    for row in sets.rows("mtrag/un/tasks.jsonl"):
        if row["task_id"] in right:
            said = row["input"]
            yield Message(
                text=said[-1]["text"],
                before=_turns(said[:-1]),
                relevant=right[row["task_id"]],
                part=_half(row["conversation_id"]),
            )


def _turns(said: list[Mapping[str, str]]) -> tuple[Before, ...]:
    found: list[Before] = []
    for message in said:
        if message["speaker"] == "user" or not found:
            found.append(Before(message["text"]))
        else:
            asked = found.pop()
            found.append(Before(asked.question, f"{asked.reply}\n{message['text']}".strip()))
    return tuple(found)


def _human(made: QuestionSet) -> Iterator[Message]:
    right = _right(made, "human")
    rewritten = {row["_id"]: _bare(row["text"]) for row in _parts("rewrite")}
    for row in _parts("questions"):
        if row["_id"] in right:
            asked = [text.strip() for text in f"\n{row['text']}".split("\n|user|:")[1:]]
            yield Message(
                text=asked[-1],
                before=tuple(Before(text) for text in asked[:-1]),
                relevant=right[row["_id"]],
                part=_half(row["_id"].partition("<")[0]),
                rewritten=rewritten[row["_id"]],
            )


def _own(made: QuestionSet) -> Iterator[Message]:
    right = {one.text: one.relevant for one in made.questions}
    for line in OWN.read_text(encoding="utf-8").splitlines():
        dialogue = json.loads(line)
        if dialogue["set"] != made.name:
            continue
        before: tuple[Before, ...] = ()
        part = "unseen" if dialogue["unseen"] else "seen"
        for turn in dialogue["turns"]:
            relevant = frozenset(place for name in turn["right"] for place in right[name])
            yield Message(turn["text"], before, relevant, part)
            before = (*before, Before(turn["text"], shown=frozenset([min(relevant)])))


def _right(made: QuestionSet, part: str) -> dict[str, frozenset[int]]:
    places = {unit.document: place for place, unit in enumerate(made.units)}
    found: dict[str, set[int]] = {}
    for path in sorted((sets.DATA / "mtrag" / part).rglob("*.tsv")):
        for line in path.read_text(encoding="utf-8").splitlines()[1:]:
            asked, passage, _ = line.split("\t")
            found.setdefault(asked, set()).add(places[passage])
    return {asked: frozenset(units) for asked, units in found.items()}


def _parts(kind: str) -> Iterator[dict[str, Any]]:
    for path in sorted((sets.DATA / "mtrag" / "human").glob(f"*/*_{kind}.jsonl")):
        yield from sets.rows(str(path.relative_to(sets.DATA)))


def _bare(text: str) -> str:
    return text.removeprefix("|user|:").strip()


def _half(conversation: str) -> str:
    return "AB"[int(hashlib.sha256(conversation.encode()).hexdigest(), 16) % 2]
