"""PDF through PDFium: text in its order, where each character stands, the outline as headings.

PDFium is not thread-safe: only the child process, which has one thread, may come here.
"""

import ctypes
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from documents.parsers import kinds
from documents.parsers.base import Context
from documents.parsers.clean import clean
from documents.parsers.errors import Corrupt, Encrypted
from documents.parsers.pdf_geometry import Glyph, PageFrame
from documents.parsers.pdf_lines import PageText
from rag.pages import Heading, Page

_MOST_BOOKMARKS = 5_000
_PASSWORD, _SECURITY = 4, 5
"""FPDF_ERR_PASSWORD, FPDF_ERR_SECURITY."""
_DATE = re.compile(r"^D:(\d{4})(\d\d)(\d\d)")
_TALLEST = 4_000
"""Most pixels of a drawn page on either side."""

Outline = Mapping[int, list[tuple[int, str]]]


class PdfParser:
    """Reads .pdf page by page. A page that cannot be read is left blank, with a warning."""

    types = (kinds.PDF,)

    def parse(self, path: Path, context: Context) -> Iterator[Page]:
        """Every page with its number."""
        import pypdfium2

        document = _open(path)
        total = len(document)
        context.page_total(total)
        context.found(_properties(document))
        context.no_text = "scan"
        outline, broken = _outline(document), 0
        for index in range(total):
            try:
                text = _read(document, index)
            except pypdfium2.PdfiumError:
                broken += 1
                context.warn("page_unreadable")
                yield Page(index + 1, "")
                continue
            if text.coded:
                context.no_text = "unreadable"
                context.warn("no_unicode_map")
                yield Page(index + 1, "")
                continue
            yield Page(
                index + 1, text.text, _headings(text.text, outline.get(index, [])), text.lines
            )
        if broken == total:
            raise Corrupt(detail="no page can be read")

    def draw(self, path: Path, number: int, width: int) -> bytes | None:
        """Page `number` as PNG, about `width` pixels wide; None if there is no such page."""
        import io

        document = _open(path)
        if not 1 <= number <= len(document):
            return None
        page = document[number - 1]
        wide, high = page.get_size()
        scale = min(width / max(wide, 1), _TALLEST / max(wide, high, 1))
        image, target = page.render(scale=scale, may_draw_forms=True).to_pil(), io.BytesIO()
        image.save(target, "PNG")
        return target.getvalue()


def _open(path: Path) -> Any:
    """The open document, or why it cannot be opened."""
    import pypdfium2

    try:
        return pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        if error.err_code in {_PASSWORD, _SECURITY}:
            raise Encrypted(lock="password") from error
        raise Corrupt(detail="PDF") from error


def _properties(document: Any) -> dict[str, str]:
    """Title, author and date of the document information."""
    found = document.get_metadata_dict(skip_empty=True)
    date = _DATE.match(found.get("CreationDate", ""))
    return {
        "title": clean(found.get("Title", "")),
        "author": clean(found.get("Author", "")),
        "date": "-".join(date.groups()) if date else "",
    }


def _read(document: Any, index: int) -> PageText:
    """Text and lines of one page; its memory is given back at once."""
    page = document[index]
    try:
        page = _with_annotations(document, page, index)
        textpage = page.get_textpage()
        try:
            frame = PageFrame.of(page)
            return PageText.assembled(_glyphs(textpage.raw, textpage.count_chars()), frame)
        finally:
            textpage.close()
    finally:
        page.close()


def _with_annotations(document: Any, page: Any, index: int) -> Any:
    """The page with form fields and text notes as part of its content; the file stays."""
    import pypdfium2.raw as pdfium

    if not pdfium.FPDFPage_GetAnnotCount(page.raw):
        return page
    if pdfium.FPDFPage_Flatten(page.raw, pdfium.FLAT_NORMALDISPLAY) != pdfium.FLATTEN_SUCCESS:
        return page
    page.close()
    return document[index]


def _glyphs(textpage: Any, count: int) -> Iterator[Glyph]:
    """Every character with its box in page space, in PDFium's order."""
    import pypdfium2.raw as pdfium

    box = pdfium.FS_RECTF()
    reference = ctypes.byref(box)
    unicode_of, box_of = pdfium.FPDFText_GetUnicode, pdfium.FPDFText_GetLooseCharBox
    for index in range(count):
        code = unicode_of(textpage, index)
        box_of(textpage, index, reference)
        hyphen = code in {0x2, 0xFFFE} and pdfium.FPDFText_IsHyphen(textpage, index) == 1
        yield Glyph(code, hyphen, box.left, box.bottom, box.right, box.top)


def _outline(document: Any) -> Outline:
    """Bookmarks by page index: level from 1, title."""
    found: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for bookmark in islice(document.get_toc(max_depth=6), _MOST_BOOKMARKS):
        target, title = bookmark.get_dest(), " ".join(clean(bookmark.get_title()).split())
        index = target.get_index() if target is not None else None
        if title and index is not None:
            found[index].append((bookmark.level + 1, title[:200]))
    return found


def _headings(text: str, bookmarks: list[tuple[int, str]]) -> tuple[Heading, ...]:
    """Bookmarks found as words of the page; one that is not found stands where the last one did."""
    found, position = [], 0
    for level, title in bookmarks:
        words = r"\s*".join(re.escape(character) for character in title if not character.isspace())
        if match := re.compile(words).search(text, position):
            position = match.start()
        found.append(Heading(position, level, title))
    return tuple(found)
