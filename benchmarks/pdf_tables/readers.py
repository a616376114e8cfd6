"""The readers that are compared: ours, and those of others where they are installed.

docling is not among them: its layout and table models come from Hugging Face when it first runs,
which a machine without a network cannot reach. PyMuPDF and pymupdf4llm (AGPL) are in no list of
requirements for the benchmarks: `pip install pymupdf==2.0.0 pymupdf4llm==2.0.0` adds them.
"""

import importlib.util
import re
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

from benchmarks.pdf_tables.truth import Reading, Rows
from documents.parsers import formats
from documents.parsers.base import Limits, ReadingContext
from rag.types import Kind

PageReader = Callable[[Path], Iterator[Reading]]
_BAR = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"^\|(?:\s*:?-{2,}:?\s*\|)+$")
_BREAK = re.compile(r"<br\s*/?>")
_MARKS = re.compile(r"[*`#]")


def available() -> dict[str, PageReader]:
    """Readers by name; each gives the pages of a file in order."""
    readers = {"Nura": read_with_nura, "pdfplumber": read_with_pdfplumber}
    if importlib.util.find_spec("pymupdf"):
        readers["PyMuPDF find_tables"] = read_with_pymupdf
    if importlib.util.find_spec("pymupdf4llm"):
        readers["pymupdf4llm"] = read_with_pymupdf4llm
    return readers


def read_with_nura(path: Path) -> Iterator[Reading]:
    """The product's own reader, with its Markdown tables taken apart."""
    from documents.parsers.pdf.parser import PdfParser

    context = ReadingContext(formats.PDF, Limits(recognised_pages=0), lambda *_: None)
    for page in PdfParser().parse(path, context):
        regions = [region for region in page.regions if region.kind is Kind.TABLE]
        headers = [page.text[region.start : region.header_end] for region in regions]
        yield Reading(
            page.text,
            [_parse_markdown(page.text[region.start : region.end]) for region in regions],
            [len(_parse_markdown(header)) for header in headers],
        )


def read_with_pdfplumber(path: Path) -> Iterator[Reading]:
    """pdfplumber with its own table finder and text."""
    import pdfplumber

    with pdfplumber.open(path) as document:
        for page in document.pages:
            yield Reading(page.extract_text(), [table.extract() for table in page.find_tables()])


def read_with_pymupdf(path: Path) -> Iterator[Reading]:
    """PyMuPDF with its own table finder and text."""
    import pymupdf

    for page in pymupdf.open(path):
        tables = page.find_tables().tables
        yield Reading(page.get_text(), [table.extract() for table in tables])


def read_with_pymupdf4llm(path: Path) -> Iterator[Reading]:
    """pymupdf4llm, whose Markdown is taken apart."""
    import pymupdf4llm

    for page in pymupdf4llm.to_markdown(str(path), page_chunks=True, show_progress=False):
        text = page["text"]
        yield Reading(_MARKS.sub("", text), list(_tables_of_markdown(text)))


def _tables_of_markdown(text: str) -> Iterator[Rows]:
    lines = (line.strip() for line in text.split("\n"))
    for is_table, group in groupby(lines, lambda line: line.startswith("|")):
        if is_table:
            yield _parse_markdown("\n".join(group))


def _parse_markdown(text: str) -> Rows:
    """Rows of a Markdown table without the rule below its header."""
    lines = (line for line in text.split("\n") if line.startswith("|") and not _RULE.match(line))
    return [[_cell(cell) for cell in _BAR.split(line)[1:-1]] for line in lines]


def _cell(text: str) -> str:
    return _MARKS.sub("", _BREAK.sub(" ", text)).strip()
