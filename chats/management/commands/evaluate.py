"""`manage.py evaluate FILE [--user NAME] [--compare NAME=VALUE ...] [--judge] [--json OUT] ...`.

Asks, measures, and shows the figures: lines for a terminal, and a self-contained page.
"""

import asyncio
import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.template.loader import render_to_string
from django.utils.translation import gettext as _

from chats import evaluation
from chats.evaluation import AskableDocuments, Configuration
from chats.management.commands.ask import find_user
from rag.adapters.endpoint import Breaker
from rag.adapters.light import COSTLY_ERRORS, Light
from rag.errors import LLMError
from rag.evaluation import measures
from rag.evaluation.measures import MEASURES, AnsweredTurn, Measure, judge_turn
from rag.evaluation.question_set import (
    ExpectedTurn,
    QuestionLine,
    SetUnreadableError,
    find_missing_facts,
    parse_set,
)
from rag.factory import get_light_model, get_main_model

JUDGE_SECONDS = 60.0
PATIENT_FAILURES = 1_000_000
"""A judge that fails is still asked about the next answer: nobody waits for it."""


@dataclass(slots=True)
class MeasuredConfiguration:
    """A configuration with the measures and records of its turns, by line."""

    configuration: Configuration
    measures: list[list[dict[str, float]]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    judge_failures: int = 0

    def summarise(self, kind: str | None = None) -> dict[str, float]:
        """Mean measures of all turns, or of those of one kind."""
        turns = [turn for line in self.measures for turn in line]
        pairs = zip(turns, self.records, strict=True)
        return measures.summarise_turns([t for t, r in pairs if kind is None or r["kind"] == kind])


class Command(BaseCommand):
    """Measures answers to questions whose facts are known."""

    help = (
        "Ask the questions of a file (JSON Lines of {id, documents?, turns: [{user, gold, "
        "answerable}]}) and measure the answers. Nothing is stored."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """The questions, user, settings, and output of the figures."""
        parser.add_argument("file", nargs="?", type=Path, help="the questions")
        parser.add_argument(
            "--user", help="whose documents; without it the only user, or an administrator"
        )
        parser.add_argument(
            "--compare",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="measure a second configuration with this setting beside the first; repeatable",
        )
        parser.add_argument("--judge", action="store_true", help="let the model grade, too")
        parser.add_argument("--json", type=Path, metavar="OUT", help="every turn and figure")
        parser.add_argument("--html", type=Path, metavar="OUT", help="a page with charts")
        parser.add_argument(
            "--from-feedback",
            action="store_true",
            help="ask nothing: write a set from the user's thumbs-down to FILE or the output",
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Exit status 1 only if nothing could be measured: people judge the figures."""
        user = find_user(options["user"])
        if options["from_feedback"]:
            self._write_feedback(evaluation.list_feedback_lines(user), options["file"])
            return
        lines = _read_questions(options["file"])
        askable = AskableDocuments.from_user(user)
        _check_documents(lines, askable)
        configurations = _make_configurations(options["compare"])
        judge = _choose_judge(configurations[0]) if options["judge"] else None
        results = asyncio.run(self._measure_all(lines, askable, configurations, judge))
        figures = _compute_figures(results, options["file"].name)
        self._print_tables(figures)
        if options["json"]:
            turns = [result.records for result in results]
            _write_file(
                options["json"], json.dumps({**figures, "turns": turns}, ensure_ascii=False)
            )
        if options["html"]:
            _write_file(
                options["html"], render_page(figures, [result.records for result in results])
            )

    async def _measure_all(
        self,
        lines: Sequence[QuestionLine],
        askable: AskableDocuments,
        configurations: Sequence[Configuration],
        judge: Light | None,
    ) -> list[MeasuredConfiguration]:
        """Line by line, configurations by turns, so that the machine's load is the same for all."""
        results = [MeasuredConfiguration(configuration) for configuration in configurations]
        for number, line in enumerate(lines, 1):
            for result in results if number % 2 else reversed(results):
                answered = await evaluation.answer_line(result.configuration, line, askable)
                await _measure_line(result, line, askable, answered, judge)
            self.stderr.write(f"\r{number} of {len(lines)}", ending="")
            self.stderr.flush()
        self.stderr.write("")
        return results

    def _write_feedback(self, lines: Iterator[Mapping[str, Any]], file: Path | None) -> None:
        texts = [json.dumps(line, ensure_ascii=False) for line in lines]
        if file is None:
            self.stdout.write("\n".join(texts))
        elif file.exists():
            raise CommandError(f"{file} is there already")
        else:
            _write_file(file, "".join(f"{text}\n" for text in texts))
            self.stderr.write(f"{len(texts)} questions in {file}; fill in `gold` and `answerable`")

    def _print_tables(self, figures: Mapping[str, Any]) -> None:
        """A table of all turns, and one by kind."""
        for line in to_text_lines(figures):
            self.stdout.write(line)


def _read_questions(file: Path | None) -> list[QuestionLine]:
    if file is None:
        raise CommandError("name a file of questions")
    try:
        return parse_set(file.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, SetUnreadableError) as error:
        raise CommandError(f"{file}: {error}") from error


def _write_file(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(str(error)) from error


def _check_documents(lines: Sequence[QuestionLine], askable: AskableDocuments) -> None:
    if not askable.ids:
        raise CommandError("this user has no documents that can be searched")
    try:
        for line in lines:
            askable.find_ids(line)
    except evaluation.DocumentUnknown as error:
        raise CommandError(str(error)) from error


def _make_configurations(changes: Sequence[str]) -> list[Configuration]:
    current = evaluation.make_current_configuration()
    if not changes:
        return [current]
    try:
        return [current, evaluation.make_changed_configuration(changes)]
    except (evaluation.SettingRefused, ImproperlyConfigured) as error:
        raise CommandError(f"--compare {error}") from error


def _choose_judge(configuration: Configuration) -> Light:
    """The main model of the current configuration, else its light one."""
    light = get_light_model(configuration.rag.light_llm)
    model = get_main_model(configuration.rag.llm) or (light.llm if light else None)
    if model is None:
        raise CommandError("--judge needs a language model: NURA_LLM_BASE_URL, NURA_LLM_MODEL")
    return Light(model, JUDGE_SECONDS, Breaker(PATIENT_FAILURES, COSTLY_ERRORS))


async def _measure_line(
    measured: MeasuredConfiguration,
    line: QuestionLine,
    askable: AskableDocuments,
    answered: Sequence[AnsweredTurn],
    judge: Light | None,
) -> None:
    """Measure the turns of a line."""
    documents = askable.find_ids(line)
    rows: list[dict[str, float]] = []
    earlier: list[tuple[str, str]] = []
    for number, (expected, turn) in enumerate(zip(line.turns, answered, strict=True), 1):
        row = measures.measure_turn(expected, turn, documents)
        if judge and not turn.error:
            try:
                row |= await judge_turn(judge, expected.user, turn, earlier)
            except LLMError:
                measured.judge_failures += 1
        earlier.append((expected.user, turn.content))
        rows.append(row)
        measured.records.append(_describe_turn(line, number, expected, turn, row))
    measured.measures.append(rows)


def _describe_turn(
    line: QuestionLine,
    number: int,
    expected: ExpectedTurn,
    turn: AnsweredTurn,
    row: Mapping[str, float],
) -> dict[str, Any]:
    """A turn's record in the file of figures."""
    text = turn.evidence_text
    return {
        "id": line.id,
        "turn": number,
        "kind": expected.kind,
        "user": expected.user,
        "answer": turn.content,
        "mode": turn.mode,
        "label": turn.label,
        "error": turn.error,
        "sources": [
            {"slot": source.slot, "chunk_id": source.chunk_id, "cited": source.cited}
            for source in turn.sources
        ],
        "missing_in_prompt": []
        if text is None
        else find_missing_facts(expected.facts, text, in_answer=False),
        "missing_in_answer": find_missing_facts(expected.facts, turn.content, in_answer=True),
        "measures": dict(row),
    }


def _compute_figures(results: Sequence[MeasuredConfiguration], name: str) -> dict[str, Any]:
    """The summary: by configuration, by kind, and the differences."""
    kinds = list(dict.fromkeys(record["kind"] for record in results[0].records if record["kind"]))
    figures: dict[str, Any] = {
        "set": name,
        "lines": len(results[0].measures),
        "turns": len(results[0].records),
        "configurations": [
            {
                "name": one.configuration.name,
                "model": one.configuration.model,
                "all": one.summarise(),
                "kinds": {kind: one.summarise(kind) for kind in kinds},
                "judge_failures": one.judge_failures,
            }
            for one in results
        ],
        "differences": {},
    }
    if len(results) > 1:
        differences = measures.compare_runs(results[0].measures, results[1].measures)
        figures["differences"] = {
            name: asdict(one) | {"certain": one.is_certain} for name, one in differences.items()
        }
    return figures


OF_A_KIND = ("evidence_all", "facts", "citations", "label", "false_abstention", "abstains")
"""Measures shown for each kind of question."""

LABEL_X, BAR_X, BAR_WIDTH, ROW_HEIGHT, PAD = 230, 240, 340, 34, 8
"""Sizes in the charts, in units of their view box."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a chart with its value; `series` counts configurations from 0."""

    y: int
    width: float
    series: int
    value: str


@dataclass(frozen=True, slots=True)
class MeasureRow:
    """A labelled row of a chart."""

    y: int
    name: str
    bars: tuple[Bar, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasureChart:
    """Rows of bars between 0 and 1."""

    title: str
    rows: tuple[MeasureRow, ...]
    height: int


def get_measure_names() -> dict[str, str]:
    """Display names of the measures."""
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


def render_page(figures: Mapping[str, Any], records: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """One self-contained HTML file. `records` are turns, by configuration."""
    configurations = figures["configurations"]
    differences = _list_differences(figures)
    context = {
        "figures": figures,
        "configurations": [
            configuration | {"title": configuration["name"] or _("Present settings")}
            for configuration in configurations
        ],
        "charts": list(_draw_charts(figures)),
        "differences": differences,
        "differences_height": PAD + len(differences) * ROW_HEIGHT,
        "amounts": list(_list_amounts(figures)),
        "turns": [_to_compared_turn(turn) for turn in zip(*records, strict=True)],
        "label_x": LABEL_X,
        "bar_x": BAR_X,
        "bar_width": BAR_WIDTH,
        "bar_end": BAR_X + BAR_WIDTH,
        "zero_x": BAR_X + BAR_WIDTH / 2,
    }
    return render_to_string("evaluation.html", context)


def to_text_lines(figures: Mapping[str, Any]) -> Iterator[str]:
    """Tables for a terminal: all turns, then by kind."""
    configurations = figures["configurations"]
    size = _("%(lines)s conversations, %(turns)s questions") % figures
    yield f"{figures['set']}: {size}"
    for letter, configuration in zip("AB", configurations, strict=False):
        model = configuration["model"] or _("no language model")
        yield f"{letter}: {configuration['name'] or _('Present settings')} ({model})"
        if count := configuration["judge_failures"]:
            ungraded = _("%(count)s answers could not be graded") % {"count": count}
            yield f"{letter}: {ungraded}"
    header = ["", "A"] + (["B", _("B - A, confidence interval")] if len(configurations) > 1 else [])
    rows = [_to_text_row(figures, measure) for measure in MEASURES]
    yield from _align_rows([header, *(row for row in rows if row)])
    for letter, configuration in zip("AB", configurations, strict=False):
        if configuration["kinds"]:
            names = [name for name in OF_A_KIND if name in configuration["all"]]
            header = [_("%(letter)s by kind") % {"letter": letter}, *names]
            kinds = [
                [kind, *(_format_value(values.get(name), is_share=True) for name in names)]
                for kind, values in configuration["kinds"].items()
            ]
            yield from ("", *_align_rows([header, *kinds]))


def _to_text_row(figures: Mapping[str, Any], measure: Measure) -> list[str]:
    values = [configuration["all"].get(measure.name) for configuration in figures["configurations"]]
    if not any(value is not None for value in values):
        return []
    cells = [measure.name, *(_format_value(value, is_share=measure.is_share) for value in values)]
    if len(values) > 1:
        cells.append(_format_interval(figures["differences"].get(measure.name), measure))
    return cells


def _align_rows(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(_count_columns, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        blanks = [
            " " * (width - _count_columns(cell)) for cell, width in zip(row, widths, strict=True)
        ]
        first, *others = zip(row, blanks, strict=True)
        yield "  ".join([first[0] + first[1], *(blank + cell for cell, blank in others)]).rstrip()


def _count_columns(text: str) -> int:
    """The width of a text in a terminal: a Hangul syllable takes two columns."""
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)


def _format_value(value: float | None, *, is_share: bool) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if is_share else f"{value:,.0f}"


def _format_interval(difference: Mapping[str, float] | None, measure: Measure) -> str:
    """The interval as text, with a star if the difference is certain."""
    if difference is None:
        return "-"
    pattern = "+.3f" if measure.is_share else "+,.0f"
    star = " *" if difference["certain"] else ""
    span = f"{difference['low']:{pattern}} … {difference['high']:{pattern}}"
    return f"{difference['value']:{pattern}} ({span}, n = {difference['lines']}){star}"


def _draw_charts(figures: Mapping[str, Any]) -> Iterator[MeasureChart]:
    names = get_measure_names()
    shares = [measure.name for measure in MEASURES if measure.is_share]
    totals = [one["all"] for one in figures["configurations"]]
    rows = [(names[name], [one.get(name) for one in totals]) for name in shares]
    yield _draw_chart(_("All questions"), rows)
    kinds = figures["configurations"][0]["kinds"]
    for name in OF_A_KIND:
        rows = [
            (kind, [one["kinds"][kind].get(name) for one in figures["configurations"]])
            for kind in kinds
        ]
        if any(value is not None for _kind, values in rows for value in values):
            yield _draw_chart(names[name], rows)


def _draw_chart(title: str, rows: Sequence[tuple[str, Sequence[float | None]]]) -> MeasureChart:
    chart_rows: list[MeasureRow] = []
    for name, values in rows:
        if all(value is None for value in values):
            continue
        top = PAD + len(chart_rows) * ROW_HEIGHT
        height = (ROW_HEIGHT - PAD) // len(values)
        bars = tuple(
            Bar(top + series * height, round(value * BAR_WIDTH, 1), series, f"{value:.3f}")
            for series, value in enumerate(values)
            if value is not None
        )
        chart_rows.append(MeasureRow(top, name, bars))
    return MeasureChart(title, tuple(chart_rows), PAD + len(chart_rows) * ROW_HEIGHT)


def _list_differences(figures: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of the chart of differences between shares, from -1 (left) to 1 (right)."""
    names = get_measure_names()
    lines: list[dict[str, Any]] = []
    for measure in MEASURES:
        difference = figures["differences"].get(measure.name)
        if difference is None or not measure.is_share:
            continue
        positions = {
            name: round(BAR_X + (difference[name] + 1) * BAR_WIDTH / 2, 1)
            for name in ("value", "low", "high")
        }
        direction = "better" if difference["value"] * measure.better > 0 else "worse"
        kind = direction if difference["certain"] else "open"
        top = PAD + len(lines) * ROW_HEIGHT
        lines.append(
            {"y": top + ROW_HEIGHT // 2, "name": names[measure.name], "kind": kind, **positions}
            | {"told": _format_interval(difference, measure)}
        )
    return lines


def _list_amounts(figures: Mapping[str, Any]) -> Iterator[list[str]]:
    names = get_measure_names()
    for measure in MEASURES:
        row = _to_text_row(figures, measure)
        if row and not measure.is_share:
            yield [names[measure.name], *row[1:]]


def _to_compared_turn(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A question with its answer of every configuration."""
    first = answers[0]
    wrong = any(
        answer["missing_in_answer"] or answer["error"] or answer["measures"].get("label") == 0
        for answer in answers
    )
    return {"first": first, "answers": answers, "wrong": wrong}
