"""Names what has become worse between two sets of results, by more than 15 percent.

    python -m benchmarks compare HEAD~20          # results kept then, and those here now
    python -m benchmarks compare before/ after/   # two folders

Figures whose name does not say which way is better are left out. A figure of one run on a machine
that was busy proves little: measure again before believing it.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import RESULTS, table

ROOT = Path(__file__).resolve().parents[1]
WORSE_SHARE = 0.15
SMALLEST = 1e-9
MORE_IS_BETTER = re.compile(
    r"per_second|/s$|times_faster|f1$|ndcg|mrr|recall|hit|precision|^(?:any_|right_)?right|covered"
    r"|exact|found|likeness|cells |order |evidence(?:_all)?$|in_sources"
    r"|as supported|as unsupported|as plain"
)
LESS_IS_BETTER = re.compile(
    r"(?:^|[ _])(?:ms|us|s|seconds|milliseconds|mb|bytes|p50|p95|p99|max)(?:$|[ _/])"
    r"|words cut|run together|no_passage|false_abstention|doubted|faults?$|faulty$"
    r"|^(?:modules|functions)$"
)
WRONG_VERDICT = re.compile(
    r"unsupported as supported|supported as unsupported|plain as unsupported"
)
NOT_MEASURED = frozenset({"aim", "aims", "aim_ms", "low", "high"})
"""Goals, and the bounds of intervals."""


@dataclass(frozen=True, slots=True)
class Change:
    """A figure that is worse: by `share` of what it was."""

    name: str
    before: float
    after: float
    share: float


def main(arguments: list[str] | None = None) -> int:
    """Compare; 1 where something is worse."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks compare", description=__doc__)
    parser.add_argument("before", help="a folder of results, or a revision that has some")
    parser.add_argument("after", nargs="?", help="the same; the results here, if left out")
    given = parser.parse_args(arguments)
    before, after = read_results(given.before), read_results(given.after or str(RESULTS))
    changes = list_regressions(before, after)
    rows = [(one.name, f"{one.before:g}", f"{one.after:g}", f"{one.share:+.0%}") for one in changes]
    table(f"Worse by more than {WORSE_SHARE:.0%}", ("figure", "before", "after", "worse by"), rows)
    for name in sorted(set(before) ^ set(after)):
        print(f"only in one of them: {name}")
    return 1 if changes else 0


def read_results(place: str) -> dict[str, Mapping[str, object]]:
    """The figures of each benchmark, by its name."""
    if Path(place).is_dir():
        texts = [path.read_text(encoding="utf-8") for path in sorted(Path(place).glob("*.json"))]
    else:
        folder = str(RESULTS.relative_to(ROOT))
        names = _ask_git("ls-tree", "--name-only", place, f"{folder}/").splitlines()
        texts = [_ask_git("show", f"{place}:{name}") for name in names if name.endswith(".json")]
    kept = map(json.loads, texts)
    return {one["benchmark"]: one["figures"] for one in kept}


def _ask_git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout


def list_regressions(
    before: Mapping[str, Mapping[str, object]], after: Mapping[str, Mapping[str, object]]
) -> list[Change]:
    """The figures of both that are worse now, the worst first."""
    found = []
    for name in sorted(set(before) & set(after)):
        figures = dict(_walk(after[name], name))
        for path, was in _walk(before[name], name):
            share = _measure_loss(path, was, figures.get(path))
            if share > WORSE_SHARE:
                found.append(Change(path, was, figures[path], share))
    return sorted(found, key=lambda one: -one.share)


def _walk(figures: object, path: str) -> Iterator[tuple[str, float]]:
    """Every figure with the names that lead to it."""
    if isinstance(figures, Mapping):
        for name, value in figures.items():
            if name not in NOT_MEASURED:
                yield from _walk(value, f"{path}/{name}")
    elif isinstance(figures, list):
        for number, value in enumerate(figures):
            yield from _walk(value, f"{path}/{number}")
    elif isinstance(figures, int | float) and not isinstance(figures, bool):
        yield path, float(figures)


def _measure_loss(path: str, was: float, now: float | None) -> float:
    """By which share of what it was a figure is worse; 0 where that cannot be said."""
    if now is None:
        return 0.0
    more = _is_more_better(path)
    if more is None:
        return 0.0
    worse = was - now if more else now - was
    return worse / max(abs(was), SMALLEST) if worse > 0 else 0.0


def _is_more_better(path: str) -> bool | None:
    """What the name nearest to the figure says; None: nothing."""
    for name in reversed(path.split("/")[1:]):
        if WRONG_VERDICT.search(name):
            return False
        if MORE_IS_BETTER.search(name):
            return True
        if LESS_IS_BETTER.search(name):
            return False
    return None


if __name__ == "__main__":
    sys.exit(main())
