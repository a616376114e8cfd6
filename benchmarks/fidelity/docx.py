"""How much of Word files arrives: likeness to the Markdown that others expect of each.

`python -m benchmarks.fidelity.docx [FOLDER]`; the folder holds `*.docx` and, in `groundtruth`, the
expected `*.docx.md`.
"""

import sys
from pathlib import Path

from benchmarks.fidelity import FILES
from documents.parsers import formats
from documents.parsers.base import Limits
from documents.parsers.sandbox import client
from tests.quality.likeness import likeness, token_f1

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "docx" / "docling"


def read(path: Path) -> str:
    """The text that is indexed."""
    with client.read_document(path, formats.DOCX, path.name, Limits()) as pages:
        return "\n\n".join(page.text for page in pages)


def main(folder: Path = FOLDER) -> dict[str, dict[str, float]]:
    """Likeness and token F1 by file, printed as a table with their means."""
    figures = {}
    for path in sorted(folder.glob("*.docx"))[:FILES]:
        expected = (folder / "groundtruth" / f"{path.name}.md").read_text(encoding="utf-8")
        text = read(path)
        found = {"likeness": likeness(text, expected), "token_f1": token_f1(text, expected)}
        print(f"{path.name:40}", *(f"{name} {value:.3f}" for name, value in found.items()))
        figures[path.name] = found
    for name in ("likeness", "token_f1"):
        mean = sum(one[name] for one in figures.values()) / max(1, len(figures))
        print(f"{f'mean of {len(figures)}':40} {name} {mean:.3f}")
    return figures


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
