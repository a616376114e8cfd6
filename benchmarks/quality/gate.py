"""How well the gate tells questions that the documents answer from others, and its weights anew.

`python -m benchmarks.quality.gate` measures; with `--fit` it also fits the lexical weights on every
other article and utterance, and on those left out: how far the two differ tells how firm they are.
"""

import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.local_models import local_embedder
from benchmarks.quality.gate_cases import FOLDS, Articles, Case, Corpus, Row
from benchmarks.quality.stand_in import CorpusEmbedder
from rag.config import RagConfig
from rag.ports import Embedder
from rag.retrieve import search as gate
from tests.quality import sets

UNRELATED = 0.05
"""What unrelated texts have for a cosine in the embedded model."""
KEPT = 0.98
FEWER = 8
"""Of small talk, every so many-th utterance is asked of further indexes."""
SQUEEZED = (0.7, 0.9)
"""Where the cosines of the e5 family lie."""
FIFTH = FOLDS - 1
FITTED = ("korquad1_dev, absent", "korquad1_dev, small")
"""The cases that the lexical weights are fitted on."""


def cases() -> Iterator[Case]:
    """Every case, one after the other; together they take some minutes."""
    yield from _korean("korquad1_dev", local_embedder())
    yield from _others()
    yield from _english(local_embedder())
    yield from _multilingual()


def _korean(name: str, embedder: Embedder) -> Iterator[Case]:
    articles = Articles(sets.load(name), embedder, UNRELATED)
    talk = list(enumerate(sets.smalltalk()))
    for first in reversed(range(FOLDS)):
        index, absent = articles.without_every_fifth(first)
        yield Case(f"{name}, absent articles, from {first + 1}", absent.kept, absent.refused)
        if first == FIFTH:
            yield Case(f"{name}, small talk", absent.kept, index.rows(talk))
    strange, talked = articles.one_by_one([text for _, text in talk[::FEWER]])
    yield Case(f"{name}, one article, others' questions", strange.kept, strange.refused)
    yield Case(f"{name}, one article, small talk", talked.kept, talked.refused)


def _others() -> Iterator[Case]:
    """Other Korean texts: manuals asked by headings, laws by titles, facts by puzzles."""
    talk = list(enumerate(sets.smalltalk()[::FEWER]))
    foreign = list(enumerate(one.text for one in sets.load("korquad1_dev").questions[::FEWER]))
    for name, every in (("ko_docs", 1), ("kr_law", 10), ("ko_strategyqa", 1)):
        made = sets.load(name)
        index = Corpus(made.units, local_embedder(), UNRELATED).index(range(len(made.units)))
        kept = index.rows(enumerate(one.text for one in made.questions[::every]))
        yield Case(f"{name}, small talk", kept, index.rows(talk))
        yield Case(f"{name}, korquad1_dev questions", kept, index.rows(foreign))


def _english(embedder: Embedder) -> Iterator[Case]:
    articles = Articles(sets.load("xquad_en"), embedder, UNRELATED)
    for first in reversed(range(FOLDS)):
        _, absent = articles.without_every_fifth(first)
        yield Case(f"xquad_en, absent articles, from {first + 1}", absent.kept, absent.refused)
    yield Case("xquad_en, one article, others' questions", *_parts(articles.one_by_one(())[0]))
    made = sets.load("clapnq_dev")
    index = Corpus(made.units, embedder, UNRELATED).index(range(len(made.units)))
    kept = index.rows(enumerate(one.text for one in made.questions))
    yield Case("clapnq_dev, unanswerable", kept, index.rows(enumerate(sets.unanswerable())))


def _parts(case: Case) -> tuple[list[Row], list[Row]]:
    return case.kept, case.refused


def _multilingual() -> Iterator[Case]:
    """Korean with an embedder that knows it, plainly and with cosines in a narrow band."""
    made = sets.load("korquad1_dev")
    embedder = CorpusEmbedder([unit.text for unit in made.units])
    articles = Articles(made, embedder, 0.0)
    index, absent = articles.without_every_fifth(FIFTH)
    talk = index.rows(enumerate(sets.smalltalk()[::2]))
    for name, change in (("stand-in embedder", _same), ("squeezed stand-in", _squeezed)):
        kept = [change(row) for row in absent.kept]
        refused = [change(row) for row in absent.refused]
        yield Case(f"korquad1_dev, {name}, absent articles", kept, refused)
        yield Case(f"korquad1_dev, {name}, small talk", kept, [change(row) for row in talk])


def _same(row: Row) -> Row:
    return row


def _squeezed(row: Row) -> Row:
    """As if all cosines lay between `SQUEEZED`, and unrelated texts at its lower end."""
    low, high = SQUEEZED
    cosine = low + (high - low) * row.evidence.closeness
    closeness = (cosine - low) / (1 - low)
    return replace(row, evidence=replace(row.evidence, closeness=closeness))


def scores(rows: Sequence[Row]) -> NDArray[np.float64]:
    """The gate's scores."""
    return np.array([gate.estimate_probability(row.question, row.evidence) for row in rows])


def figures(case: Case) -> dict[str, float]:
    """AUROC, what is let through where `KEPT` are kept, and both at the default threshold."""
    from sklearn.metrics import roc_auc_score

    kept, refused = scores(case.kept), scores(case.refused)
    truth = [1] * len(kept) + [0] * len(refused)
    line, threshold = np.quantile(kept, 1 - KEPT), RagConfig().gate_threshold
    return {
        "kept_questions": len(kept),
        "refused_questions": len(refused),
        "auroc": float(roc_auc_score(truth, np.concatenate([kept, refused]))),
        "let_through_at_98": float((refused >= line).mean()),
        "kept": float((kept >= threshold).mean()),
        "let_through": float((refused >= threshold).mean()),
    }


def fit(seen: Sequence[Case], half: int) -> dict[str, float]:
    """Bias, share and held terms of the lexical function, fitted on one half of the groups.

    The form keeps its weights: people write to their documents less formally than the sets do.
    Every case counts alike, and so do its two sides.
    """
    from scipy.optimize import minimize

    rows, signs, weights = [], [], []
    for case in seen:
        for sign, side in ((1.0, case.kept), (-1.0, case.refused)):
            chosen = [row for row in side if row.group % 2 == half and row.evidence.share]
            rows += chosen
            signs += [sign] * len(chosen)
            weights += [1 / len(chosen)] * len(chosen)
    read, sign, weight = np.array([_read(row) for row in rows]), np.array(signs), np.array(weights)

    def loss(sought: NDArray[np.float64]) -> float:
        logit = sought[0] + read[:, :2] @ sought[1:] + read[:, 2]
        return float(weight @ np.logaddexp(0, -sign * logit) / weight.sum())

    found = minimize(loss, np.zeros(3), method="BFGS").x
    return dict(zip(("bias", "share", "held"), found.round(3).tolist(), strict=True))


def _read(row: Row) -> tuple[float, float, float]:
    held = min(row.evidence.coverage * row.question.terms, gate.MAX_MATCHED_TERMS)
    form = (not row.question.is_lookup) * gate.STATEMENT_LOGIT
    form += row.question.is_about_speakers * gate.SPEAKERS_LOGIT
    return math.log(gate.SHARE_FLOOR + row.evidence.share), math.log1p(held), form


def main() -> None:
    """Print the figures of every case; with `--fit` also the weights of each half."""
    seen = []
    for case in cases():
        measured = figures(case)
        print(case.name, {name: round(value, 4) for name, value in measured.items()}, flush=True)
        if case.name.startswith(FITTED):
            seen.append(case)
    if "--fit" in sys.argv:
        print(*(fit(seen, half) for half in (0, 1)), sep="\n")


if __name__ == "__main__":
    main()
