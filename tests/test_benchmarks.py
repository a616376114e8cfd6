"""Benchmarks as they are run: small ones leave the kept results alone, and two results compare."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support import ROOT

KEPT = ROOT / "benchmarks" / "results"
QUICK = ROOT / "var" / "quick-results"


def run(*arguments: str, status: int = 0) -> str:
    """What `python -m benchmarks` prints."""
    command = [sys.executable, "-m", "benchmarks", *arguments]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == status, found.stderr
    return found.stdout


def measure(rounds: str, name: str, *, quick: bool) -> None:
    """What a benchmark does, and no more."""
    made = f"report.write({name!r}, {{'rounds': {rounds}}})"
    command = [sys.executable, "-c", f"from benchmarks import report; {made}"]
    told = {**os.environ, "NURA_BENCH_QUICK": "1" if quick else "0"}
    subprocess.run(command, cwd=ROOT, env=told, check=True)


def test_a_quick_run_is_small_says_what_it_ran_on_and_leaves_the_kept_results_alone():
    name = f"made-{uuid4().hex}"
    before = {path.name: path.read_bytes() for path in KEPT.iterdir()}
    try:
        measure("report.choose_size(3, quick=1)", name, quick=True)
        kept = json.loads((QUICK / f"{name}.json").read_text(encoding="utf-8"))
    finally:
        (QUICK / f"{name}.json").unlink(missing_ok=True)
    assert {path.name: path.read_bytes() for path in KEPT.iterdir()} == before
    assert kept["quick"] is True
    assert kept["figures"] == {"rounds": 1}
    assert kept["cores"] == len(os.sched_getaffinity(0))
    assert {"commit", "load_before", "load_after", "processor", "memory_gb", "seconds"} <= set(kept)


def test_a_full_run_is_whole_and_kept():
    name = f"made-{uuid4().hex}"
    try:
        measure("report.choose_size(3, quick=1)", name, quick=False)
        kept = json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))
    finally:
        (KEPT / f"{name}.json").unlink(missing_ok=True)
    assert kept["quick"] is False
    assert kept["figures"] == {"rounds": 3}


def listed() -> dict[str, Path]:
    """The file of each benchmark that can be named."""
    text = (ROOT / "benchmarks" / "__main__.py").read_text(encoding="utf-8")
    modules = re.findall(r'^    "(\w+)": "([\w.]+)",$', text, re.MULTILINE)
    assert len(modules) > 20
    return {name: ROOT / f"{module.replace('.', '/')}.py" for name, module in modules}


@pytest.mark.parametrize(("name", "path"), listed().items())
def test_every_benchmark_states_small_sizes(name, path):
    own = path.parent.name == "benchmarks"
    files = [path] if own else path.parent.glob("*.py")
    assert any("choose_size(" in file.read_text(encoding="utf-8") for file in files), name


def test_one_that_fails_is_named_and_the_others_run_in_the_same_size(tmp_path):
    assert not run("nothing_such", status=2)
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if any(one.startswith('benchmarks.') for one in sys.orig_argv):\n"
        f"    with open({str(tmp_path / 'ran')!r}, 'a') as ran:\n"
        "        print(sys.orig_argv[-1], os.environ['NURA_BENCH_QUICK'], file=ran)\n"
        "    os._exit(3 if 'benchmarks.trace.run' in sys.orig_argv else 0)\n"
    )
    command = [sys.executable, "-m", "benchmarks", "--quick", "trace", "wire"]
    told = {**os.environ, "PYTHONPATH": str(tmp_path)}
    found = subprocess.run(command, cwd=ROOT, env=told, capture_output=True, text=True, check=False)
    assert found.returncode == 1
    assert sorted((tmp_path / "ran").read_text().splitlines()) == [
        "benchmarks.trace.run 1",
        "benchmarks.wire 1",
    ]
    rows = {line.split()[0]: line.split()[2:] for line in found.stdout.splitlines() if line}
    assert rows["trace"] == ["3"]
    assert rows["wire"] == []


def test_two_that_keep_their_libraries_in_one_folder_run_one_after_the_other(tmp_path):
    made = """
import sys
from pathlib import Path
from benchmarks.scale import stock
folder = Path(sys.argv[1])
with stock.postgres(folder):
    (folder / "used").touch(exist_ok=False)
    print(stock.use_database("shared"), flush=True)
    (folder / "used").unlink()
"""
    command = [sys.executable, "-c", made, str(tmp_path)]
    running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(2)]
    ended = [(one.communicate()[0], one.returncode) for one in running]
    assert ended == [(b"shared_0\n", 0)] * 2


def keep(folder: Path, figures: Mapping[str, object], *, quick: bool = False) -> str:
    """A folder of results: of each name its figures."""
    folder.mkdir()
    for name, value in figures.items():
        kept = {"benchmark": name, "quick": quick, "load_before": 0.5, "figures": value}
        (folder / f"{name}.json").write_text(json.dumps(kept))
    return str(folder)


def nest(names: Sequence[str], value: float) -> object:
    """The figure below these names."""
    return {names[0]: nest(names[1:], value)} if names else value


GROWN = {
    "speed": (("ms", "search", "p50"), 10, 12),
    "pdf_tables": (("readers", "Nura", "pages/s"), 40, 30),
    "cells": (("readers", "Nura", "cells all"), 0.9, 0.7),
    "footprint": (("pss_mb", "empty", "documents"), 100, 140),
    "planted": (("planted", "seen", "date", "doubted"), 9, 7),
    "true": (("planted", "seen", "true", "doubted"), 7, 9),
    "by_hand": (("by_hand", "ko", "unsupported as unsupported"), 9, 7),
    "passages": (("xquad_en without", "found"), 0.1, 0.3),
    "quality": (("sets", "kr_law", "r5", "mean"), 0.9, 0.7),
}
"""Where a figure stands, what it was, and a worse one."""


def test_what_is_worse_is_named_and_what_is_better_is_not(tmp_path):
    better, worse = (
        keep(tmp_path / str(at), {name: nest(one[0], one[at]) for name, one in GROWN.items()})
        for at in (1, 2)
    )
    told = run("compare", better, worse, status=1)
    rows = [line for line in told.splitlines() if "/" in line]
    assert {line.split("  ")[0] for line in rows} == {
        "/".join((name, *one[0])) for name, one in GROWN.items()
    }
    assert all(line.endswith("0.5 -> 0.5") for line in rows)
    assert "/" not in run("compare", worse, better)


def test_what_there_was_nothing_of_has_grown_by_no_share(tmp_path):
    before = keep(tmp_path / "before", {"made": {"p50": 0}})
    after = keep(tmp_path / "after", {"made": {"p50": 3}})
    (row,) = [line for line in run("compare", before, after, status=1).splitlines() if "/" in line]
    assert row.split() == ["made/p50", "0", "3", "from", "0", "0.5", "->", "0.5"]


def test_aims_sizes_other_systems_and_small_changes_are_not_named(tmp_path):
    before = {
        "aim": {"aim": {"p50_ms": 10}, "aims": {"all": 10, "p95_ms": 3}},
        "rivals": {"rival_pages_per_second": 6, "ms": {"Chroma with a filter": {"p50": 6}}},
        "sizes": {"chunks": 100, "rate": 30},
        "small": {"p50": 100},
        "size": {"p50": 1},
    }
    after = {
        "aim": {"aim": {"p50_ms": 20}, "aims": {"all": 20, "p95_ms": 9}},
        "rivals": {"rival_pages_per_second": 3, "ms": {"Chroma with a filter": {"p50": 9}}},
        "sizes": {"chunks": 200, "rate": 10},
        "small": {"p50": 114},
    }
    told = run("compare", keep(tmp_path / "before", before), keep(tmp_path / "after", after))
    assert "/" not in told
    assert "only in one of them: size" in told


def test_a_quick_result_is_not_compared_with_a_full_one(tmp_path):
    full = keep(tmp_path / "full", {"made": {"p50": 1}})
    quick = keep(tmp_path / "quick", {"made": {"p50": 9}}, quick=True)
    assert "one of a quick run, the other of a full one: made" in run("compare", full, quick)
