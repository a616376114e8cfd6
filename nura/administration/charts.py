"""Charts of the administration: drawn by Chart.js, which unfold brings, with a table below.

The table is what a screen reader reads and what leads to the rows; the picture is for the eye.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Value = float | None


@dataclass(frozen=True, slots=True)
class Series:
    """One line, or one colour of the bars. `links` lead to the rows of each value."""

    name: str
    colour: str
    values: Sequence[Value]
    links: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """What a template needs of a chart. `labels` are those of the horizontal axis."""

    key: str
    title: str
    labels: Sequence[str]
    series: Sequence[Series] = field(default_factory=tuple)
    kind: str = "bar"
    stacked: bool = False

    @property
    def data(self) -> str:
        """JSON of Chart.js."""
        return json.dumps(
            {"labels": list(self.labels), "datasets": [*map(self._draw, self.series)]}
        )

    @property
    def options(self) -> str:
        """JSON of Chart.js: no animation, whole height, few labels, colours of both themes."""
        soft = "#7d8590"
        axis = {
            "ticks": {"color": soft, "maxTicksLimit": 8, "maxRotation": 0},
            "border": {"display": False},
        }
        grid = {"color": "#7d859033"}
        return json.dumps(
            {
                "animation": False,
                "responsive": True,
                "maintainAspectRatio": False,
                "interaction": {"mode": "index", "intersect": False},
                "plugins": {
                    "legend": {
                        "position": "bottom",
                        "align": "start",
                        "labels": {"color": soft, "boxWidth": 10, "boxHeight": 10},
                    }
                },
                "scales": {
                    "x": axis | {"stacked": self.stacked, "grid": {"display": False}},
                    "y": axis | {"stacked": self.stacked, "grid": grid, "beginAtZero": True},
                },
            }
        )

    def _draw(self, series: Series) -> dict[str, Any]:
        line = {"borderColor": series.colour, "tension": 0.25, "spanGaps": True, "pointRadius": 2}
        return {
            "label": series.name,
            "data": list(series.values),
            "backgroundColor": series.colour,
            **(line if self.kind == "line" else {"maxBarThickness": 28}),
        }

    @property
    def rows(self) -> Iterator[dict[str, Any]]:
        """The table, latest first, without what is empty."""
        for place in reversed(range(len(self.labels))):
            cells = [
                {
                    "value": one.values[place],
                    "link": one.links[place] if one.links and one.values[place] else "",
                }
                for one in self.series
            ]
            if any(cell["value"] for cell in cells):
                yield {"label": self.labels[place], "cells": cells}
