"""The first page: state of the installation, usage, and cost.

Auditors see the usage figures, but no links to the rows behind them.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.formats import date_format, number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from chats import figures
from chats.figures import AnswerResult, DailyAnswers, FirstWordTimes, TokenUse
from documents.administration import MenuPlace, Section, admin_page, render_page
from nura.accounts.roles import is_administrator, may_enter
from nura.administration.operations import describe_state

Value = float | None


@dataclass(frozen=True, slots=True)
class Series:
    """One line or one colour of bars. `links` lead to the rows behind each value."""

    name: str
    colour: str
    values: Sequence[Value]
    links: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart for a template. `labels` belong to the horizontal axis."""

    key: str
    title: str
    labels: Sequence[str]
    series: Sequence[Series] = field(default_factory=tuple)
    kind: str = "bar"
    stacked: bool = False

    @property
    def data(self) -> str:
        """Chart.js data as JSON."""
        return json.dumps(
            {"labels": list(self.labels), "datasets": [*map(self._to_dataset, self.series)]}
        )

    @property
    def options(self) -> str:
        """Chart.js options as JSON: no animation, full height, few labels, both themes."""
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

    def _to_dataset(self, series: Series) -> dict[str, Any]:
        line = {"borderColor": series.colour, "tension": 0.25, "spanGaps": True, "pointRadius": 2}
        return {
            "label": series.name,
            "data": list(series.values),
            "backgroundColor": series.colour,
            **(line if self.kind == "line" else {"maxBarThickness": 28}),
        }

    @property
    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of the table below, latest first, without empty ones."""
        for index in reversed(range(len(self.labels))):
            cells = [
                {
                    "value": series.values[index],
                    "link": series.links[index] if series.links and series.values[index] else "",
                }
                for series in self.series
            ]
            if any(cell["value"] for cell in cells):
                yield {"label": self.labels[index], "cells": cells}


PERIODS = (7, 30, 90)
"""Periods in days; the first is the default."""
MAX_PEOPLE = 10
COLOURS = {
    AnswerResult.DOCUMENTS: "#2b917b",
    AnswerResult.PARTIAL: "#84c9b7",
    AnswerResult.INSUFFICIENT: "#d29922",
    AnswerResult.GENERAL: "#6b8fd6",
    AnswerResult.FAILED: "#d9534f",
    AnswerResult.OTHER: "#9aa3ad",
}
"""Distinct in both themes; the table below each chart has the figures in text."""


@dataclass(frozen=True, slots=True)
class Period:
    """The last days, today included."""

    days: int

    @property
    def since(self) -> datetime:
        """Local midnight of its first day."""
        today = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
        return today - timedelta(days=self.days - 1)

    @property
    def all_days(self) -> list[Any]:
        """Its dates, oldest first."""
        first = self.since.date()
        return [first + timedelta(days=number) for number in range(self.days)]


def read_period(request: HttpRequest) -> Period:
    """The period chosen in the page."""
    days = request.GET.get("days", "")
    return Period(int(days) if days in map(str, PERIODS) else PERIODS[0])


@admin_page(
    "",
    MenuPlace(Section.OVERVIEW, "dashboard", 0, gettext_lazy("Overview")),
    name="overview",
    may_open=may_enter,
)
def show_overview(request: HttpRequest) -> HttpResponse:
    """State, usage and cost in the chosen period."""
    period = read_period(request)
    has_links = is_administrator(request.user)
    days = figures.count_days(period.since)
    usage = figures.ModelUsage(period.since)
    context: dict[str, Any] = {
        "period": period.days,
        "periods": PERIODS,
        "figures": describe_use(period, days, usage, has_links=has_links),
        "charts": [
            draw_answers(period, days, has_links=has_links),
            draw_waiting(period, figures.measure_first_words_by_day(period.since)),
        ],
        "token_tables": [
            describe_tokens(
                _("By model"),
                _("Model"),
                usage.sum_models(),
                _link_model(period) if has_links else None,
            ),
            describe_tokens(
                _("By group"),
                _("Group"),
                usage.sum_groups(),
                _link_group if has_links else None,
                unnamed=_("No group"),
            ),
            describe_tokens(
                _("By person"),
                _("Person"),
                usage.sum_people(MAX_PEOPLE),
                _link_person(period) if has_links else None,
            ),
        ],
        "state": describe_state() if has_links else None,
    }
    return render_page(request, "admin/overview.html", context)


def make_message_list_link(since: datetime, until: datetime | None = None, **filters: str) -> str:
    """Link to the list of messages in a period, filtered."""
    span = {"created_at__gte": _format_moment(since)}
    if until is not None:
        span["created_at__lt"] = _format_moment(until)
    return f"{_get_message_list_path()}?{urlencode(span | filters)}"


@cache
def _get_message_list_path() -> str:
    """The path, cached: a chart of ninety days links to it hundreds of times."""
    return reverse("admin:chats_message_changelist")


def describe_use(
    period: Period, days: Sequence[DailyAnswers], usage: figures.ModelUsage, *, has_links: bool
) -> list[dict[str, Any]]:
    """The tiles above the charts."""
    tiles = [
        *_describe_questions(period, days, usage),
        *_describe_results(period, days),
        _describe_waiting(period),
        *_describe_cost(usage),
    ]
    if has_links:
        return tiles
    return [tile | {"link": tile["link"] if tile["link"].startswith("#") else ""} for tile in tiles]


def _describe_questions(
    period: Period, days: Sequence[DailyAnswers], usage: figures.ModelUsage
) -> Iterator[dict[str, Any]]:
    users = reverse("admin:auth_user_changelist")
    yield {
        "label": _("People"),
        "value": _format_count(User.objects.filter(is_active=True).count()),
        "note": _("%(count)s asked a question") % {"count": _format_count(usage.count_askers())},
        "link": f"{users}?is_active__exact=1",
    }
    questions = sum(day.questions for day in days)
    a_day = number_format(round(questions / period.days, 1), 1)
    yield {
        "label": _("Questions"),
        "value": _format_count(questions),
        "note": _("%(count)s a day") % {"count": a_day},
        "link": make_message_list_link(period.since, role__exact="user"),
    }


def _describe_results(period: Period, days: Sequence[DailyAnswers]) -> Iterator[dict[str, Any]]:
    sums = {name: sum(day.results.get(name, 0) for day in days) for name in AnswerResult}
    answers = sum(sums.values())
    for name, count in sums.items():
        if count or name != AnswerResult.OTHER:
            yield {
                "label": name.label,
                "value": _format_count(count),
                "note": _("%(share)s of the answers") % {"share": _format_share(count, answers)},
                "link": make_message_list_link(period.since, result=name),
                "tone": "bad" if name == AnswerResult.FAILED and count else "",
            }


def _describe_waiting(period: Period) -> dict[str, Any]:
    times = figures.measure_first_words(period.since)
    slowest = urlencode({"created_at__gte": _format_moment(period.since), "o": "-6"})
    return {
        "label": _("First word"),
        "value": _format_seconds(times.median) if times else "–",
        "note": _("95th percentile: %(time)s") % {"time": _format_seconds(times.p95)}
        if times
        else _("No answers yet"),
        "link": f"{reverse('admin:chats_run_changelist')}?{slowest}",
    }


def _describe_cost(usage: figures.ModelUsage) -> Iterator[dict[str, Any]]:
    models = usage.sum_models()
    yield {
        "label": _("Tokens"),
        "value": _format_count(sum(use.read + use.written for use in models)),
        "note": _("read and written by language models"),
        "link": "#tokens-1",
    }
    costs = [use.cost for use in models if use.cost is not None]
    yield {
        "label": _("Cost"),
        "value": _format_money(sum(costs, Decimal(0))) if costs else "–",
        "note": _("of models with a price") if costs else _("No model has a price"),
        "link": "#tokens-1",
    }


def draw_answers(period: Period, days: Sequence[DailyAnswers], *, has_links: bool) -> Chart:
    """Chart of results by day."""
    by_day = {day.day: day for day in days}
    daily = [by_day.get(day) for day in period.all_days]
    starts = [period.since + timedelta(days=number) for number in range(period.days + 1)]
    series = [
        Series(
            name=str(result.label),
            colour=COLOURS[result],
            values=[day.results.get(result, 0) if day else 0 for day in daily],
            links=[
                make_message_list_link(start, end, result=result) if has_links else ""
                for start, end in pairwise(starts)
            ],
        )
        for result in AnswerResult
    ]
    return Chart(
        key="answers",
        title=_("Answers a day"),
        labels=[date_format(day, "MONTH_DAY_FORMAT") for day in period.all_days],
        series=[line for line in series if any(line.values)] or series[:1],
        stacked=True,
    )


def draw_waiting(period: Period, times: Iterable[FirstWordTimes]) -> Chart:
    """Chart of the seconds to the first word by day."""
    by_day = {day_times.day: day_times for day_times in times}
    daily = [by_day.get(day) for day in period.all_days]
    return Chart(
        key="waiting",
        title=_("Seconds to the first word"),
        labels=[date_format(day, "MONTH_DAY_FORMAT") for day in period.all_days],
        series=[
            Series(
                _("Median"),
                "#2b917b",
                [_to_seconds(day_times.median if day_times else None) for day_times in daily],
            ),
            Series(
                _("95th percentile"),
                "#d29922",
                [_to_seconds(day_times.p95 if day_times else None) for day_times in daily],
            ),
        ],
        kind="line",
    )


def describe_tokens(
    title: str, heading: str, rows: Sequence[TokenUse], link: Any, unnamed: str = "–"
) -> dict[str, Any]:
    """A table of tokens and cost."""
    return {
        "title": title,
        "heading": heading,
        "rows": [
            {
                "name": row.name or unnamed,
                "link": link(row) if link else "",
                "answers": _format_count(row.answers),
                "read": _format_count(row.read),
                "written": _format_count(row.written),
                "cost": "–" if row.cost is None else _format_money(row.cost),
            }
            for row in rows
        ],
    }


def _link_model(period: Period) -> Any:
    return lambda row: make_message_list_link(period.since, role__exact="assistant", model=row.key)


def _link_group(row: TokenUse) -> str:
    users = reverse("admin:auth_user_changelist")
    return f"{users}?groups__id__exact={row.key}" if row.key else f"{users}?groups__isnull=True"


def _link_person(period: Period) -> Any:
    return lambda row: make_message_list_link(period.since, q=row.name, role__exact="assistant")


def _format_moment(moment: datetime) -> str:
    return moment.isoformat(" ")


def _format_count(number: int) -> str:
    return number_format(number, force_grouping=True)


def _format_share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else "–"


def _format_money(amount: Decimal) -> str:
    return number_format(round(amount, 2), 2, force_grouping=True)


def _format_seconds(milliseconds: float) -> str:
    return _("%(count)s s") % {"count": number_format(round(milliseconds / 1000, 1), 1)}


def _to_seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else round(milliseconds / 1000, 2)
