"""Run the named benchmarks, or all of them, each on its own product in a temporary folder."""

import argparse

from benchmarks import first_delta, footprint, speed

ALL = {"first_delta": first_delta, "footprint": footprint, "speed": speed}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(ALL)}; none means all")
    names = parser.parse_args().names
    if unknown := set(names) - set(ALL):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}")
    for name in names or ALL:
        ALL[name].main()


if __name__ == "__main__":
    main()
