"""PDF through PDFium: text in its order, where each character stands, the outline as headings.

PDFium is not thread-safe: only one thread of the child process may come here.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from documents.parsers import kinds
from documents.parsers.base import Context
from documents.parsers.clean import clean
from documents.parsers.errors import Corrupt, Encrypted
from documents.parsers.pdf.geometry import PageFrame
from documents.parsers.pdf.glyphs import Glyphs, glyphs, text_of
from documents.parsers.pdf.headings import Bookmark
from documents.parsers.pdf.margins import finished
from documents.parsers.pdf.ocr import Recogniser, Recognition, is_scan
from documents.parsers.pdf.pages import Draft
from documents.parsers.pdf.pictures import PagePictures
from documents.parsers.pdf.rows import Row
from documents.parsers.pdf.runs import is_coded, plain
from documents.parsers.pdf.tables import Tables
from rag.pages import Page

_MOST_BOOKMARKS = 5_000
_PASSWORD, _SECURITY = 4, 5
"""FPDF_ERR_PASSWORD, FPDF_ERR_SECURITY."""
_DATE = re.compile(r"^D:(\d{4})(\d\d)(\d\d)")
_MOST_MAPPED = 200_000
"""Characters of a page beyond which boxes are not worth their size."""
_AHEAD = 32
"""Pages that are read while one before them is recognised; they wait in memory."""
_TALLEST = 4_000
"""Most pixels of a drawn page on either side."""

Outline = Mapping[int, list[Bookmark]]


class PdfParser:
    """Reads .pdf page by page. A page that cannot be read is left blank, with a warning."""

    types = (kinds.PDF,)

    def parse(self, path: Path, context: Context) -> Iterator[Page]:
        """Every page with its number."""
        document = _open(path)
        total = len(document)
        context.page_total(total)
        context.found(_properties(document))
        context.no_text = "scan"
        outline = _outline(document)
        reading = _Reading(self, document, context, outline)
        yield from finished(reading.drafts(total), total, outlined=bool(outline))
        if reading.broken == total:
            raise Corrupt(detail="no page can be read")

    def text(self, textpage: Any, index: int) -> str:
        """All characters of an open text page, that of the page at `index`."""
        return text_of(textpage)

    def glyphs(self, textpage: Any, text: str, frame: PageFrame) -> Glyphs:
        """The characters of `text`, which was the last, with their boxes."""
        return glyphs(textpage, text, frame)

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


@dataclass(frozen=True, slots=True)
class _Begun:
    """A page whose draft is there, or will be once it is recognised.

    `coded`: it has characters, be they readable or not. `pictured`: its pictures were looked at.
    """

    index: int
    found: Draft | Recognition
    coded: bool = False
    pictured: bool = True

    @property
    def ready(self) -> bool:
        """Whether its draft need not be waited for."""
        return isinstance(self.found, Draft) or self.found.done


class _Reading:
    """Goes through the pages of one open document."""

    def __init__(
        self, parser: PdfParser, document: Any, context: Context, outline: Outline
    ) -> None:
        self.broken = 0
        self._parser = parser
        self._document, self._context, self._outline = document, context, outline
        self._tables = Tables(context)
        self._recogniser = Recogniser(context)
        self._pictures = PagePictures(context, document)

    def drafts(self, total: int) -> Iterator[Draft]:
        """Every page; one without text that can be read is blank."""
        ahead = deque[_Begun]()
        for index in range(total):
            ahead.append(self._begin(index, alone=not ahead))
            while ahead and (ahead[0].ready or self._is_full(ahead)):
                yield self._end(ahead.popleft())
        while ahead:
            yield self._end(ahead.popleft())

    def _is_full(self, ahead: Sequence[_Begun]) -> bool:
        """Whether no further page may be begun."""
        recognised = sum(isinstance(begun.found, Recognition) for begun in ahead)
        return len(ahead) > _AHEAD or recognised > self._recogniser.at_once

    def _begin(self, index: int, *, alone: bool) -> _Begun:
        """One page. Pictures are looked at in the order of pages: at once where it is `alone`."""
        import pypdfium2

        try:
            with self._open(index) as page, _text_of(page) as textpage:
                found, coded = self._read(page, textpage, index), textpage.count_chars() > 0
                pictured = alone and isinstance(found, Draft)
                if isinstance(found, Draft) and alone:
                    self._pictures.add(page, found.number, found.text, coded=coded)
        except pypdfium2.PdfiumError:
            return _Begun(index, self._blank(index))
        return _Begun(index, found, coded, pictured)

    def _end(self, begun: _Begun) -> Draft:
        """The draft of a page, with all of its pictures handed on."""
        import pypdfium2

        draft = begun.found
        if isinstance(draft, Draft) and begun.pictured:
            return draft
        try:
            with self._open(begun.index) as page:
                if isinstance(draft, Recognition):
                    draft = self._recognised(page, begun.index, draft.rows())
                self._pictures.add(page, draft.number, draft.text, coded=begun.coded)
        except pypdfium2.PdfiumError:
            return self._blank(begun.index)
        return draft

    def _blank(self, index: int) -> Draft:
        """In place of a page that cannot be read."""
        self.broken += 1
        self._context.warn("page_unreadable")
        return Draft(index + 1)

    @contextmanager
    def _open(self, index: int) -> Iterator[Any]:
        """A page; its memory is given back at once."""
        page = self._document[index]
        try:
            page = _with_annotations(self._document, page, index)
            yield page
        finally:
            page.close()

    def _read(self, page: Any, textpage: Any, index: int) -> Draft | Recognition:
        """The page of an open page and its text, or what is begun in order to have it."""
        text = self._parser.text(textpage, index)
        if is_coded(text) or is_scan(page, text):
            recognition = self._recogniser.begin(page)
            if recognition:
                return recognition
        return self._written(page, textpage, index, text)

    def _recognised(self, page: Any, index: int, rows: Sequence[Row]) -> Draft:
        """The page of these lines; without any, of what its text has all the same."""
        if not rows:
            with _text_of(page) as textpage:
                return self._written(page, textpage, index, self._parser.text(textpage, index))
        points, bookmarks = PageFrame.of(page).shown_height, self._outline.get(index, [])
        return Draft(index + 1, [*rows], points, bookmarks, is_recognised=True)

    def _written(self, page: Any, textpage: Any, index: int, text: str) -> Draft:
        """The page of its own text, which was the last that was taken."""
        bookmarks = self._outline.get(index, [])
        if is_coded(text):
            self._context.no_text = "unreadable"
            self._context.warn("no_unicode_map")
            return Draft(index + 1)
        if len(text) > _MOST_MAPPED:
            return Draft(index + 1, bookmarks=bookmarks, plain=plain(text))
        frame = PageFrame.of(page)
        found = self._parser.glyphs(textpage, text, frame)
        grids = self._tables.grids(page, frame)
        return Draft.of(index + 1, found, grids, frame.shown_height, bookmarks)


@contextmanager
def _text_of(page: Any) -> Iterator[Any]:
    """The text page of an open page."""
    textpage = page.get_textpage()
    try:
        yield textpage
    finally:
        textpage.close()


def _with_annotations(document: Any, page: Any, index: int) -> Any:
    """The page with form fields and text notes as part of its content; the file stays."""
    import pypdfium2.raw as pdfium

    if not pdfium.FPDFPage_GetAnnotCount(page.raw):
        return page
    if pdfium.FPDFPage_Flatten(page.raw, pdfium.FLAT_NORMALDISPLAY) != pdfium.FLATTEN_SUCCESS:
        return page
    page.close()
    return document[index]


def _outline(document: Any) -> Outline:
    """Bookmarks by page index: level from 1, title."""
    found: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for bookmark in islice(document.get_toc(max_depth=6), _MOST_BOOKMARKS):
        target, title = bookmark.get_dest(), " ".join(clean(bookmark.get_title()).split())
        index = target.get_index() if target is not None else None
        if title and index is not None:
            found[index].append((bookmark.level + 1, title[:200]))
    return found
