"""Markdown by markdown-it, HTML by a walk over lxml's tree: what they find, how fast.

`python -m benchmarks.fidelity.markup`. The samples (`markup.json`) and what should be found in them
were written by hand, from CommonMark, GitHub's tables and what a browser shows. Markdown is scored
by the F1 of headings (level, title) and regions (kind, text), beside the reader that it replaced;
HTML by how like the text is to the one expected, beside what lxml gives by itself. Speed is taken
on Markdown beside the project, where it lies there, and on texts of one form that hold a reader up.
"""

import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import report
from documents.parsers import formats
from documents.parsers.base import Limits, ReadingContext
from documents.parsers.html import HtmlParser
from documents.parsers.markdown import find_blocks
from tests.quality.likeness import likeness

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
REPEATED_CHARACTERS = 1_000_000
"""Length of the texts of one form."""


SAMPLES = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
DELETED = {
    "headings_f1": 0.75,
    "regions_f1": 0.792,
    "megacharacters_per_second": 13.53,
}
"""The reader of our own that went: line by line, 140 lines, 9 of the 31 samples wrong."""


def read_text_content(html: str) -> str:
    """All text of the body, as lxml gives it."""
    from lxml.html import document_fromstring

    return str(document_fromstring(html).find("body").text_content())


def read_text_nodes(html: str) -> str:
    """The pieces of text of the body with a space between them, scripts and styles left out."""
    from lxml.html import document_fromstring

    nodes = document_fromstring(html).xpath(
        "//body//text()[not(ancestor::script or ancestor::style or ancestor::template)]"
    )
    return " ".join(map(str, nodes))


def read_html_by_own(html: str) -> str:
    """What the product makes of it; the marks of lists and tables count as writing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.html"
        path.write_text(html, encoding="utf-8")
        context = ReadingContext(formats.HTML, Limits(), lambda *_: None)
        return "\n\n".join(page.text for page in HtmlParser().parse(path, context))


def compute_f1(pairs: Iterable[tuple[Counter[Any], Counter[Any]]]) -> float:
    """F1 of all that was found against all that was expected."""
    right = found = expected = 0
    for ours, theirs in pairs:
        right, found = right + (ours & theirs).total(), found + ours.total()
        expected += theirs.total()
    return 2 * right / (found + expected) if found + expected else 1.0


def score_markdown() -> dict[str, Any]:
    """F1 of headings and regions over all samples, and the samples that were not read rightly."""
    headings, regions, wrong = [], [], []
    for sample in SAMPLES["markdown"]:
        found = find_blocks(sample["text"])
        titles = Counter((one.level, one.title) for one in found[0])
        parts = Counter((one.kind.value, sample["text"][one.start : one.end]) for one in found[1])
        expected = Counter(map(tuple, sample["headings"])), Counter(map(tuple, sample["regions"]))
        headings.append((titles, expected[0]))
        regions.append((parts, expected[1]))
        if (titles, parts) != expected:
            wrong.append(sample["name"])
    return {
        "headings_f1": round(compute_f1(headings), 3),
        "regions_f1": round(compute_f1(regions), 3),
        "wrong": wrong,
    }


def repeat(piece: str) -> str:
    """A text of one form."""
    return piece * (REPEATED_CHARACTERS // len(piece))


FORMS = {
    "rows of a table": "| 가 | 나 |\n|---|---|\n" + repeat("| 가나 | 다라 |\n"),
    "items": repeat("- 가\n"),
    "headings": repeat("# 가\n"),
    "paragraphs": repeat("가나다라 마바사아\n\n"),
    "pipes": repeat("|\n-\n"),
    "marks in a title": "# " + repeat("*a_"),
}


def time_blocks(texts: Iterable[str]) -> float:
    """Millions of characters a second of processor time."""
    texts = list(texts)
    started = time.process_time()
    for text in texts:
        find_blocks(text)
    return round(sum(map(len, texts)) / (time.process_time() - started) / 1e6, 2)


def main() -> dict[str, Any]:
    """Print and return all figures."""
    files = [
        re.sub(r"\r\n?", "\n", path.read_text("utf-8", "replace"))
        for path in sorted((DATA / "ko_docs").rglob("*.md"))
    ]
    markdown = score_markdown()
    if files:
        markdown["megacharacters_per_second"] = time_blocks(files)
    markdown["forms"] = {form: time_blocks([text]) for form, text in FORMS.items()}
    columns = tuple(DELETED)
    report.table(
        "Markdown",
        ("reader", *columns),
        [
            ("markdown-it's blocks", *(markdown.get(column, "-") for column in columns)),
            ("line by line (deleted)", *DELETED.values()),
        ],
    )
    print("wrong:", ", ".join(markdown["wrong"]) or "none")
    report.table("Texts of one form", ("form", "M characters/s"), list(markdown["forms"].items()))
    pages = {
        "own walk over lxml's tree": read_html_by_own,
        "lxml, text_content": read_text_content,
        "lxml, pieces of text": read_text_nodes,
    }
    html = {}
    for name, read in pages.items():
        likenesses = {
            one["name"]: likeness(
                read(f"<!doctype html><html><body>{one['body']}</body></html>"), one["text"]
            )
            for one in SAMPLES["html"]
        }
        html[name] = {
            "likeness": round(mean(likenesses.values()), 3),
            "wrong": [label for label, value in likenesses.items() if value < 1],
        }
    report.table(
        "HTML",
        ("reader", "likeness", "wrong in"),
        [(name, one["likeness"], ", ".join(one["wrong"])) for name, one in html.items()],
    )
    figures = {"markdown": markdown, "markdown_line_by_line": DELETED, "html": html}
    report.write("markup", figures)
    return figures


if __name__ == "__main__":
    main()
