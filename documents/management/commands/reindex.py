"""`manage.py reindex`: change the embedding model while the old one stays in use."""

import re
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, OutputWrapper

from documents import reindex, renewal, spaces
from documents.models import Reindexing, ReindexState
from documents.reindex import ReindexBusyError, ReindexTarget
from jobs.lease import Lease, LeaseLostError
from rag.errors import EmbedderFailed

MEMORY = re.compile(r"(?P<number>[0-9]+)(?P<unit>MB|GB)")
LINE_SECONDS = 2.0
"""Between two lines of progress."""


class Command(BaseCommand):
    """Fills a new embedding space, compares it with the old one, and swaps."""

    help = (
        "Embed all documents with another model while the present one serves, and change over when "
        "search finds no less. Run it again after an interruption: it goes on where it was."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The model, or one of the other operations."""
        parser.add_argument("--model", help="name or folder (default: NURA_EMBEDDING_MODEL)")
        parser.add_argument(
            "--base-url", default="", help="OpenAI-compatible endpoint of the model"
        )
        parser.add_argument("--languages", default="", help="what it knows: ko,en or * for all")
        parser.add_argument("--questions", type=Path, help="questions to compare on: JSON, CSV")
        parser.add_argument("--force", action="store_true", help="swap even if search finds less")
        parser.add_argument(
            "--terms",
            action="store_true",
            help="make the terms of documents that an earlier version indexed anew, embed nothing",
        )
        parser.add_argument(
            "--graph",
            metavar="MEMORY",
            help="make the graph of a large installation's vectors anew, denser, with so much of "
            "the database's memory (2GB); embed nothing",
        )
        parser.add_argument("--rollback", action="store_true", help="back to the model before")
        parser.add_argument("--drop-old", action="store_true", help="delete vectors not in use")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Run it; exit status 1 if the model was not changed."""
        if options["terms"]:
            self._renew_terms()
        elif options["graph"]:
            self._renew_graph(options["graph"])
        elif options["rollback"]:
            self._roll_back()
        elif options["drop_old"]:
            for space in renewal.drop_inactive_spaces():
                self.stdout.write(f"{space}: vectors deleted")
        else:
            self._change_over(_to_target(options), _to_options(options))

    def _change_over(self, target: ReindexTarget, options: reindex.ReindexOptions) -> None:
        lease = self._claim_change(target)
        try:
            state = reindex.carry_out_change(lease, Progress(self.stdout), options)
        except LeaseLostError as error:
            raise CommandError("Another process took over.") from error
        except EmbedderFailed as error:
            raise CommandError(
                f"{error} ({error.__cause__ or 'no cause known'}). The present model goes on to "
                "serve, what is embedded is kept: run the same command again to go on."
            ) from error
        finally:
            reindex.release_change(lease)
        run = Reindexing.objects.get(pk=lease.job_id)
        self._print_comparison(run.report)
        if state is ReindexState.REFUSED:
            raise CommandError(
                "With the new model search finds less: nothing was changed over. Its vectors are "
                "kept; the same command with --force uses them, --drop-old deletes them."
            )
        self.stdout.write(self.style.SUCCESS(f"{spaces.get_active_space()} is in use."))

    def _claim_change(self, target: ReindexTarget) -> Lease[Reindexing]:
        """Claim the change; waits once for the lease of a process that may have been killed."""
        try:
            run = reindex.begin_change(target, background=False)
        except ReindexBusyError:
            seconds = Reindexing.LEASE.total_seconds() + 1
            self.stdout.write(f"Another process is at it, or was killed: waiting {seconds:.0f} s.")
            time.sleep(seconds)
            try:
                run = reindex.begin_change(target, background=False)
            except ReindexBusyError as error:
                raise CommandError("Another process is re-embedding: see the admin.") from error
        lease = reindex.claim_change(run.pk)
        if lease is None:
            raise CommandError("Another process is re-embedding: see the admin.")
        return lease

    def _print_comparison(self, report: dict[str, Any]) -> None:
        if not report:
            self.stdout.write("Nothing to compare on.")
            return
        self.stdout.write(f"{report['questions']} questions      recall@5  recall@10")
        for name in ("old", "new"):
            shares = report[name]
            self.stdout.write(f"  {name:<20} {shares['at_5']:>8.3f} {shares['at_10']:>9.3f}")

    def _renew_terms(self) -> None:
        progress = Progress(self.stdout)
        count = renewal.renew_terms(lambda done, total: progress.print_step("terms", done, total))
        self.stdout.write(self.style.SUCCESS(f"{count} documents brought over."))

    def _renew_graph(self, memory: str) -> None:
        space = spaces.get_active_space()
        if space is None or space.dimensions > spaces.MAX_INDEX_DIMENSIONS:
            raise CommandError("There is no graph: nothing is embedded, or vectors are too wide.")
        match = MEMORY.fullmatch(memory)
        if match is None:
            raise CommandError(f"{memory} is no amount of memory, such as 1800MB or 2GB.")
        megabytes = int(match["number"]) * (1024 if match["unit"] == "GB" else 1)
        needed = spaces.estimate_graph_megabytes(space)
        if megabytes < needed:
            raise CommandError(f"The graph needs {needed}MB of the database's memory to be made.")
        self.stdout.write(
            "The graph is made anew. Searches and uploads go on with the present one."
        )
        try:
            spaces.renew_graph(space, memory)
        except spaces.IndexBusyError as error:
            raise CommandError("Another process is making the graph anew.") from error
        self.stdout.write(self.style.SUCCESS("The new graph is in use."))

    def _roll_back(self) -> None:
        try:
            swap = reindex.roll_back_change()
        except ReindexBusyError as error:
            raise CommandError("A process is re-embedding: stop it first.") from error
        if swap is None:
            raise CommandError("There is no space to go back to.")
        self.stdout.write(self.style.SUCCESS(f"{swap.space} is in use again."))
        if swap.missing:
            self.stdout.write(
                f"{swap.missing} chunks uploaded since are found by their words only, until the "
                f"workers have embedded them (or now: manage.py reindex --model {swap.space.model})"
            )


class Progress:
    """Lines of progress with rate and remaining time."""

    def __init__(self, out: OutputWrapper) -> None:
        self._out = out
        self._last_line_at = 0.0
        self._step = ""
        self._started_at = time.monotonic()
        self._embedded_before = 0

    def report_progress(self, state: ReindexState, done: int, total: int, embedded: int) -> None:
        """See `ProgressListener`."""
        self.print_step(state.value, done, total, embedded)

    def print_step(self, name: str, done: int, total: int, embedded: int = 0) -> None:
        """Print a line every few seconds, and at the end of a step."""
        now = time.monotonic()
        if name != self._step:
            self._step, self._started_at, self._embedded_before = name, now, embedded
        elif now - self._last_line_at < LINE_SECONDS and done != total:
            return
        self._last_line_at = now
        seconds = max(now - self._started_at, 1e-3)
        rate = ((embedded - self._embedded_before) or done) / seconds
        rest = (
            f", {rate:.0f}/s, {_format_clock((total - done) / rate)} left" if rate and total else ""
        )
        figures = f" {done}/{total}" if total else ""
        self._out.write(f"{name}{figures}{rest}")
        self._out.flush()


def _format_clock(seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _to_target(options: dict[str, Any]) -> ReindexTarget:
    configured = reindex.get_configured_target()
    languages = tuple(sorted(filter(None, options["languages"].replace(" ", "").split(","))))
    if options["model"] in {None, configured.model}:
        if options["base_url"] not in {"", configured.base_url}:
            raise CommandError("NURA_EMBEDDING_BASE_URL says where the model of the settings is.")
        return ReindexTarget(
            configured.model, configured.base_url, languages or configured.languages
        )
    return ReindexTarget(options["model"], options["base_url"], languages)


def _to_options(options: dict[str, Any]) -> reindex.ReindexOptions:
    try:
        questions = reindex.read_questions(options["questions"]) if options["questions"] else None
    except reindex.QuestionsError as error:
        raise CommandError(str(error)) from error
    return reindex.ReindexOptions(questions, force=options["force"])
