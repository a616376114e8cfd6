"""The figures of an evaluation for people: lines for a terminal, and a page that stands alone."""

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.template.loader import render_to_string
from django.utils.translation import gettext as _

from rag.evaluation.measures import MEASURES, Measure

OF_A_KIND = ("evidence_all", "facts", "citations", "label", "false_abstention", "abstains")
"""Measures that are told for each kind of question."""

LABEL_X, BAR_X, BAR_WIDTH, ROW_HEIGHT, PAD = 230, 240, 340, 34, 8
"""Of the charts, in units of their view box."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a chart with its value; `series` counts configurations from 0."""

    y: int
    width: float
    series: int
    value: str


@dataclass(frozen=True, slots=True)
class MeasureRow:
    """A line of a chart under its name."""

    y: int
    name: str
    bars: tuple[Bar, ...] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """Rows of bars between 0 and 1."""

    title: str
    rows: tuple[MeasureRow, ...]
    height: int


def measure_names() -> dict[str, str]:
    """What people call the measures."""
    return {
        "evidence_all": _("All facts in the prompt"),
        "evidence": _("Facts in the prompt"),
        "facts": _("Facts in the answer"),
        "label": _("Right label"),
        "citations": _("Right citations"),
        "false_abstention": _("Declined although answerable"),
        "abstains": _("Declined where not answerable"),
        "evidence_share": _("Share of evidence in the prompt"),
        "strangers": _("Evidence from other documents"),
        "relevance": _("Relevance (judge)"),
        "faithfulness": _("Faithfulness (judge)"),
        "support": _("Support (judge)"),
        "coherence": _("Coherence over turns (judge)"),
        "failed": _("Failed answers"),
        "characters": _("Characters of the answer"),
        "prompt_tokens": _("Prompt tokens"),
        "completion_tokens": _("Completion tokens"),
        "calls": _("Model calls"),
        "calls_before_first_word": _("Model calls before the first word"),
        "first_word_ms": _("First word (ms)"),
        "total_ms": _("Whole answer (ms)"),
    }


def render(figures: Mapping[str, Any], records: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """One HTML file without anything from elsewhere. `records` are turns, by configuration."""
    configurations = figures["configurations"]
    differences = _differences(figures)
    context = {
        "figures": figures,
        "configurations": [
            one | {"title": one["name"] or _("Present settings")} for one in configurations
        ],
        "charts": list(_charts(figures)),
        "differences": differences,
        "differences_height": PAD + len(differences) * ROW_HEIGHT,
        "amounts": list(_amounts(figures)),
        "turns": [_turn(turn) for turn in zip(*records, strict=True)],
        "label_x": LABEL_X,
        "bar_x": BAR_X,
        "bar_width": BAR_WIDTH,
        "bar_end": BAR_X + BAR_WIDTH,
        "zero_x": BAR_X + BAR_WIDTH / 2,
    }
    return render_to_string("evaluation.html", context)


def to_text(figures: Mapping[str, Any]) -> Iterator[str]:
    """Tables for a terminal: all turns, then by kind."""
    configurations = figures["configurations"]
    size = _("%(lines)s conversations, %(turns)s questions") % figures
    yield f"{figures['set']}: {size}"
    for letter, one in zip("AB", configurations, strict=False):
        model = one["model"] or _("no language model")
        yield f"{letter}: {one['name'] or _('Present settings')} ({model})"
        if count := one["judge_failures"]:
            ungraded = _("%(count)s answers could not be graded") % {"count": count}
            yield f"{letter}: {ungraded}"
    heads = ["", "A"] + (["B", _("B - A, confidence interval")] if len(configurations) > 1 else [])
    rows = [_text_row(figures, measure) for measure in MEASURES]
    yield from _aligned([heads, *(row for row in rows if row)])
    for letter, one in zip("AB", configurations, strict=False):
        if one["kinds"]:
            names = [name for name in OF_A_KIND if name in one["all"]]
            heads = [_("%(letter)s by kind") % {"letter": letter}, *names]
            kinds = [
                [kind, *(_told(found.get(name), is_share=True) for name in names)]
                for kind, found in one["kinds"].items()
            ]
            yield from ("", *_aligned([heads, *kinds]))


def _text_row(figures: Mapping[str, Any], measure: Measure) -> list[str]:
    values = [one["all"].get(measure.name) for one in figures["configurations"]]
    if not any(value is not None for value in values):
        return []
    cells = [measure.name, *(_told(value, is_share=measure.is_share) for value in values)]
    if len(values) > 1:
        cells.append(_interval(figures["differences"].get(measure.name), measure))
    return cells


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        blanks = [" " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
        first, *others = zip(row, blanks, strict=True)
        yield "  ".join([first[0] + first[1], *(blank + cell for cell, blank in others)]).rstrip()


def _width(text: str) -> int:
    """The columns of a terminal that it takes: a Hangul syllable takes two."""
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)


def _told(value: float | None, *, is_share: bool) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if is_share else f"{value:,.0f}"


def _interval(found: Mapping[str, float] | None, measure: Measure) -> str:
    """With a star where it is certain that there is a difference."""
    if found is None:
        return "-"
    form = "+.3f" if measure.is_share else "+,.0f"
    star = " *" if found["certain"] else ""
    span = f"{found['low']:{form}} … {found['high']:{form}}"
    return f"{found['value']:{form}} ({span}, n = {found['lines']}){star}"


def _charts(figures: Mapping[str, Any]) -> Iterator[Chart]:
    names = measure_names()
    shares = [measure.name for measure in MEASURES if measure.is_share]
    whole = [one["all"] for one in figures["configurations"]]
    rows = [(names[name], [one.get(name) for one in whole]) for name in shares]
    yield _chart(_("All questions"), rows)
    kinds = figures["configurations"][0]["kinds"]
    for name in OF_A_KIND:
        rows = [
            (kind, [one["kinds"][kind].get(name) for one in figures["configurations"]])
            for kind in kinds
        ]
        if any(value is not None for _kind, values in rows for value in values):
            yield _chart(names[name], rows)


def _chart(title: str, rows: Sequence[tuple[str, Sequence[float | None]]]) -> Chart:
    made: list[MeasureRow] = []
    for name, values in rows:
        if all(value is None for value in values):
            continue
        top = PAD + len(made) * ROW_HEIGHT
        high = (ROW_HEIGHT - PAD) // len(values)
        bars = tuple(
            Bar(top + series * high, round(value * BAR_WIDTH, 1), series, f"{value:.3f}")
            for series, value in enumerate(values)
            if value is not None
        )
        made.append(MeasureRow(top, name, bars))
    return Chart(title, tuple(made), PAD + len(made) * ROW_HEIGHT)


def _differences(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Lines of the chart of differences between shares: -1 is left, 1 right."""
    names = measure_names()
    made: list[dict[str, Any]] = []
    for measure in MEASURES:
        found = figures["differences"].get(measure.name)
        if found is None or not measure.is_share:
            continue
        place = {
            name: round(BAR_X + (found[name] + 1) * BAR_WIDTH / 2, 1)
            for name in ("value", "low", "high")
        }
        direction = "better" if found["value"] * measure.better > 0 else "worse"
        kind = direction if found["certain"] else "open"
        top = PAD + len(made) * ROW_HEIGHT
        made.append(
            {"y": top + ROW_HEIGHT // 2, "name": names[measure.name], "kind": kind, **place}
            | {"told": _interval(found, measure)}
        )
    return made


def _amounts(figures: Mapping[str, Any]) -> Iterator[list[str]]:
    names = measure_names()
    for measure in MEASURES:
        row = _text_row(figures, measure)
        if row and not measure.is_share:
            yield [names[measure.name], *row[1:]]


def _turn(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A question with its answer of every configuration."""
    first = answers[0]
    wrong = any(
        one["missing_in_answer"] or one["error"] or one["measures"].get("label") == 0
        for one in answers
    )
    return {"first": first, "answers": answers, "wrong": wrong}
