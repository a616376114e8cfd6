"""Whether the answer has what was asked for: 105 questions as people type them, on 28 documents.

The whole product over its API, first with a stand-in for a language model that keeps what it is
sent and answers each turn with the expected facts (what could a model have answered?), then
without a model (what does the answer say?). Rules and targets: SOURCE.md of the set.
"""

import json
import re
import statistics
import tempfile
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import report
from rag.context import tokens
from rag.evaluation.measures import is_abstention, read_evidence_text
from rag.evaluation.question_set import Fact, measure_fact_share
from tests.product.client import Client
from tests.servers.llm import LLMServer, Stream
from tests.support import DATA, Product, wait_until

SET = DATA / "answers"
MODEL = "stand-in"
NO_FACTS = "문서에서 찾지 못했습니다."
INGEST_SECONDS = 900
LINES = report.choose_size(None, quick=8)
"""Of the set, conversations all; None: all of them."""
LEAST_LINE = 6
"""Letters of a line of a prompt from which on one can tell where it comes from."""
NO_PASSAGE = 40
"""Characters from documents below which a prompt counts as one without a passage."""
AIM = {
    "with a model": {
        "evidence_all": 0.95,
        "stranger_line_share": 0.2,
        "calls": 2,
        "evidence_token_share": 0.5,
        "shared_prefix": 0.7,
    },
    "without a model": {
        "facts": 0.8,
        "false_abstention": 0.08,
        "characters": 700,
        "abstains": 0.85,
    },
}
"""To reach over all answerable turns, `stranger_line_share` in comparisons, `abstains` where the
documents do not say; each kind .85 of `evidence_all`."""
REFUSED = ("unanswerable", "nonsense")
_NOT_LETTERS = re.compile(r"[\W_]+")


@dataclass(slots=True)
class Asked:
    """A turn of the set with what the product made of it. `documents` are ids of the line's."""

    question: str
    documents: frozenset[str]
    kind: str
    lang: str
    ticked: bool
    answerable: bool
    gold: tuple[Fact, ...]
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class Library:
    """The documents as they were uploaded: ids and letters of their texts by path."""

    ids: dict[str, str]
    letters: dict[str, str]
    known: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def origins(self, line: str) -> tuple[str, ...]:
        """Ids of the documents in which a line of a prompt stands."""
        bare = _letters(line)
        if len(bare) < LEAST_LINE:
            return ()
        if bare not in self.known:
            self.known[bare] = tuple(pk for pk, text in self.letters.items() if bare in text)
        return self.known[bare]


def main() -> None:
    """Measure, print and keep."""
    if not SET.is_dir():
        raise SystemExit("the data sets do not lie beside the project")
    rows = (SET / "questions.jsonl").read_text(encoding="utf-8").splitlines()[:LINES]
    lines = [json.loads(row) for row in rows]
    with tempfile.TemporaryDirectory(prefix="nura-answers-") as folder, LLMServer() as model:
        with Product(Path(folder)) as product:
            client = Client(product.url, product.create_user("bench"))
            library = _upload(client, lines)
            without = list(_ask_all(client, library, lines, None))
        endpoint = {"NURA_LLM_BASE_URL": model.url, "NURA_LLM_MODEL": MODEL}
        with Product(Path(folder), **endpoint) as product:
            client = Client(product.url, client.token)
            with_model = list(_ask_all(client, library, lines, model))
    figures = {
        "aim": AIM,
        "with a model": _summarise(with_model, _told_with),
        "without a model": _summarise(without, _told_without),
    }
    report.write("answers", figures)
    _print(figures)


def _upload(client: Client, lines: Sequence[Mapping[str, Any]]) -> Library:
    """All documents of the set; for a part of its lines, those that they name."""
    names = json.loads((SET / "library.json").read_text(encoding="utf-8"))
    named = {path for line in lines for path in line.get("documents", ())}
    made = {
        path: client.upload(name, (DATA / path).read_bytes())["id"]
        for path, name in names.items()
        if LINES is None or path in named
    }

    def ready() -> bool:
        rows = client.call("GET", "/documents?page_size=100")[1]["results"]
        failed = [row["name"] for row in rows if row["status"] == "FAILED"]
        assert not failed, failed
        return all(row["status"] == "COMPLETED" for row in rows)

    wait_until(ready, INGEST_SECONDS, step=0.5)
    letters = {pk: "\n".join(map(_letters, _chunks(client, pk).values())) for pk in made.values()}
    return Library(made, letters)


def _chunks(client: Client, document_id: str) -> dict[str, str]:
    """The texts of a document's chunks by their ids."""
    found: dict[str, str] = {}
    page: int | None = 1
    while page:
        path = f"/documents/{document_id}/chunks?page_size=100&page={page}"
        status, rows = client.call("GET", path)
        assert status == 200, rows
        found |= {row["chunk_id"]: row["text"] for row in rows["results"]}
        page = page + 1 if rows["next"] else None
    return found


def _ask_all(
    client: Client,
    library: Library,
    lines: Sequence[Mapping[str, Any]],
    model: LLMServer | None,
) -> Iterator[Asked]:
    texts = {} if model else dict(_all_chunks(client, library))
    for line in lines:
        chat, before = None, ""
        own = frozenset(library.ids[path] for path in line.get("documents", library.ids))
        for turn in line["turns"]:
            asked = Asked(
                question=turn["user"],
                documents=own,
                kind=turn.get("kind", line["kind"]),
                lang=line["lang"],
                ticked=turn["choose"],
                answerable=turn["answerable"],
                gold=tuple(tuple(fact) for fact in turn["gold"]),
            )
            body = {"content": turn["user"], "chat_id": chat}
            if turn["choose"]:
                body["document_ids"] = sorted(own)
            if model:
                model.calls.clear()
                said = " ".join(fact[0] for fact in asked.gold) or NO_FACTS
                model.default = Stream([said], usage=False)
            status, made = client.call("POST", "/messages", body)
            assert status == 201, made
            chat = made["chat_id"]
            if model:
                calls = [call.json for call in model.chats]
                before = _measure_prompt(asked, calls, library, before)
            else:
                _measure_answer(asked, made["assistant_message"], texts)
            yield asked


def _all_chunks(client: Client, library: Library) -> Iterator[tuple[str, str]]:
    for document_id in library.ids.values():
        yield from _chunks(client, document_id).items()


def _measure_prompt(
    asked: Asked, calls: Sequence[Mapping[str, Any]], library: Library, before: str
) -> str:
    """The figures of a turn with a model; what stands before its last message.

    `before` is that of the turn before: what a server may have kept of it.
    """
    streamed = [call for call in calls if call.get("stream")]
    texts = [one["content"] for one in streamed[-1]["messages"]] if streamed else []
    whole = "\n".join(texts)
    prompt = read_evidence_text(texts)
    found = [(line, library.origins(line)) for line in prompt.splitlines()]
    evidence = [(line, ids) for line, ids in found if ids]
    size = sum(len(line) for line, _ in evidence)
    strange = sum(len(line) for line, ids in evidence if not asked.documents & set(ids))
    count = tokens.get_counter(MODEL).count
    read = count("\n".join(line for line, _ in evidence)) if evidence else 0
    asked.figures = {
        "no_passage": float(size < NO_PASSAGE),
        "prompt_characters": len(prompt),
        "tokens": count(whole),
        "evidence_token_share": read / max(1, count(whole)),
        "stranger_line_share": strange / size if size else 0.0,
        "calls": len(calls),
    }
    if asked.gold:
        share = measure_fact_share(asked.gold, prompt, in_answer=False)
        asked.figures |= {"evidence": share, "evidence_all": float(share == 1)}
    if before:
        asked.figures["shared_prefix"] = _shared(before, whole) / len(before)
    return "\n".join(texts[:-1])


def _measure_answer(asked: Asked, message: Mapping[str, Any], texts: Mapping[str, str]) -> None:
    sources = message["sources"] or ()
    asked.figures = {
        "characters": len(message["content"]),
        "abstains": float(is_abstention(message["mode"], sources)),
    }
    if asked.gold:
        shown = "\n\n".join(texts.get(source["chunk_id"], "") for source in sources)
        asked.figures |= {
            "facts": measure_fact_share(asked.gold, message["content"], in_answer=True),
            "in_sources": measure_fact_share(asked.gold, shown, in_answer=False),
        }


Told = Callable[[Sequence[Asked]], dict[str, float]]


def _told_with(some: Sequence[Asked]) -> dict[str, float]:
    means = (
        *("evidence_all", "evidence", "no_passage", "stranger_line_share"),
        *("calls", "shared_prefix"),
    )
    medians = ("prompt_characters", "tokens", "evidence_token_share")
    return _middle(some, means, statistics.fmean) | _middle(some, medians, statistics.median)


def _told_without(some: Sequence[Asked]) -> dict[str, float]:
    means = _middle(some, ("facts", "in_sources", "abstains"), statistics.fmean)
    if some and all(asked.answerable for asked in some):
        means["false_abstention"] = means.pop("abstains")
    return means | _middle(some, ("characters",), statistics.median)


def _middle(
    some: Sequence[Asked], names: Iterable[str], middle: Callable[[Sequence[float]], float]
) -> dict[str, float]:
    found = {}
    for name in names:
        if values := [asked.figures[name] for asked in some if name in asked.figures]:
            found[name] = round(float(middle(values)), 3)
    return found


def _summarise(asked: Sequence[Asked], told: Told) -> dict[str, dict[str, float]]:
    """Of every kind, of all answerable turns, and of some of them."""
    answerable = [one for one in asked if one.answerable]
    groups = {
        **{one.kind: [o for o in asked if o.kind == one.kind] for one in asked},
        "answerable": answerable,
        "answerable, Korean": [one for one in answerable if one.lang == "ko"],
        "answerable, English": [one for one in answerable if one.lang == "en"],
        "answerable, ticked": [one for one in answerable if one.ticked],
        "answerable, whole library": [one for one in answerable if not one.ticked],
        "to be refused": [one for one in asked if one.kind in REFUSED],
    }
    return {name: {"turns": len(some), **told(some)} for name, some in groups.items()}


def _print(figures: Mapping[str, Any]) -> None:
    for half in ("with a model", "without a model"):
        rows = figures[half]
        columns = list(dict.fromkeys(name for row in rows.values() for name in row))
        cells = [
            [group, *(f"{row[name]:g}" if name in row else "" for name in columns)]
            for group, row in rows.items()
        ]
        aim = AIM[half]
        aims = ["to reach", *(f"{aim[name]:g}" if name in aim else "" for name in columns)]
        report.table(f"Answers {half}", ["", *columns], [*cells, aims])


def _shared(before: str, after: str) -> int:
    """Characters that both begin with."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(before), len(after)))


def _letters(text: str) -> str:
    return _NOT_LETTERS.sub("", unicodedata.normalize("NFKC", text))


if __name__ == "__main__":
    main()
