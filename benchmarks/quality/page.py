"""The figures as tables, on the screen and in docs/notes/retrieval.md."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.quality import multi_turn

PAGE = Path(__file__).parents[2] / "docs" / "notes" / "retrieval.md"
BEGIN, END = "<!-- quality: begin -->", "<!-- quality: end -->"

SYSTEMS = ("whitespace BM25", "bigram BM25", "dense alone", "plain RRF", "auto")
STRATEGIES = ("similarity", "mmr", "bm25", "rrf", "rrf, no rerank")
Figures = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """A title, the names of the columns, and rows of as many cells."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """As a page shows it."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join([f"{self.title}\n", *(f"| {' | '.join(line)} |" for line in lines)])


def tables(figures: Figures) -> Iterator[Table]:
    """All that was measured."""
    yield _quality(figures)
    yield _strategies(figures)
    if figures.get("conversations"):
        yield Table("Questions in conversations", multi_turn.COLUMNS, _conversations(figures))
    if "together" in figures:
        yield _together(figures)
        yield _knowing_korean(figures)
        yield _own_chunks(figures)
        yield _particles(figures["particles"])


def write(figures: Figures) -> None:
    """Put the tables between the marks of docs/notes/retrieval.md."""
    text = PAGE.read_text(encoding="utf-8")
    body = "\n\n".join(table.markdown() for table in tables(figures))
    whole = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    changed, count = whole.subn(lambda _: f"{BEGIN}\n\n{body}\n\n{END}", text)
    if not count:
        raise ValueError(f"{PAGE} has no place for the tables")
    PAGE.write_text(changed, encoding="utf-8")


def _quality(figures: Figures) -> Table:
    rows = []
    for name, one in figures["sets"].items():
        cells = [_ndcg(one["ways"][system]) for system in SYSTEMS[:-1]]
        usual, free = one["ways"]["auto"], one["ways"]["auto, no filter"]
        asked = f"{one['asked']:,} of {one['questions']:,}"
        rows.append([name, asked, *cells, _sure(usual), _recall(usual), _reach(figures, name)])
        if free["ndcg5"] != usual["ndcg5"]:
            reach = _reach(figures, f"{name}, no filter")
            rows.append([f"{name}, no filter", asked, *cells, _sure(free), _recall(free), reach])
    columns = ["set", "questions", *SYSTEMS[:-1], "Nura", "Nura R@5", "to reach"]
    return Table("nDCG@5 and its 95 % interval, one chunk a unit", columns, rows)


def _strategies(figures: Figures) -> Table:
    rows = [
        [name, str(one["ways"]["rrf"]["questions"]), *(_ndcg(one["ways"][w]) for w in STRATEGIES)]
        for name, one in figures["sets"].items()
    ]
    columns = ["set", "questions", *STRATEGIES]
    return Table("nDCG@5 by strategy, without filters", columns, rows)


def _conversations(figures: Figures) -> list[list[str]]:
    return multi_turn.rows(figures["conversations"])


def _together(figures: Figures) -> Table:
    rows = [
        [
            name if way == "auto" else f"{name}, no filter",
            _ndcg(figures["sets"][name]["ways"][way]),
            _ndcg(found),
            "{mean:+.3f} ({low:+.3f} to {high:+.3f})".format(**found["loss"]),
            f"{figures['most_loss']:.3f}",
        ]
        for name, ways in figures["together"].items()
        for way, found in ways.items()
    ]
    columns = ["set", "alone", "together", "loss", "at most"]
    return Table("All Korean sets indexed together, nDCG@5", columns, rows)


def _knowing_korean(figures: Figures) -> Table:
    rows = [
        [
            name,
            *(_ndcg(found[way]) for way in ("bm25", "similarity", "auto, no filter")),
            "{mean:+.3f} ({low:+.3f} to {high:+.3f})".format(**found["gain over the better leg"]),
        ]
        for name, found in figures["knowing_korean"].items()
    ]
    title = "With a stand-in for an embedder that knows Korean, nDCG@5, without filters"
    return Table(title, ["set", "BM25", "similarity", "both", "gain over the better leg"], rows)


def _own_chunks(figures: Figures) -> Table:
    rows = [
        [name, f"{found['chunks']:,}", str(found["questions"]), _sure(found), _recall(found)]
        for name, found in figures["own_chunks"].items()
    ]
    title = (
        "Whole documents in the product's own chunks, hits counted for the unit they hold most of"
    )
    return Table(title, ["set", "chunks", "questions", "nDCG@5", "R@5"], rows)


def _particles(found: Figures) -> Table:
    row = [str(found["pairs"]), str(found["found"]), str(found["first"])]
    title = "Nouns with and without a particle, each found by the other"
    return Table(title, ["pairs", "found", "as the first hit"], [row])


def _ndcg(found: Figures) -> str:
    return f"{found['ndcg5']['mean']:.3f}"


def _sure(found: Figures) -> str:
    return "{mean:.3f} ({low:.3f}-{high:.3f})".format(**found["ndcg5"])


def _recall(found: Figures) -> str:
    return f"{found['r5']['mean']:.3f}"


def _reach(figures: Figures, name: str) -> str:
    reach = figures["reach"].get(name)
    return f"{reach:.3f}" if reach else "-"
