"""How well the product finds: nDCG@5 and R@5 of every set, beside plain systems in the same run.

At most 1,200 questions a set, always the same ones, unless all are wanted; strategies are compared
on the first 400 of them. See docs/notes/retrieval.md, "Quality".
"""

import os
import time
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks import report
from benchmarks.quality import multi_turn, page, parts, plot, product
from benchmarks.quality.parts import Measured
from tests.quality import sets

REACH = {
    "korquad1_dev": 0.972,
    "ko_docs": 0.70,
    "kr_law": 0.90,
    "kr_law, no filter": 0.76,
    "ko_strategyqa": 0.83,
    "xquad_en": 0.985,
    "clapnq_dev": 0.97,
}
NEVER_BELOW = {"xquad_en": 0.957, "clapnq_dev": 0.939}
MOST_LOSS = 0.010
OWN_CHUNKS = ("korquad1_dev", "kr_law")


def main(*, everything: bool = False, names: Sequence[str] = (), into_docs: bool = False) -> None:
    """Measure, write and print; `names` are sets, none means all."""
    if not sets.available():
        print("\nquality: left out, as the question sets do not lie beside the project")
        return
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    begun = time.perf_counter()
    wanted = [name for name in (*sets.NAMES, *sets.FOR_INFORMATION) if not names or name in names]
    with product.running() as library:
        figures = _figures(library, wanted, begun, everything=everything)
    figures["seconds"] = round(time.perf_counter() - begun)
    if names:
        print("\nNot all sets: nothing is kept")
    else:
        report.write("quality", figures)
        plot.draw(figures, report.RESULTS / "quality.svg")
    for table in page.tables(figures):
        report.table(table.title, table.columns, table.rows)
    if into_docs:
        page.write(figures)


def _figures(
    library: product.Library, wanted: Sequence[str], begun: float, *, everything: bool
) -> dict[str, Any]:
    def told(what: str) -> None:
        print(f"{time.perf_counter() - begun:6.0f} s  {what}", flush=True)

    indexed = []
    for made in parts.load(wanted):
        indexed.append((made, library.add(made)))
        told(f"{made.name}: {len(made.units)} units stored")
    product.settle()
    measured: list[Measured] = []
    for made, stored in indexed:
        asked = parts.sample(made, everything=everything)
        measured.append(parts.alone(library, made, stored, asked))
        usual = measured[-1].results[parts.USUAL.name].figures()["ndcg5"]["mean"]
        told(f"{made.name}: nDCG@5 {usual:.3f} over {len(asked)} questions")
    korean = [one for one in measured if one.made.name in sets.KOREAN]
    figures: dict[str, Any] = {
        "reach": REACH,
        "never_below": NEVER_BELOW,
        "most_loss": MOST_LOSS,
        "sets": {one.made.name: _set(one) for one in measured},
    }
    figures["conversations"] = multi_turn.measure(library, indexed)
    told("questions in conversations")
    if korean:
        figures |= _korean(library, korean, told)
    return figures


def _korean(library: product.Library, korean: Sequence[Measured], told: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"together": parts.together(library, korean)}
    told("Korean sets together")
    found["knowing_korean"] = parts.knowing_korean(library, korean)
    told("with an embedder that knows Korean")
    found["own_chunks"] = {
        one.made.name: parts.own_chunks(library, one) for one in _of(korean, OWN_CHUNKS)
    }
    told("in the product's own chunks")
    texts = [unit.text for one in korean for unit in one.made.units]
    found["particles"] = parts.with_particles(library, texts)
    told("nouns with and without particles")
    return found


def _set(one: Measured) -> dict[str, Any]:
    return {
        "units": len(one.made.units),
        "questions": len(one.made.questions),
        "asked": len(one.asked),
        "ways": {name: result.figures() for name, result in one.results.items()},
    }


def _of(measured: Iterable[Measured], names: Sequence[str]) -> list[Measured]:
    return [one for one in measured if one.made.name in names]


if __name__ == "__main__":
    main()
