"""PDF through PDFium: text in its order, where each character stands, the outline as headings.

PDFium is not thread-safe: only one thread of the child process may come here.
"""

import io
import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from documents.parsers import formats
from documents.parsers.base import MAX_PICTURES, MEGABYTE, Corrupt, ReadingContext
from documents.parsers.pdf import pdfium
from documents.parsers.pdf.geometry import Matrix, PageFrame, clip
from documents.parsers.pdf.grids import GridFinder
from documents.parsers.pdf.lines import TextRow, WordSpacing
from documents.parsers.pdf.ocr import Recogniser, Recognition, is_scan
from documents.parsers.pdf.pages import PageDraft, finish_pages
from documents.parsers.pdf.text_runs import Glyphs, is_coded, read_glyphs, to_plain_text
from documents.parsers.pictures import (
    MAX_PIXELS,
    MAX_SIDE_PIXELS,
    FoundPicture,
    PictureBox,
    PictureSieve,
    hash_bytes,
    read_declared_size,
)
from rag.types import Page

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
        drafts = reading.iterate_drafts(total)
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
class _PendingPage:
    """A page whose draft is there, or will be once it is recognised.

    `coded`: it has characters, be they readable or not. `pictured`: its pictures were looked at.
    """

    index: int
    found: PageDraft | Recognition
    coded: bool = False
    pictured: bool = True

    @property
    def is_ready(self) -> bool:
        """Whether its draft need not be waited for."""
        return isinstance(self.found, PageDraft) or self.found.is_done


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

    def iterate_drafts(self, total: int) -> Iterator[PageDraft]:
        """Every page; one without text that can be read is blank."""
        ahead = deque[_PendingPage]()
        for index in range(total):
            ahead.append(self._begin_page(index, alone=not ahead))
            while ahead and (ahead[0].is_ready or self._is_full(ahead)):
                yield self._finish_page(ahead.popleft())
        while ahead:
            yield self._finish_page(ahead.popleft())

    def _is_full(self, ahead: Sequence[_PendingPage]) -> bool:
        """Whether no further page may be begun."""
        recognised = sum(isinstance(begun.found, Recognition) for begun in ahead)
        return len(ahead) > _AHEAD or recognised > self._recogniser.at_once

    def _begin_page(self, index: int, *, alone: bool) -> _PendingPage:
        """One page. Pictures are examined in page order; immediately if it is `alone`."""
        try:
            with (
                pdfium.open_page(self._document, index) as page,
                pdfium.open_text(page) as textpage,
            ):
                found, coded = self._read_page(page, textpage, index), textpage.count_chars() > 0
                pictured = alone and isinstance(found, PageDraft)
                if isinstance(found, PageDraft) and alone:
                    self._pictures.add(page, found.number, found.text, coded=coded)
        except pdfium.UnreadablePage:
            return _PendingPage(index, self._make_blank(index))
        return _PendingPage(index, found, coded, pictured)

    def _finish_page(self, begun: _PendingPage) -> PageDraft:
        """The draft of a page, with all of its pictures handed on."""
        draft = begun.found
        if isinstance(draft, PageDraft) and begun.pictured:
            return draft
        try:
            with pdfium.open_page(self._document, begun.index) as page:
                if isinstance(draft, Recognition):
                    draft = self._draft_from_rows(page, begun.index, draft.wait_for_rows())
                self._pictures.add(page, draft.number, draft.text, coded=begun.coded)
        except pdfium.UnreadablePage:
            return self._make_blank(begun.index)
        return draft

    def _make_blank(self, index: int) -> PageDraft:
        """In place of a page that cannot be read."""
        self.broken += 1
        self._context.warn("page_unreadable")
        return PageDraft(index + 1)

    def _read_page(self, page: Any, textpage: Any, index: int) -> PageDraft | Recognition:
        """The page of an open page and its text, or what is begun in order to have it."""
        text = self._parser.read_text(textpage, index)
        if is_coded(text) or is_scan(page, text):
            recognition = self._recogniser.begin(page, index)
            if recognition:
                return recognition
        return self._draft_from_text(page, textpage, index, text)

    def _draft_from_rows(self, page: Any, index: int, rows: Sequence[TextRow]) -> PageDraft:
        """The page of these lines; without any, of what its text has all the same."""
        if not rows:
            with pdfium.open_text(page) as textpage:
                return self._draft_from_text(
                    page, textpage, index, self._parser.read_text(textpage, index)
                )
        points, bookmarks = pdfium.read_frame(page).shown_height, self._outline.get(index, [])
        return PageDraft(index + 1, [*rows], points, bookmarks, is_recognised=True)

    def _draft_from_text(self, page: Any, textpage: Any, index: int, text: str) -> PageDraft:
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


# Pictures

_DEEPEST = 8
"""Forms within forms."""
_FIGURELESS = 0.5
"""Share of a page without text that pictures must cover for the page to be one picture."""
_BACKGROUND = 0.8
"""Share of the page covered by pictures behind text that marks a scan with known text."""
_SPANNING = 0.9
_ENCODED = (b"\xff\xd8", b"\x00\x00\x00\x0cjP", b"\xff\x4f\xff\x51")
"""How JPEG and JPEG 2000 begin."""
_LARGEST_PAGE = 2 * MAX_PIXELS
"""Pixels of all pictures of a page that is drawn as one."""
_MOST_READ = 1024 * MEGABYTE
"""Bytes of a document's pictures that are compared."""
_LEAST_TEXT = 50
"""Characters from which on a page has text; a title over a chart is less."""


TURNS = (
    Matrix(),
    Matrix(0, -1, 1, 0),
    Matrix(-1, 0, 0, -1),
    Matrix(0, 1, -1, 0),
)
"""Quarter turns clockwise."""


@dataclass(frozen=True, slots=True)
class _Image:
    """An image object: its handle, where the unit square goes on the page, its pixels.

    `key` tells its bytes from others'; empty where too many bytes were read before it.
    """

    handle: Any
    matrix: Matrix
    width: int
    height: int
    box: PictureBox
    key: str

    @property
    def area(self) -> float:
        """Share of the page."""
        return (self.box[2] - self.box[0]) * (self.box[3] - self.box[1])

    @property
    def pixels(self) -> int:
        """As declared."""
        return self.width * self.height

    @property
    def is_full_width(self) -> bool:
        """Whether it goes from one side of the page to the other, as scans and their strips do."""
        return max(self.box[2] - self.box[0], self.box[3] - self.box[1]) >= _SPANNING

    @property
    def rejection(self) -> str:
        """Why it is not even looked at."""
        if not self.key:
            return "too_many"
        return "" if self.area else "hidden"


class PagePictures:
    """Hands on the pictures of one document, page by page."""

    def __init__(self, context: ReadingContext, document: Any) -> None:
        self._off = not context.pictures.max_pictures
        self._document = document
        self._read = 0
        self._sieve = PictureSieve(context)

    def add(self, page: Any, number: int, text: str, *, coded: bool = False) -> None:
        """The pictures of an open page that reads `text`, by itself or by recognition.

        `coded`: there are letters that cannot be told, so the page itself is the picture.
        """
        if self._off:
            return
        frame = pdfium.read_frame(page)
        images = list(islice(self._iterate_images(page, frame), MAX_PICTURES))
        letters = len("".join(text.split()))
        strips = [image for image in images if image.is_full_width]
        is_scan = _compute_area(strips) >= _BACKGROUND
        if letters:
            is_picture = is_scan and letters < _LEAST_TEXT
        else:
            is_picture = coded or _compute_area(images) >= _FIGURELESS
        if is_picture and sum(image.pixels for image in images) <= _LARGEST_PAGE:
            self._sieve.add(_draw_whole_page(page, number, images, coded=coded))
            return
        is_read = is_scan and letters >= _LEAST_TEXT
        for image in images:
            load = partial(self._draw_image, page, image, frame.turns)
            found = FoundPicture(image.key, image.width, image.height, load, number, image.box)
            self._sieve.add(
                found, "background" if is_read and image.is_full_width else image.rejection
            )

    def _iterate_images(self, page: Any, frame: PageFrame) -> Iterator[_Image]:
        """The image objects of a page, in the order in which they are drawn."""
        for handle, matrix in _iterate_placed(page.raw, Matrix(), 0):
            size, key = pdfium.read_image_size(handle), ""
            if self._read <= _MOST_READ:
                data = pdfium.read_image_data(handle)
                self._read += len(data)
                key = hash_bytes(f"{size}".encode(), data)
                size = max(size, _read_jpeg_size(data), key=math.prod)
            yield _Image(handle, matrix, *size, _to_box(matrix, frame), key)

    def _draw_image(self, page: Any, image: _Image, turns: int) -> Any:
        """The image as the page shows it, with its mask, at its own resolution or below."""
        before = pdfium.read_matrix(image.handle)
        pdfium.write_matrix(image.handle, _to_upright(image, turns))
        try:
            return pdfium.draw_image(self._document, page, image.handle)
        finally:
            pdfium.write_matrix(image.handle, before)


def _iterate_placed(holder: Any, outer: Matrix, depth: int) -> Iterator[tuple[Any, Matrix]]:
    """Image objects of a page or form, by raw handle, with where they go on the page."""
    for item, kind in pdfium.list_objects(holder, is_form=depth > 0):
        if kind == pdfium.IMAGE:
            yield item, pdfium.read_matrix(item).compose(outer)
        elif kind == pdfium.FORM and depth < _DEEPEST:
            yield from _iterate_placed(item, pdfium.read_matrix(item).compose(outer), depth + 1)


def _to_upright(image: _Image, turns: int) -> Matrix:
    """The image's matrix turned with the page and scaled to its pixels, at the origin."""
    matrix = image.matrix.compose(TURNS[turns])
    wide, high = math.hypot(matrix.a, matrix.b), math.hypot(matrix.c, matrix.d)
    left, bottom, right, top = matrix.bounds
    scale = min(
        max(image.width / wide, image.height / high),
        MAX_SIDE_PIXELS / max(right - left, top - bottom),
    )
    if not math.isfinite(scale):
        raise ValueError("no size on the page")
    moved = matrix.compose(Matrix(e=-left, f=-bottom))
    return moved.compose(Matrix(a=scale, d=scale))


def _compute_area(images: Sequence[_Image]) -> float:
    """Share of the page that they cover, apart from overlaps."""
    return sum(image.area for image in images)


def _to_box(matrix: Matrix, frame: PageFrame) -> PictureBox:
    """Where it is shown, clipped to the page."""
    rect = frame.to_view(*matrix.bounds)
    return clip(rect.x0), clip(rect.y0), clip(rect.x1), clip(rect.y1)


def _draw_whole_page(
    page: Any, number: int, images: Sequence[_Image], *, coded: bool
) -> FoundPicture:
    """A page that is a picture, whatever strips and masks it is made of."""
    wide, high = page.get_size()
    area = max(wide * high, 1.0)
    finest = [image.pixels / (image.area * area) for image in images if image.area]
    scale = MAX_SIDE_PIXELS / max(wide, high, 1.0)
    if not coded:  # nothing is gained by drawing it larger than its pictures are
        scale = min(scale, max(1.0, math.sqrt(max(finest, default=1.0))))
    keys = [image.key.encode() for image in images]
    return FoundPicture(
        hash_bytes(*keys, str(number).encode() if coded else b""),
        round(wide * scale),
        round(high * scale),
        lambda: page.render(scale=scale).to_pil(),
        number,
        (0.0, 0.0, 1.0, 1.0),
        cost=sum(image.pixels for image in images),
    )


def _read_jpeg_size(data: bytes) -> tuple[int, int]:
    """Width and height declared in the JPEG itself; the page may claim less."""
    return read_declared_size(data) if data.startswith(_ENCODED) else (0, 0)
