"""How much of PDF files arrives, whether passages name their page, and where they are marked.

`python -m benchmarks.fidelity.pdf [FOLDER]`; FOLDER holds `pdf` and `hwp` of the shared data.
Likeness is to Markdown that others expect. Passages are pieces of lines that pdfplumber reads, a
second opinion with boxes of its own: each is looked for in the chunks of the document.
"""

import sys
import time
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from statistics import mean

from benchmarks.fidelity import FILES
from documents.parsers import formats
from documents.parsers.base import Limits
from documents.parsers.pdf.geometry import Rect, find_bounding_box
from documents.parsers.sandbox import client
from rag.chunking import split_pages
from rag.types import Line, Page
from tests.quality.likeness import likeness, token_f1

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data"
MEASURED = ("pdf/docling/*.pdf", "pdf/us_public_records/*.pdf", "hwp/hancom_spec_pairs/*.pdf")
SHORTEST = 12
"""Characters of a passage."""
GAP = 0.5
"""Heights between two words of a passage."""


@dataclass(frozen=True)
class Passage:
    """Words on one line of a page as pdfplumber reads them; text without spaces."""

    page: int
    text: str
    boxes: tuple[Rect, ...]


def main(folder: Path = FOLDER) -> dict[str, dict[str, float]]:
    """Figures by file, printed as they come."""
    figures = {}
    for path in (path for pattern in MEASURED for path in sorted(folder.glob(pattern))[:FILES]):
        started = time.perf_counter()
        pages = read(path)
        found = {"pages": len(pages), "seconds": time.perf_counter() - started}
        expected = path.parent / "groundtruth" / f"{path.stem}.md"
        if expected.exists():
            found |= fidelity(pages, expected.read_text(encoding="utf-8"))
        found |= marked(pages, passages(path))
        print(f"{path.name:40}", *(f"{name} {value:.3f}" for name, value in found.items()))
        figures[path.name] = found
    return figures


def read(path: Path) -> tuple[Page, ...]:
    """The pages as they are indexed."""
    with client.read_document(path, formats.PDF, path.name, Limits()) as pages:
        return tuple(pages)


def fidelity(pages: Sequence[Page], expected: str) -> dict[str, float]:
    """Likeness to the expected text, with and without its spaces, and F1 of the words."""
    text = "\n\n".join(page.text for page in pages)
    return {
        "likeness": likeness(text, expected),
        "without_spaces": likeness(squashed(text), squashed(expected)),
        "token_f1": token_f1(text, expected),
    }


def marked(pages: Sequence[Page], wanted: Sequence[Passage]) -> dict[str, float]:
    """Shares of passages: found in a chunk, on their page, and their area under the marks.

    `covered` is by the boxes of the chunk, `exact` is intersection over union with the places of
    the passage's own characters.
    """
    chunks = split_pages(pages, size=1000, overlap=200).chunks
    texts = [squashed(chunk.content) for chunk in chunks]
    found, right, covered, exact = 0, 0, list[float](), list[float]()
    for passage in wanted:
        holders = [chunk for chunk, text in zip(chunks, texts, strict=True) if passage.text in text]
        found += bool(holders)
        here = [chunk for chunk in holders if chunk.page == passage.page]
        right += bool(here)
        if not here:
            continue
        boxes = [Rect(box.x0, box.y0, box.x1, box.y1) for box in here[0].boxes]
        covered.append(
            sum(map(area, overlaps(passage.boxes, boxes))) / sum(map(area, passage.boxes))
        )
        exact.append(
            likeness_of_areas(passage.boxes, places(pages[passage.page - 1], passage.text))
        )
    total = max(len(wanted), 1)
    return {
        "passages": len(wanted),
        "found": found / total,
        "right_page": right / max(found, 1),
        "covered": mean(covered or [0.0]),
        "exact": mean(exact or [0.0]),
    }


def passages(path: Path) -> list[Passage]:
    """Pieces of lines that stand once in the document."""
    import pdfplumber

    with pdfplumber.open(path) as document:
        found = [one for page in document.pages for one in _of_page(page)]
    seen = Counter(one.text for one in found)
    return [one for one in found if seen[one.text] == 1 and len(one.text) >= SHORTEST]


def _of_page(page: object) -> Iterator[Passage]:
    """Words side by side on one line."""
    width, height = float(page.width), float(page.height)  # type: ignore[attr-defined]
    words = page.extract_words(use_text_flow=True)  # type: ignore[attr-defined]
    groups, number = [0], 0
    for one, other in pairwise(words):
        gap, high = other["x0"] - one["x1"], one["bottom"] - one["top"]
        same = abs(one["bottom"] - other["bottom"]) < 1 and -1 < gap < GAP * high
        number += not same
        groups.append(number)
    for _, group in groupby(zip(groups, words, strict=False), key=lambda pair: pair[0]):
        inside = [word for _, word in group]
        yield Passage(
            page.page_number,  # type: ignore[attr-defined]
            squashed("".join(word["text"] for word in inside)),
            tuple(
                Rect(w["x0"] / width, w["top"] / height, w["x1"] / width, w["bottom"] / height)
                for w in inside
            ),
        )


def squashed(text: str) -> str:
    """Without any white space."""
    return "".join(unicodedata.normalize("NFC", text).split())


def places(page: Page, text: str) -> list[Rect]:
    """Where the characters of a passage stand on a page."""
    kept = [index for index, character in enumerate(page.text) if not character.isspace()]
    start = "".join(page.text[index] for index in kept).find(text)
    if start < 0:
        return []
    first, last = kept[start], kept[start + len(text) - 1] + 1
    return [
        _part(line, max(line.start, first), min(line.end, last))
        for line in page.lines
        if line.start < last and first < line.end
    ]


def _part(line: Line, start: int, end: int) -> Rect:
    """The box of some characters of a line."""
    edges = line.edges[start - line.start : end - line.start + 1]
    return Rect(min(edges), line.y0, max(edges), line.y1)


def overlaps(boxes: Sequence[Rect], others: Sequence[Rect]) -> list[Rect]:
    """For each box, its largest overlap with one of the others."""
    return [
        max((_overlap(box, other) for other in others), key=area, default=Rect(0, 0, 0, 0))
        for box in boxes
    ]


def _overlap(box: Rect, other: Rect) -> Rect:
    return Rect(
        max(box.x0, other.x0), max(box.y0, other.y0), min(box.x1, other.x1), min(box.y1, other.y1)
    )


def area(box: Rect) -> float:
    """Of a box; 0 where it is none."""
    return max(box.x1 - box.x0, 0.0) * max(box.y1 - box.y0, 0.0)


def likeness_of_areas(boxes: Sequence[Rect], others: Sequence[Rect]) -> float:
    """Intersection over union of what both span."""
    if not others:
        return 0.0
    one, other = find_bounding_box(boxes), find_bounding_box(others)
    shared = area(_overlap(one, other))
    return shared / (area(one) + area(other) - shared)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
