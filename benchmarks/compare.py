"""Names what has become worse between two sets of results, by more than 15 percent.

    python -m benchmarks compare HEAD~20          # results kept then, and those here now
    python -m benchmarks compare before/ after/   # two folders

Left out are figures whose name does not say which way is better, those of other systems, aims, and
benchmarks of which one result is of a quick run and the other is not. Each line ends with the load
that both were measured at: a figure of one run on a busy machine proves little, so measure again
before believing it.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import FULL_RESULTS, ROOT, table

WORSE_SHARE = 0.15
SMALLEST = 1e-9
MORE_IS_BETTER = re.compile(
    r"per_second|/s$|times_faster|f1$|ndcg|^r5$|mrr|recall|\bhit|precision|^(?:any_)?right(?:_page)?$"
    r"|^(?:covered|exact|found|held|quoted|headers|without_spaces)$|likeness|^cells |^order "
    r"|^evidence(?:_all)?$|^in_sources$|^facts$|^abstains$|^shared_prefix$|^of words whole$"
    r"|^(?:supported as supported|unsupported as unsupported|plain as plain)$"
)
LESS_IS_BETTER = re.compile(
    r"(?:^|[ _])(?:ms|us|s|seconds|milliseconds|mb|kb|bytes|ratio|p50|p95|p99|max)(?:$|[ _/])"
    r"|words cut|run together|no_passage|stranger_line|false_abstention|doubted|unanswered|^loss$"
    r"|faults?$|faulty$|^frames over|^cores|^(?:modules|functions|calls|requests)$"
    r"|^(?:unsupported as supported|supported as unsupported|plain as unsupported)$"
)
PLACES = (
    (re.compile(r"/planted/[^/]+/true\b[^/]*/doubted$"), False),
    (re.compile(r"/planted/[^/]+/[^/]+/doubted$"), True),
    (re.compile(r" without/(?:held|found)$"), False),
    (re.compile(r"/(?:characters|text_bytes)$"), None),
)
"""Where the same name says something else: who plants faults wants them doubted, of what no passage
answers nothing should be found, and some sizes stand among figures. Whether more is better, by the
first that fits."""
NOT_MEASURED = re.compile(
    r"^(?:aims?(?:_ms)?|low|high|reach|never_below|most_loss|every_seconds|seconds_left_told)$"
    r"|^rival|^Chroma|rank_bm25|^Bm25|^pdfplumber|^PyMuPDF|^openai objects"
)
"""Goals, bounds of intervals, what was set or foretold, and other systems."""


@dataclass(frozen=True, slots=True)
class Change:
    """A figure that is worse: by `share` of what it was."""

    name: str
    before: float
    after: float
    share: float
    loads: str = ""
    """Of the machine, before and after the change."""


def main(arguments: list[str] | None = None) -> int:
    """Compare; 1 where something is worse."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks compare", description=__doc__)
    parser.add_argument("before", help="a folder of results, or a revision that has some")
    parser.add_argument("after", nargs="?", help="the same; the results here, if left out")
    given = parser.parse_args(arguments)
    before, after = read_results(given.before), read_results(given.after or str(FULL_RESULTS))
    changes = list_regressions(before, after)
    rows = [
        (
            one.name,
            f"{one.before:g}",
            f"{one.after:g}",
            f"{one.share:+.0%}" if one.before else "from 0",
            one.loads,
        )
        for one in changes
    ]
    columns = ("figure", "before", "after", "worse by", "load")
    table(f"Worse by more than {WORSE_SHARE:.0%}", columns, rows)
    for name in sorted(set(before) ^ set(after)):
        print(f"only in one of them: {name}")
    for name in sorted(set(before) & set(after)):
        if not _is_alike(before[name], after[name]):
            print(f"one of a quick run, the other of a full one: {name}")
    return 1 if changes else 0


def read_results(place: str) -> dict[str, Mapping[str, object]]:
    """The result of each benchmark, by its name."""
    if Path(place).is_dir():
        texts = [path.read_text(encoding="utf-8") for path in sorted(Path(place).glob("*.json"))]
    else:
        folder = str(FULL_RESULTS.relative_to(ROOT))
        names = _ask_git("ls-tree", "--name-only", place, f"{folder}/").splitlines()
        texts = [_ask_git("show", f"{place}:{name}") for name in names if name.endswith(".json")]
    kept = map(json.loads, texts)
    return {one["benchmark"]: one for one in kept}


def _ask_git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


Result = Mapping[str, object]
Names = tuple[str, ...]
"""Those that lead to a figure, the benchmark's first; a name may hold a slash."""


def list_regressions(before: Mapping[str, Result], after: Mapping[str, Result]) -> list[Change]:
    """The figures of both that are worse now, the worst first."""
    found = []
    for name in sorted(set(before) & set(after)):
        if not _is_alike(before[name], after[name]):
            continue
        loads = " -> ".join(str(one[name].get("load_before", "?")) for one in (before, after))
        figures = dict(_walk(after[name]["figures"], (name,)))
        for path, was in _walk(before[name]["figures"], (name,)):
            share = _measure_loss(path, was, figures.get(path))
            if share > WORSE_SHARE:
                found.append(Change("/".join(path), was, figures[path], share, loads))
    return sorted(found, key=lambda one: -one.share)


def _is_alike(before: Result, after: Result) -> bool:
    """Whether both are of full runs, or both of quick ones."""
    return bool(before.get("quick")) == bool(after.get("quick"))


def _walk(figures: object, path: Names) -> Iterator[tuple[Names, float]]:
    """Every figure with the names that lead to it."""
    if isinstance(figures, Mapping):
        for name, value in figures.items():
            if not NOT_MEASURED.search(name):
                yield from _walk(value, (*path, name))
    elif isinstance(figures, list):
        for number, value in enumerate(figures):
            yield from _walk(value, (*path, str(number)))
    elif isinstance(figures, int | float) and not isinstance(figures, bool):
        yield path, float(figures)


def _measure_loss(path: Names, was: float, now: float | None) -> float:
    """By which share of what it was a figure is worse; 0 where that cannot be said."""
    if now is None:
        return 0.0
    more = _is_more_better(path)
    if more is None:
        return 0.0
    worse = was - now if more else now - was
    return worse / max(abs(was), SMALLEST) if worse > 0 else 0.0


def _is_more_better(path: Names) -> bool | None:
    """What the place says, or the name nearest to the figure; None: nothing."""
    for place, more in PLACES:
        if place.search("/".join(path)):
            return more
    for name in reversed(path[1:]):
        if MORE_IS_BETTER.search(name):
            return True
        if LESS_IS_BETTER.search(name):
            return False
    return None


if __name__ == "__main__":
    sys.exit(main())
