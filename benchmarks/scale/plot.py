"""Figures of speed and of growth as pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Bars of the medians with lines up to the 95th percentile, on a logarithmic scale."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "nura"
    from matplotlib import pyplot as plt

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


def draw_growth(sizes: Sequence[int], rows: Mapping[str, Sequence[float]], path: Path) -> None:
    """A line for each row, in three panels by their first word; both scales are logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "nura"
    from matplotlib import pyplot as plt

    panels: dict[str, dict[str, Sequence[float]]] = {}
    for name, values in rows.items():
        kind, colon, rest = name.partition(": ")
        panels.setdefault(kind if colon else "a small account", {})[rest or name] = values
    figure, places = plt.subplots(1, len(panels), figsize=(5 * len(panels), 5), sharey=True)
    for axes, (title, lines) in zip(places, panels.items(), strict=True):
        for name, values in lines.items():
            axes.plot(sizes, values, marker="o", label=name)
        axes.set(title=title, xscale="log", yscale="log", xlabel="chunks of the installation")
        axes.legend(fontsize=7)
    places[0].set_ylabel("median in ms")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
