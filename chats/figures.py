"""Figures of answers and their cost, counted from the stored rows.

Purged chats and questions that were never stored are not counted: every number stands for rows
that can be listed.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import User
from django.db import connection
from django.db.models import (
    Aggregate,
    BigIntegerField,
    Count,
    F,
    FloatField,
    Q,
    QuerySet,
    Sum,
    TextChoices,
)
from django.db.models.fields.json import KT
from django.db.models.functions import Cast, TruncDate
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from chats.models import Message, Run
from documents.connected.models import ConnectedModel

Status, Label, Mode = Message.Status, Message.Label, Message.Mode
MILLION = 1_000_000


class AnswerResult(TextChoices):
    """The result of a question, for administrators."""

    DOCUMENTS = "documents", _("From documents")
    PARTIAL = "partial", _("Partly from documents")
    INSUFFICIENT = "insufficient", _("Not in the documents")
    GENERAL = "general", _("Without documents")
    FAILED = "failed", _("Failed")
    OTHER = "other", _("Stopped or asked back")


ANSWERS = Q(role=Message.Role.ASSISTANT)
QUESTIONS = Q(role=Message.Role.USER)
_FAILED = (Status.FAILED, Status.INTERRUPTED)
_LABELS: dict[str, str] = {
    Label.DOCUMENTS: AnswerResult.DOCUMENTS,
    Label.PASSAGES: AnswerResult.DOCUMENTS,
    Label.PARTIAL: AnswerResult.PARTIAL,
    Label.INSUFFICIENT: AnswerResult.INSUFFICIENT,
    Label.GENERAL: AnswerResult.GENERAL,
    Label.CONVERSATION: AnswerResult.GENERAL,
    Label.TOOLS: AnswerResult.GENERAL,
}
"""Results of completed answers by label; others are OTHER."""


def read_result(status: str, label: str) -> str:
    """The result of an answer with this status and label."""
    if status in _FAILED:
        return AnswerResult.FAILED
    result = _LABELS.get(label) if status == Status.COMPLETED else None
    return result or AnswerResult.OTHER


def list_answers(result: str) -> QuerySet[Message]:
    """The answers with this result."""
    conditions = Q()
    for status in Status.values:
        labels = [label for label in ("", *Label.values) if read_result(status, label) == result]
        conditions |= Q(status=status, label__in=labels)
    return Message.objects.filter(ANSWERS & conditions)


@dataclass(frozen=True, slots=True)
class DailyAnswers:
    """The number of questions on a day, and of results by `AnswerResult`."""

    day: date
    questions: int
    results: dict[str, int]


COUNTS_BY_DAY = """
    SELECT span.place, found.role, found.status, found.label, found.count
      FROM unnest(%s::timestamptz[], %s::timestamptz[])
           WITH ORDINALITY AS span(begun, ended, place)
     CROSS JOIN LATERAL (
           SELECT role, status, label, count(*) AS count
             FROM chats_message
            WHERE created_at >= span.begun AND created_at < span.ended
            GROUP BY role, status, label) AS found
"""
"""Counts each day as an index range; grouping by day would sort all rows."""


def count_days(since: datetime) -> list[DailyAnswers]:
    """Questions and results by day up to today, oldest first; days without any are left out.

    `since` is a local midnight.
    """
    first, today = timezone.localdate(since), timezone.localdate()
    days = [first + timedelta(days=place) for place in range((today - first).days + 2)]
    bounds = [timezone.make_aware(datetime.combine(day, time.min)) for day in days]
    questions: Counter[date] = Counter()
    results: defaultdict[date, Counter[str]] = defaultdict(Counter)
    with connection.cursor() as cursor:
        cursor.execute(COUNTS_BY_DAY, [bounds[:-1], bounds[1:]])
        for place, role, status, label, count in cursor.fetchall():
            day = days[place - 1]
            if role == Message.Role.USER:
                questions[day] += count
            else:
                results[day][read_result(status, label)] += count
    return [
        DailyAnswers(day, questions[day], dict(results[day]))
        for day in sorted({*questions, *results})
    ]


class Percentile(Aggregate):
    """`percentile_cont`: the value below which a share of all values lies."""

    function = "percentile_cont"
    template = "%(function)s(%(share)s) WITHIN GROUP (ORDER BY %(expressions)s)"
    output_field = FloatField()

    def __init__(self, name: str, *, share: float) -> None:
        super().__init__(name, share=share)


@dataclass(frozen=True, slots=True)
class FirstWordTimes:
    """Milliseconds from the question to the first word: median and 95th percentile.

    `day` is None for a whole period.
    """

    median: float
    p95: float
    day: date | None = None


_PERCENTILES = {
    "median": Percentile("first_word_ms", share=0.5),
    "p95": Percentile("first_word_ms", share=0.95),
}


def measure_first_words(since: datetime) -> FirstWordTimes | None:
    """Times of the whole period; None if no answer began."""
    rows = Run.objects.filter(created_at__gte=since, first_word_ms__isnull=False)
    times = rows.aggregate(**_PERCENTILES)
    return None if times["median"] is None else FirstWordTimes(times["median"], times["p95"])


def measure_first_words_by_day(since: datetime) -> list[FirstWordTimes]:
    """Times by day, oldest first."""
    rows = Run.objects.filter(created_at__gte=since, first_word_ms__isnull=False).order_by()
    days: Any = (
        rows.annotate(day=TruncDate("created_at"))
        .values("day")
        .annotate(**_PERCENTILES)
        .order_by("day")
    )
    return [FirstWordTimes(row["median"], row["p95"], row["day"]) for row in days]


@dataclass(frozen=True, slots=True)
class TokenUse:
    """Tokens of answers. `key` is a slug of a model, or the id of a group or user.

    `cost` is None where a model has no price.
    """

    key: Any
    name: str
    answers: int = 0
    read: int = 0
    written: int = 0
    cost: Decimal | None = Decimal(0)


class ModelUsage:
    """Usage of language models since a moment, read from the messages in one query."""

    def __init__(self, since: datetime) -> None:
        rows = Message.objects.filter(created_at__gte=since).order_by()
        groups = rows.values(owner=F("chat__owner_id"), asked=F("model"), served=KT("usage__model"))
        totals: Any = groups.annotate(
            questions=Count("role", filter=QUESTIONS),
            answers=Count("role", filter=ANSWERS & Q(usage__isnull=False)),
            read=_sum_tokens("prompt"),
            written=_sum_tokens("completion"),
        )
        self._rows = list(totals)
        self._prices = read_prices()

    def count_askers(self) -> int:
        """How many people asked something."""
        return len({row["owner"] for row in self._rows if row["questions"]})

    def sum_models(self) -> list[TokenUse]:
        """Usage by language model, most expensive and busiest first."""
        sums = self._sum_by_key(lambda row: [(row["asked"], row["served"] or row["asked"])])
        return sorted(sums, key=lambda use: (-(use.cost or 0), -use.read))

    def sum_groups(self) -> list[TokenUse]:
        """Usage by group; a user in two groups is counted in both.

        Those in no group have the key None.
        """
        groups: defaultdict[int, list[tuple[Any, str]]] = defaultdict(list)
        members = User.groups.through.objects.values_list("user_id", "group_id", "group__name")
        for user_id, group_id, name in members:
            groups[user_id].append((group_id, name))
        return self._sum_by_key(lambda row: groups.get(row["owner"], [(None, "")]))

    def sum_people(self, limit: int) -> list[TokenUse]:
        """The users who used most, at most `limit`."""
        sums = self._sum_by_key(lambda row: [(row["owner"], "")])[:limit]
        names = dict(
            User.objects.filter(pk__in=[use.key for use in sums]).values_list("pk", "username")
        )
        return [replace(use, name=names.get(use.key, "")) for use in sums]

    def _sum_by_key(
        self, find_keys: Callable[[dict[str, Any]], Iterable[tuple[Any, str]]]
    ) -> list[TokenUse]:
        """Usage summed by key, most tokens first."""
        sums: dict[Any, TokenUse] = {}
        for row in self._rows:
            if not row["answers"]:
                continue
            cost = self._compute_cost(row)
            for key, name in find_keys(row):
                total = sums.get((key, name)) or TokenUse(key, name)
                sums[key, name] = TokenUse(
                    key=key,
                    name=name,
                    answers=total.answers + row["answers"],
                    read=total.read + row["read"],
                    written=total.written + row["written"],
                    cost=None if total.cost is None or cost is None else total.cost + cost,
                )
        return sorted(sums.values(), key=lambda use: -(use.read + use.written))

    def _compute_cost(self, row: dict[str, Any]) -> Decimal | None:
        price = self._prices.get(row["asked"])
        if price is None:
            return None
        read, written = Decimal(row["read"]), Decimal(row["written"])
        return (price[0] * read + price[1] * written) / MILLION


def _sum_tokens(kind: str) -> Sum:
    return Sum(Cast(KT(f"usage__{kind}_tokens"), BigIntegerField()), default=0)


Price = tuple[Decimal, Decimal]
"""Prices of a million tokens read and written."""


def read_prices() -> dict[str, Price]:
    """Prices by model slug; models without a price are left out."""
    rows = ConnectedModel.objects.exclude(input_price=None, output_price=None)
    return {
        slug: (read or Decimal(0), written or Decimal(0))
        for slug, read, written in rows.values_list("slug", "input_price", "output_price")
    }
