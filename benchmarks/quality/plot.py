"""The quality benchmark as a picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

SYSTEMS = ("whitespace BM25", "bigram BM25", "dense alone", "plain RRF", "auto")


def draw(figures: Mapping[str, Any], path: Path) -> None:
    """nDCG@5 by set and system with 95 % intervals; a mark where the product should reach."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "nura"
    from matplotlib import pyplot as plt

    found = figures["sets"]
    figure, axes = plt.subplots(figsize=(11, 5))
    width = 0.8 / len(SYSTEMS)
    for number, system in enumerate(SYSTEMS):
        means = [one["ways"][system]["ndcg5"] for one in found.values()]
        axes.bar(
            [place + number * width for place in range(len(found))],
            [mean["mean"] for mean in means],
            width,
            yerr=[
                [mean["mean"] - mean["low"] for mean in means],
                [mean["high"] - mean["mean"] for mean in means],
            ],
            label="Nura" if system == "auto" else system,
        )
    for place, name in enumerate(found):
        if name in figures["reach"]:
            ends = (place - width / 2, place + 0.8 - width / 2)
            axes.plot(ends, [figures["reach"][name]] * 2, color="black", linewidth=1)
    axes.set_xticks([place + 0.4 - width / 2 for place in range(len(found))], list(found))
    axes.set_ylabel("nDCG@5; line: to reach")
    axes.set_ylim(0, 1.05)
    axes.legend(ncols=len(SYSTEMS), loc="upper center", bbox_to_anchor=(0.5, 1.1), frameon=False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
