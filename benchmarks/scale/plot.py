"""The speed and growth benchmarks as pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LABELLED = 6
"""Of the lines, those that end highest; the others are thin and grey."""


def draw_growth(figures: Mapping[str, Mapping[str, Mapping[str, float]]], path: Path) -> None:
    """Medians by the chunks of the installation, both on logarithmic scales."""
    plt = _begin()
    figure, axes = plt.subplots(figsize=(9, 5.5))
    sizes = sorted(figures, key=int)
    names = sorted(figures[sizes[-1]], key=lambda name: -figures[sizes[-1]][name]["p50"])
    for place, name in enumerate(names):
        medians = [max(0.1, figures[size][name]["p50"]) for size in sizes]
        look = {"label": name} if place < LABELLED else {"color": "0.7", "linewidth": 0.8}
        axes.plot([int(size) for size in sizes], medians, marker=".", **look)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("chunks of the installation")
    axes.set_ylabel("ms, median")
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Bars of the medians with lines up to the 95th percentile, on a logarithmic scale."""
    plt = _begin()
    names = list(rows[0]["ms"])
    figure, axes = plt.subplots(figsize=(11, 0.42 * len(rows) + 1.2))
    height = 0.8 / len(names)
    for number, name in enumerate(names):
        places = [place + number * height for place in range(len(rows))]
        middles = [row["ms"][name]["p50"] for row in rows]
        tails = [row["ms"][name]["p95"] - row["ms"][name]["p50"] for row in rows]
        axes.barh(places, middles, height, xerr=[[0] * len(rows), tails], label=name)
    axes.set_yticks(
        [place + 0.4 - height / 2 for place in range(len(rows))],
        [
            f"{row['chunks']:,} chunks, {row['documents']} documents, {row['language']}"
            for row in rows
        ],
    )
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("search call in ms: median, line to the 95th percentile")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def _begin() -> Any:
    """The library, without a screen, drawing the same bytes from the same figures."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "nura"
    from matplotlib import pyplot as plt

    return plt
