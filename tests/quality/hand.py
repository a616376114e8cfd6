"""Answers as a model would write them, each sentence with the verdict that a reader gives it."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid5

from rag.types import CheckedSentence, Citation, Evidence, Passage
from rag.verify import Grounds, verify_answer

DATA = Path(__file__).parents[1] / "data"
LANGUAGES = ("ko", "en")
_SPACE = UUID(int=6)
_OWN_LINE = ("#", "-", "|", "1.", "2.", "3.", "**")
_MARKER = re.compile(r"\[(\d{1,4})\]")


@dataclass(frozen=True, slots=True)
class Written:
    """An answer with its evidence; `verdicts` are of its sentences, as (start, verdict)."""

    name: str
    blind: bool
    answer: str
    evidence: tuple[Evidence, ...]
    verdicts: tuple[tuple[int, str], ...]


def load(language: str) -> Iterator[Written]:
    """The answers of `tests/data/planted_LANGUAGE.jsonl`."""
    lines = (DATA / f"planted_{language}.jsonl").read_text(encoding="utf-8").splitlines()
    for row in map(json.loads, lines):
        answer, verdicts = "", []
        for text, verdict in row["answer"]:
            if answer:
                answer += (
                    "\n" if text.startswith(_OWN_LINE) or answer.endswith((" |", ":")) else " "
                )
            verdicts.append((len(answer), verdict))
            answer += text
        evidence = tuple(
            as_evidence(
                item["slot"],
                item["text"],
                document_id=uuid5(_SPACE, item["name"]),
                name=item["name"],
                section=item["section"],
            )
            for item in row["evidence"]
        )
        yield Written(row["id"], row["half"] == "blind", answer, evidence, tuple(verdicts))


def found(written: Written) -> list[tuple[str, str, str]]:
    """Of every sentence its text, the reader's verdict and ours; "" where none begins there."""
    ends = [start for start, _ in written.verdicts[1:]] + [len(written.answer)]
    checks = check(written.answer, written.evidence)
    rows = []
    for (start, wanted), end in zip(written.verdicts, ends, strict=True):
        told = [item for item in checks if start <= item.start < end]
        said = max((item.verdict for item in told), key=_weight, default="")
        rows.append((written.answer[start:end].strip(), wanted, str(said)))
    return rows


def _weight(verdict: str) -> int:
    return ("plain", "supported", "unsupported").index(verdict)


def as_evidence(
    slot: int, text: str, *, document_id: UUID, name: str, section: str = ""
) -> Evidence:
    """A text as the passage of a document, as an answer's model would see it."""
    passage = Passage(
        key=slot,
        document_id=document_id,
        document_name=name,
        index=0,
        text=text,
        page=None,
        page_end=None,
        section=section,
        end=len(text),
    )
    return Evidence(slot, slot, passage, text, 0, relevance=1.0)


def check(answer: str, evidence: Sequence[Evidence]) -> tuple[CheckedSentence, ...]:
    """The sentences of an answer that cites by the numbers of its passages."""
    citations = [Citation(found.start(), int(found[1])) for found in _MARKER.finditer(answer)]
    return verify_answer(answer, citations, evidence, grounds=Grounds()).checks
