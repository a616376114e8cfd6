"""Whether HWP 5 and HWPX of the same document give the same words."""

from pathlib import Path

from benchmarks.fidelity import FILES
from documents.parsers import formats
from documents.parsers.base import ParseFailed
from documents.parsers.sandbox import client
from tests.quality.likeness import likeness, token_f1


def main(folder: Path) -> dict[str, dict[str, float]]:
    """Likeness and token F1 by pair, printed as they come."""
    figures = {}
    for binary in sorted(folder.rglob("*.hwp"))[:FILES]:
        xml = binary.with_suffix(".hwpx")
        if xml.exists():
            one, other = _ending(binary), _ending(xml)
            figures[binary.stem] = {
                "characters": float(len(one)),
                "likeness": round(likeness(one, other), 3),
                "token_f1": round(token_f1(one, other), 3),
            }
            print(binary.stem, figures[binary.stem])
    return figures


def _ending(path: Path) -> str:
    """The text, or why there is none."""
    try:
        with client.read_document(
            path, formats.detect_content_type(path, path.name), path.name
        ) as pages:
            return "\n\n".join(page.text for page in pages)
    except ParseFailed as failure:
        return failure.code
