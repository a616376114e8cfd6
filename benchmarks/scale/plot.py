"""The speed benchmark as a picture."""

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
