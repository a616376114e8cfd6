"""Pages that we set ourselves, where too few real ones can be had: their truth is known.

The tables are those of Korean press releases, read from the XML of their HWPX files by the few
lines below (none of the product), drawn in five ways; the text is that of Korean statutes. Typst
sets both, so that nothing of them is kept here.
"""

import random
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from benchmarks.pdf_tables.truth import DATA, TruePage, TrueTable

PRESS_RELEASES = "hwp/gov_docs/2024*.hwpx"
STATUTES = "kr_law/kr"
FONTS = Path(__file__).resolve().parents[2] / "chats" / "printing" / "fonts"
STYLES = {
    "ruled": "stroke: 0.4pt",
    "open sides": "stroke: (x, y) => (left: if x > 0 {0.4pt} else {none}, y: 0.4pt)",
    "rows ruled": "stroke: (x, y) => (y: 0.4pt)",
    "three lines": "stroke: none",
    "bare": "stroke: none",
}
"""How a table is drawn; of `three lines` the lines are set among its cells."""
COLUMN_PAGES = 6
PARAGRAPH_CHARACTERS = 120
_ARTICLE = re.compile(r"^#{3,6}\s+(제\d+조.*)$")
_SPECIAL = re.compile(r"([\\#$*_`@<>\[\]~/\-=+'\"])")
_HEAD = """#set page(width: 210mm, height: 297mm, margin: (x: 20mm, y: 22mm), columns: {columns})
#set text(font: "Noto Sans KR", size: {size}pt, lang: "ko")
#set smartquote(enabled: false)
#set par(justify: true, leading: 0.7em)
"""


@dataclass(frozen=True, slots=True)
class _Cell:
    """A cell of an HWPX table; `text` is on one line."""

    row: int
    column: int
    row_span: int
    column_span: int
    text: str


def make_table_pages(folder: Path) -> list[TruePage]:
    """Pages with two tables each and statute text around them, written into `folder`."""
    tables, text = list(_press_tables()), _paragraphs()
    styles = cycle(STYLES)
    found = []
    for number, pair in enumerate(zip(tables[::2], tables[1::2], strict=False), 1):
        source, order, truth = _HEAD.format(columns=1, size=9), [], []
        for cells in pair:
            before, style = next(text), next(styles)
            source += f"{_escape(before)}\n\n{_typst_table(cells, style)}\n\n"
            order += [before[:14], _longest_text(cells)]
            truth.append(TrueTable(_rows(cells), _header_rows(cells), style))
        after = next(text)
        order.append(after[:14])
        path = _set(source + _escape(after), folder / f"tables-{number:02}.pdf")
        found.append(TruePage(path, 1, tuple(order), tuple(truth), "made"))
    return found


def make_column_pages(folder: Path) -> list[TruePage]:
    """Pages of two columns of statute text with a ruled table in one of them."""
    tables, text = [t for t in _press_tables() if _width(t) <= 7], _paragraphs()
    found = []
    for number, cells in enumerate(islice(tables, COLUMN_PAGES), 1):
        before, after = list(islice(text, 5 + number)), list(islice(text, 4))
        source = _HEAD.format(columns=2, size=7)
        source += "\n\n".join(map(_escape, before)) + f"\n\n{_typst_table(cells, 'ruled')}\n\n"
        source += "\n\n".join(map(_escape, after))
        order = [p[:14] for p in before] + [_longest_text(cells)] + [p[:14] for p in after]
        path = _set(source, folder / f"columns-{number:02}.pdf")
        table = TrueTable(_rows(cells), _header_rows(cells), "ruled")
        found.append(TruePage(path, 1, tuple(order), (table,), "made"))
    return found


def make_prose(folder: Path, *, breaks_words: bool, columns: int, size: int) -> tuple[Path, str]:
    """A file of justified statute text and that text; its lines end within words or never do."""
    paragraphs = list(islice(_paragraphs(seed=columns * 10 + size), 150))
    name = f"prose-{'syllables' if breaks_words else 'words'}-{columns}-{size}.pdf"
    source = _HEAD.format(columns=columns, size=size)
    for paragraph in paragraphs:
        words = paragraph.split()
        if not breaks_words:  # word joiners, which draw nothing, keep syllables together
            words = ["\u2060".join(word) for word in words]
        source += _escape(" ".join(words)) + "\n\n"
    return _set(source, folder / name), "\n".join(paragraphs)


def _press_tables() -> Iterator[list[_Cell]]:
    """Tables of at least two rows and columns, without those that name people."""
    from lxml import etree

    for path in sorted(DATA.glob(PRESS_RELEASES)):
        with zipfile.ZipFile(path) as archive:
            sections = sorted(name for name in archive.namelist() if "section" in name)
            roots = [etree.fromstring(archive.read(name)) for name in sections]
        for table in (table for root in roots for table in root.iter("{*}tbl")):
            cells = [_cell(cell) for cell in table.iter("{*}tc")]
            if int(table.get("rowCnt")) > 2 and int(table.get("colCnt")) > 1:
                yield cells


def _cell(element: Any) -> _Cell:
    place, span = element.find("{*}cellAddr"), element.find("{*}cellSpan")
    lines = ("".join("".join(t.itertext()) for t in p.iter("{*}t")) for p in element.iter("{*}p"))
    return _Cell(
        int(place.get("rowAddr")),
        int(place.get("colAddr")),
        int(span.get("rowSpan")),
        int(span.get("colSpan")),
        " ".join(" ".join(lines).split()),
    )


def _width(cells: Sequence[_Cell]) -> int:
    return max(cell.column + cell.column_span for cell in cells)


def _rows(cells: Sequence[_Cell]) -> list[list[str]]:
    """The text of merged cells in their first place."""
    rows = [[""] * _width(cells) for _ in range(max(cell.row + cell.row_span for cell in cells))]
    for cell in cells:
        rows[cell.row][cell.column] = cell.text
    return rows


def _header_rows(cells: Sequence[_Cell]) -> int:
    """Two where years stand over quarters, as one sees in these releases; else one."""
    return 2 if any(cell.row == 0 and cell.column_span > 1 for cell in cells) else 1


def _longest_text(cells: Sequence[_Cell]) -> str:
    return max((cell.text for cell in cells), key=len)


def _typst_table(cells: Sequence[_Cell], style: str) -> str:
    width, height = _width(cells), len(_rows(cells))
    body = [
        f"table.cell(x: {c.column}, y: {c.row}, colspan: {c.column_span}, rowspan: {c.row_span})"
        f"[{_escape(c.text)}]"
        for c in cells
    ]
    if style == "three lines":
        body += [f"table.hline(y: {y})" for y in (0, _header_rows(cells), height)]
    return (
        f"#text(size: 7pt)[#table(columns: ({'1fr,' * width}), align: center + horizon, "
        f"inset: 3pt, {STYLES[style]}, {', '.join(body)})]"
    )


def _paragraphs(seed: int = 1) -> Iterator[str]:
    """Paragraphs of statutes, of usual length and each beginning in its own way."""
    seen = set[str]()
    paths = sorted((DATA / STATUTES).rglob("*.md"))
    random.Random(seed).shuffle(paths)
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            text = " ".join(re.sub(r"[*<>#|`\\]", "", line).split())
            if len(text) < PARAGRAPH_CHARACTERS or text[:14] in seen or ":" in text:
                continue
            if "가" <= text[0] <= "힣":
                seen.add(text[:14])
                yield text[:600]


def _escape(text: str) -> str:
    """Text that Typst takes as it is."""
    return _SPECIAL.sub(r"\\\1", text)


def _set(source: str, path: Path) -> Path:
    import typst

    typst.compile(source.encode(), output=str(path), font_paths=[str(FONTS)])
    return path
