"""`manage.py evaluate FILE [--user NAME] [--compare NAME=VALUE ...] [--judge] [--json OUT] ...`."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser

from chats import evaluation, evaluation_page
from chats.evaluation import AskableDocuments, Configuration
from chats.management.commands.ask import find_user
from rag.adapters.endpoint import CallGate
from rag.adapters.light import Light
from rag.errors import LLMError
from rag.evaluation import facts, measures
from rag.evaluation.judge import judge_turn
from rag.evaluation.measures import AnsweredTurn
from rag.evaluation.question_set import (
    ExpectedTurn,
    QuestionLine,
    SetUnreadableError,
    parse_set,
)
from rag.factory import light_model, main_model

JUDGE_SECONDS = 60.0
PATIENT_FAILURES = 1_000_000
"""A judge that failed is asked again for the next answer: nobody waits for it."""


@dataclass(slots=True)
class Measured:
    """A configuration's answers: measures and records of turns, by line."""

    configuration: Configuration
    measures: list[list[dict[str, float]]] = field(default_factory=list)
    records: list[dict[str, Any]] = field(default_factory=list)
    judge_failures: int = 0

    def summary(self, kind: str | None = None) -> dict[str, float]:
        """Of all turns, or of those of a kind."""
        turns = [turn for line in self.measures for turn in line]
        kept = zip(turns, self.records, strict=True)
        return measures.summarise([t for t, r in kept if kind is None or r["kind"] == kind])


class Command(BaseCommand):
    """Measures answers to questions whose facts are known."""

    help = (
        "Ask the questions of a file (JSON Lines of {id, documents?, turns: [{user, gold, "
        "answerable}]}) and measure the answers. Nothing is stored."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """What is asked, as whom, with which settings, and where the figures go."""
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
        """Exit status 1 only where nothing could be measured: the figures are for people."""
        user = find_user(options["user"])
        if options["from_feedback"]:
            self._write_feedback(evaluation.list_feedback_lines(user), options["file"])
            return
        lines = _read(options["file"])
        askable = AskableDocuments.of(user)
        _check_documents(lines, askable)
        configurations = _configurations(options["compare"])
        judge = _judge(configurations[0]) if options["judge"] else None
        found = asyncio.run(self._measure_all(lines, askable, configurations, judge))
        figures = _figures(found, options["file"].name)
        self._print(figures)
        if options["json"]:
            turns = [one.records for one in found]
            _write(options["json"], json.dumps({**figures, "turns": turns}, ensure_ascii=False))
        if options["html"]:
            _write(options["html"], evaluation_page.render(figures, [one.records for one in found]))

    async def _measure_all(
        self,
        lines: Sequence[QuestionLine],
        askable: AskableDocuments,
        configurations: Sequence[Configuration],
        judge: Light | None,
    ) -> list[Measured]:
        """Line by line, every configuration in turn, so that the machine is the same for all."""
        found = [Measured(configuration) for configuration in configurations]
        for number, line in enumerate(lines, 1):
            for one in found if number % 2 else reversed(found):
                answered = await evaluation.answer_line(one.configuration, line, askable)
                await _take(one, line, askable, answered, judge)
            self.stderr.write(f"\r{number} of {len(lines)}", ending="")
            self.stderr.flush()
        self.stderr.write("")
        return found

    def _write_feedback(self, lines: Iterator[Mapping[str, Any]], file: Path | None) -> None:
        texts = [json.dumps(line, ensure_ascii=False) for line in lines]
        if file is None:
            self.stdout.write("\n".join(texts))
        elif file.exists():
            raise CommandError(f"{file} is there already")
        else:
            _write(file, "".join(f"{text}\n" for text in texts))
            self.stderr.write(f"{len(texts)} questions in {file}; fill in `gold` and `answerable`")

    def _print(self, figures: Mapping[str, Any]) -> None:
        """A table of all turns, and one by kind."""
        for line in evaluation_page.to_text(figures):
            self.stdout.write(line)


def _read(file: Path | None) -> list[QuestionLine]:
    if file is None:
        raise CommandError("name a file of questions")
    try:
        return parse_set(file.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, SetUnreadableError) as error:
        raise CommandError(f"{file}: {error}") from error


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(str(error)) from error


def _check_documents(lines: Sequence[QuestionLine], askable: AskableDocuments) -> None:
    if not askable.ids:
        raise CommandError("this user has no documents that can be searched")
    try:
        for line in lines:
            askable.find(line)
    except evaluation.DocumentUnknown as error:
        raise CommandError(str(error)) from error


def _configurations(changes: Sequence[str]) -> list[Configuration]:
    present = evaluation.make_present_configuration()
    if not changes:
        return [present]
    try:
        return [present, evaluation.make_changed_configuration(changes)]
    except (evaluation.SettingRefused, ImproperlyConfigured) as error:
        raise CommandError(f"--compare {error}") from error


def _judge(configuration: Configuration) -> Light:
    """The main model of the present configuration, else its light one."""
    light = light_model(configuration.rag.light_llm)
    model = main_model(configuration.rag.llm) or (light.llm if light else None)
    if model is None:
        raise CommandError("--judge needs a language model: NURA_LLM_BASE_URL, NURA_LLM_MODEL")
    return Light(model, JUDGE_SECONDS, CallGate(limit=PATIENT_FAILURES))


async def _take(
    measured: Measured,
    line: QuestionLine,
    askable: AskableDocuments,
    answered: Sequence[AnsweredTurn],
    judge: Light | None,
) -> None:
    """Measure the turns of a line."""
    documents = askable.find(line)
    rows: list[dict[str, float]] = []
    earlier: list[tuple[str, str]] = []
    for number, (expected, one) in enumerate(zip(line.turns, answered, strict=True), 1):
        row = measures.measure_turn(expected, one, documents)
        if judge and not one.error:
            try:
                row |= await judge_turn(judge, expected.user, one, earlier)
            except LLMError:
                measured.judge_failures += 1
        earlier.append((expected.user, one.content))
        rows.append(row)
        measured.records.append(_record(line, number, expected, one, row))
    measured.measures.append(rows)


def _record(
    line: QuestionLine,
    number: int,
    expected: ExpectedTurn,
    answered: AnsweredTurn,
    row: Mapping[str, float],
) -> dict[str, Any]:
    """What the file of figures keeps of a turn."""
    text = answered.evidence_text
    return {
        "id": line.id,
        "turn": number,
        "kind": expected.kind,
        "user": expected.user,
        "answer": answered.content,
        "mode": answered.mode,
        "label": answered.label,
        "error": answered.error,
        "sources": [
            {"slot": one.slot, "chunk_id": one.chunk_id, "cited": one.cited}
            for one in answered.sources
        ],
        "missing_in_prompt": []
        if text is None
        else facts.missing_facts(expected.facts, text, in_answer=False),
        "missing_in_answer": facts.missing_facts(expected.facts, answered.content, in_answer=True),
        "measures": dict(row),
    }


def _figures(found: Sequence[Measured], name: str) -> dict[str, Any]:
    """What is told of all: by configuration, by kind, and the differences."""
    kinds = list(dict.fromkeys(record["kind"] for record in found[0].records if record["kind"]))
    figures: dict[str, Any] = {
        "set": name,
        "lines": len(found[0].measures),
        "turns": len(found[0].records),
        "configurations": [
            {
                "name": one.configuration.name,
                "model": one.configuration.model,
                "all": one.summary(),
                "kinds": {kind: one.summary(kind) for kind in kinds},
                "judge_failures": one.judge_failures,
            }
            for one in found
        ],
        "differences": {},
    }
    if len(found) > 1:
        differences = measures.compare(found[0].measures, found[1].measures)
        figures["differences"] = {
            name: asdict(one) | {"certain": one.is_certain} for name, one in differences.items()
        }
    return figures
