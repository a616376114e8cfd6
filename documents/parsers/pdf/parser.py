"""PDF through PDFium: text in its order, where each character stands, the outline as headings.

PDFium is not thread-safe: only one thread of the child process may come here.
"""

import io
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from documents.parsers import formats
from documents.parsers.base import Corrupt, ReadingContext
from documents.parsers.pdf import pdfium
from documents.parsers.pdf.geometry import PageFrame
from documents.parsers.pdf.grids import GridFinder
from documents.parsers.pdf.lines import TextRow, WordSpacing
from documents.parsers.pdf.ocr import Recogniser, Recognition, is_scan
from documents.parsers.pdf.pages import PageDraft, finish_pages
from documents.parsers.pdf.pictures import PagePictures
from documents.parsers.pdf.text import Glyphs, is_coded, read_glyphs, to_plain_text
from rag.pages import Page

_MOST_MAPPED = 200_000
"""Characters of a page beyond which boxes are not worth their size."""
_AHEAD = 32
"""Pages that are read while one before them is recognised; they wait in memory."""
_TALLEST = 4_000
"""Most pixels of a drawn page on either side."""


class PdfParser:
    """Reads .pdf page by page. A page that cannot be read is left blank, with a warning."""

    types = (formats.PDF,)

    def parse(self, path: Path, context: ReadingContext) -> Iterator[Page]:
        """Every page with its number."""
        document = pdfium.open_document(path)
        total = len(document)
        context.announce_page_total(total)
        context.add_metadata(pdfium.read_properties(document))
        context.no_text = "scan"
        outline = pdfium.read_outline(document)
        reading = _Reading(self, document, context, outline)
        drafts = reading.drafts(total)
        yield from finish_pages(drafts, total, bool(outline), reading.spacing)
        if reading.broken == total:
            raise Corrupt(detail="no page can be read")

    def read_text(self, textpage: Any, index: int) -> str:
        """All characters of an open text page, that of the page at `index`."""
        return pdfium.read_characters(textpage)

    def read_glyphs(self, textpage: Any, text: str, frame: PageFrame) -> Glyphs:
        """The characters of `text`, which was the last, with their boxes."""
        return read_glyphs(textpage, text, frame)

    def draw(self, path: Path, number: int, width: int) -> bytes | None:
        """Page `number` as PNG, about `width` pixels wide; None if there is no such page."""
        document = pdfium.open_document(path)
        if not 1 <= number <= len(document):
            return None
        page = document[number - 1]
        wide, high = page.get_size()
        scale = min(width / max(wide, 1), _TALLEST / max(wide, high, 1))
        image, target = page.render(scale=scale, may_draw_forms=True).to_pil(), io.BytesIO()
        image.save(target, "PNG")
        return target.getvalue()


@dataclass(frozen=True, slots=True)
class _Begun:
    """A page whose draft is there, or will be once it is recognised.

    `coded`: it has characters, be they readable or not. `pictured`: its pictures were looked at.
    """

    index: int
    found: PageDraft | Recognition
    coded: bool = False
    pictured: bool = True

    @property
    def ready(self) -> bool:
        """Whether its draft need not be waited for."""
        return isinstance(self.found, PageDraft) or self.found.done


class _Reading:
    """Goes through the pages of one open document."""

    def __init__(
        self, parser: PdfParser, document: Any, context: ReadingContext, outline: pdfium.Outline
    ) -> None:
        self.broken = 0
        self.spacing = WordSpacing()
        self._parser = parser
        self._document, self._context, self._outline = document, context, outline
        self._tables = GridFinder(context)
        self._recogniser = Recogniser(context)
        self._pictures = PagePictures(context, document)

    def drafts(self, total: int) -> Iterator[PageDraft]:
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
        """One page. Pictures are examined in page order; immediately if it is `alone`."""
        try:
            with (
                pdfium.open_page(self._document, index) as page,
                pdfium.open_text(page) as textpage,
            ):
                found, coded = self._read(page, textpage, index), textpage.count_chars() > 0
                pictured = alone and isinstance(found, PageDraft)
                if isinstance(found, PageDraft) and alone:
                    self._pictures.add(page, found.number, found.text, coded=coded)
        except pdfium.UnreadablePage:
            return _Begun(index, self._blank(index))
        return _Begun(index, found, coded, pictured)

    def _end(self, begun: _Begun) -> PageDraft:
        """The draft of a page, with all of its pictures handed on."""
        draft = begun.found
        if isinstance(draft, PageDraft) and begun.pictured:
            return draft
        try:
            with pdfium.open_page(self._document, begun.index) as page:
                if isinstance(draft, Recognition):
                    draft = self._recognised(page, begun.index, draft.wait_for_rows())
                self._pictures.add(page, draft.number, draft.text, coded=begun.coded)
        except pdfium.UnreadablePage:
            return self._blank(begun.index)
        return draft

    def _blank(self, index: int) -> PageDraft:
        """In place of a page that cannot be read."""
        self.broken += 1
        self._context.warn("page_unreadable")
        return PageDraft(index + 1)

    def _read(self, page: Any, textpage: Any, index: int) -> PageDraft | Recognition:
        """The page of an open page and its text, or what is begun in order to have it."""
        text = self._parser.read_text(textpage, index)
        if is_coded(text) or is_scan(page, text):
            recognition = self._recogniser.begin(page)
            if recognition:
                return recognition
        return self._written(page, textpage, index, text)

    def _recognised(self, page: Any, index: int, rows: Sequence[TextRow]) -> PageDraft:
        """The page of these lines; without any, of what its text has all the same."""
        if not rows:
            with pdfium.open_text(page) as textpage:
                return self._written(page, textpage, index, self._parser.read_text(textpage, index))
        points, bookmarks = pdfium.read_frame(page).shown_height, self._outline.get(index, [])
        return PageDraft(index + 1, [*rows], points, bookmarks, is_recognised=True)

    def _written(self, page: Any, textpage: Any, index: int, text: str) -> PageDraft:
        """The page from its own text, the last that was extracted."""
        bookmarks = self._outline.get(index, [])
        if is_coded(text):
            self._context.no_text = "unreadable"
            self._context.warn("no_unicode_map")
            return PageDraft(index + 1)
        if len(text) > _MOST_MAPPED:
            return PageDraft(index + 1, bookmarks=bookmarks, plain=to_plain_text(text))
        frame = pdfium.read_frame(page)
        found = self._parser.read_glyphs(textpage, text, frame)
        grids = self._tables.find_grids(page, frame)
        points = frame.shown_height
        draft = PageDraft(index + 1, points=points, bookmarks=bookmarks)
        return draft.lay_out(found, grids, self.spacing)
