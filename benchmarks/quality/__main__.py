"""Run the quality benchmark with a choice: `python -m benchmarks.quality --all`."""

import argparse

from benchmarks.quality import run
from tests.quality import sets


def main() -> None:
    names = (*sets.NAMES, *sets.FOR_INFORMATION)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=run.__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *names], help="sets; none means all")
    parser.add_argument("--all", action="store_true", help="ask every question of every set")
    parser.add_argument(
        "--docs", action="store_true", help="put the tables into docs/notes/retrieval.md"
    )
    wishes = parser.parse_args()
    run.main(everything=wishes.all, names=wishes.names, into_docs=wishes.docs)


if __name__ == "__main__":
    main()
