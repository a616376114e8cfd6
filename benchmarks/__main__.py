"""Run the named benchmarks, or all of them, each on its own product in a temporary folder.

`compare BEFORE [AFTER]` names what has become worse instead.
"""

import argparse
import subprocess
import sys

from benchmarks import (
    access,
    administration,
    answers,
    compare,
    first_delta,
    first_token,
    footprint,
    growth,
    hostile,
    ingest_queue,
    llm_parsing,
    million,
    page,
    passages,
    people,
    search_beside_ingest,
    speed,
    wire,
)
from benchmarks.fidelity import run as fidelity
from benchmarks.grounding import run as grounding
from benchmarks.ingest import run as ingest
from benchmarks.pdf_tables import run as pdf_tables
from benchmarks.quality import run as quality
from benchmarks.streams import run as streams
from benchmarks.streams import starts
from benchmarks.trace import run as trace

ALL = {
    "access": access,
    "administration": administration,
    "answers": answers,
    "fidelity": fidelity,
    "first_delta": first_delta,
    "first_token": first_token,
    "footprint": footprint,
    "grounding": grounding,
    "growth": growth,
    "hostile": hostile,
    "ingest": ingest,
    "ingest_queue": ingest_queue,
    "llm_parsing": llm_parsing,
    "million": million,
    "page": page,
    "passages": passages,
    "people": people,
    "pdf_tables": pdf_tables,
    "quality": quality,
    "search_beside_ingest": search_beside_ingest,
    "speed": speed,
    "starts": starts,
    "streams": streams,
    "trace": trace,
    "wire": wire,
}


def main() -> None:
    if sys.argv[1:2] == ["compare"]:
        sys.exit(compare.main(sys.argv[2:]))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(ALL)}; none means all")
    names = parser.parse_args().names
    if unknown := set(names) - set(ALL):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}")
    if len(names) == 1:
        ALL[names[0]].main()
        return
    for name in names or ALL:  # each in a process of its own: some set up Django in another folder
        subprocess.run([sys.executable, "-m", "benchmarks", name], check=True)


if __name__ == "__main__":
    main()
