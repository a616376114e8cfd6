"""PDF read by PDFium: the text in its order, the place of each character, the outline as headings.

PDFium is not thread-safe: only one thread of the child process may call this module.
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

_MAX_MAPPED_CHARACTERS = 200_000
"""Characters of a page; with more, their boxes are not worth the space."""
_MAX_PAGES_AHEAD = 32
"""Pages read while an earlier one is still being recognised; they wait in memory."""
_MAX_DRAWN_SIDE_PIXELS = 4_000
"""Pixels of a drawn page on its longer side."""


class PdfParser:
    """Reads .pdf page by page. A page that cannot be read is left blank, with a warning."""

    types = (formats.PDF,)

    def parse(self, path: Path, context: ReadingContext) -> Iterator[Page]:
        """Every page with its number."""
        document = pdfium.open_document(path)
        page_count = len(document)
        context.announce_page_total(page_count)
        context.add_metadata(pdfium.read_properties(document))
        context.no_text = "scan"
        outline = pdfium.read_outline(document)
        reader = _DocumentReader(self, document, context, outline)
        drafts = reader.iterate_drafts(page_count)
        yield from finish_pages(drafts, page_count, bool(outline), reader.spacing)
        if reader.unreadable_count == page_count:
            raise Corrupt(detail="no page can be read")

    def read_text(self, textpage: Any, index: int) -> str:
        """All characters of an open text page, which belongs to the page at `index`."""
        return pdfium.read_characters(textpage)

    def read_glyphs(self, textpage: Any, text: str, frame: PageFrame) -> Glyphs:
        """The characters of `text`, which `read_text` returned last, with their boxes."""
        return read_glyphs(textpage, text, frame)

    def draw(self, path: Path, number: int, width: int) -> bytes | None:
        """Page `number` as PNG, about `width` pixels wide; None if there is no such page."""
        document = pdfium.open_document(path)
        if not 1 <= number <= len(document):
            return None
        page = document[number - 1]
        page_width, page_height = page.get_size()
        scale = min(
            width / max(page_width, 1), _MAX_DRAWN_SIDE_PIXELS / max(page_width, page_height, 1)
        )
        image, target = page.render(scale=scale, may_draw_forms=True).to_pil(), io.BytesIO()
        image.save(target, "PNG")
        return target.getvalue()


@dataclass(frozen=True, slots=True)
class _PendingPage:
    """A page whose draft is ready, or will be once it is recognised.

    `has_characters`: it has characters, readable or not. `pictures_added`: its pictures have been
    passed on.
    """

    index: int
    result: PageDraft | Recognition
    has_characters: bool = False
    pictures_added: bool = True

    @property
    def is_ready(self) -> bool:
        """Whether its draft can be had without waiting."""
        return isinstance(self.result, PageDraft) or self.result.is_done


class _DocumentReader:
    """Reads the pages of one open document."""

    def __init__(
        self, parser: PdfParser, document: Any, context: ReadingContext, outline: pdfium.Outline
    ) -> None:
        self.unreadable_count = 0
        self.spacing = WordSpacing()
        self._parser = parser
        self._document, self._context, self._outline = document, context, outline
        self._grid_finder = GridFinder(context)
        self._recogniser = Recogniser(context)
        self._pictures = PagePictures(context, document)

    def iterate_drafts(self, page_count: int) -> Iterator[PageDraft]:
        """Drafts of all pages, in order; a page that cannot be read is blank."""
        pending = deque[_PendingPage]()
        for index in range(page_count):
            pending.append(self._begin_page(index, none_pending=not pending))
            while pending and (pending[0].is_ready or self._is_queue_full(pending)):
                yield self._finish_page(pending.popleft())
        while pending:
            yield self._finish_page(pending.popleft())

    def _is_queue_full(self, pending: Sequence[_PendingPage]) -> bool:
        """Whether the first pending page must be finished before another is begun."""
        recognition_count = sum(isinstance(page.result, Recognition) for page in pending)
        return len(pending) > _MAX_PAGES_AHEAD or recognition_count > self._recogniser.max_at_once

    def _begin_page(self, index: int, *, none_pending: bool) -> _PendingPage:
        """Read one page, or start to recognise it.

        Pictures are passed on in page order: at once if `none_pending`, else by `_finish_page`.
        """
        try:
            with (
                pdfium.open_page(self._document, index) as page,
                pdfium.open_text(page) as textpage,
            ):
                result, has_characters = (
                    self._read_page(page, textpage, index),
                    textpage.count_chars() > 0,
                )
                pictures_added = none_pending and isinstance(result, PageDraft)
                if isinstance(result, PageDraft) and none_pending:
                    self._pictures.add(
                        page, result.number, result.text, has_characters=has_characters
                    )
        except pdfium.UnreadablePage:
            return _PendingPage(index, self._make_blank(index))
        return _PendingPage(index, result, has_characters, pictures_added)

    def _finish_page(self, pending: _PendingPage) -> PageDraft:
        """The draft of a page, whose pictures have been passed on."""
        draft = pending.result
        if isinstance(draft, PageDraft) and pending.pictures_added:
            return draft
        try:
            with pdfium.open_page(self._document, pending.index) as page:
                if isinstance(draft, Recognition):
                    draft = self._draft_from_rows(page, pending.index, draft.wait_for_rows())
                self._pictures.add(
                    page, draft.number, draft.text, has_characters=pending.has_characters
                )
        except pdfium.UnreadablePage:
            return self._make_blank(pending.index)
        return draft

    def _make_blank(self, index: int) -> PageDraft:
        """A blank draft for a page that cannot be read."""
        self.unreadable_count += 1
        self._context.warn("page_unreadable")
        return PageDraft(index + 1)

    def _read_page(self, page: Any, textpage: Any, index: int) -> PageDraft | Recognition:
        """The draft of an open page from its text, or its recognition, which has been started."""
        text = self._parser.read_text(textpage, index)
        if is_coded(text) or is_scan(page, text):
            recognition = self._recogniser.begin_page(page, index)
            if recognition:
                return recognition
        return self._draft_from_text(page, textpage, index, text)

    def _draft_from_rows(self, page: Any, index: int, rows: Sequence[TextRow]) -> PageDraft:
        """The draft made of recognised lines; without any, of the page's own text after all."""
        if not rows:
            with pdfium.open_text(page) as textpage:
                return self._draft_from_text(
                    page, textpage, index, self._parser.read_text(textpage, index)
                )
        points, bookmarks = pdfium.read_frame(page).shown_height, self._outline.get(index, [])
        return PageDraft(index + 1, [*rows], points, bookmarks, is_recognised=True)

    def _draft_from_text(self, page: Any, textpage: Any, index: int, text: str) -> PageDraft:
        """The draft made of the page's own text, which `read_text` returned last."""
        bookmarks = self._outline.get(index, [])
        if is_coded(text):
            self._context.no_text = "unreadable"
            self._context.warn("no_unicode_map")
            return PageDraft(index + 1)
        if len(text) > _MAX_MAPPED_CHARACTERS:
            return PageDraft(index + 1, bookmarks=bookmarks, plain_text=to_plain_text(text))
        frame = pdfium.read_frame(page)
        glyphs = self._parser.read_glyphs(textpage, text, frame)
        grids = self._grid_finder.find_grids(page, frame)
        points = frame.shown_height
        draft = PageDraft(index + 1, height_points=points, bookmarks=bookmarks)
        return draft.lay_out(glyphs, grids, self.spacing)


# Pictures

_MAX_FORM_DEPTH = 8
"""Nesting depth of forms; deeper ones are ignored."""
_MIN_PICTURE_SHARE = 0.5
"""If pictures cover this share of a page without text, the whole page is one picture."""
_MIN_SCAN_SHARE = 0.8
"""If full-width pictures cover this share of a page, it is a scan, even if it has text."""
_MIN_FULL_WIDTH = 0.9
"""Share of the page's width or height from which a picture counts as reaching across."""
_JPEG_SIGNATURES = (b"\xff\xd8", b"\x00\x00\x00\x0cjP", b"\xff\x4f\xff\x51")
"""First bytes of JPEG and JPEG 2000."""
_MAX_PAGE_PIXELS = 2 * MAX_PIXELS
"""Pixels of all pictures of a page; with more, it is not drawn as one picture."""
_MAX_COMPARED_BYTES = 1024 * MEGABYTE
"""Bytes of a document's pictures that are read in order to recognise repeated ones."""
_MIN_TEXT_CHARACTERS = 50
"""Characters from which a scan counts as having text; a title above a chart has fewer."""


QUARTER_TURNS = (
    Matrix(),
    Matrix(0, -1, 1, 0),
    Matrix(-1, 0, 0, -1),
    Matrix(0, 1, -1, 0),
)
"""Rotations by 0 to 3 quarter turns clockwise."""


@dataclass(frozen=True, slots=True)
class _Image:
    """An image object: its handle, the map of the unit square to the page, its size in pixels.

    `key` is the hash of its bytes; empty if too many bytes had been read before it.
    """

    handle: Any
    matrix: Matrix
    width: int
    height: int
    box: PictureBox
    key: str

    @property
    def area(self) -> float:
        """Share of the page that it covers."""
        return (self.box[2] - self.box[0]) * (self.box[3] - self.box[1])

    @property
    def pixels(self) -> int:
        """Number of pixels, as declared."""
        return self.width * self.height

    @property
    def is_full_width(self) -> bool:
        """Whether it reaches from side to side of the page, as scans and their strips do."""
        return max(self.box[2] - self.box[0], self.box[3] - self.box[1]) >= _MIN_FULL_WIDTH

    @property
    def rejection(self) -> str:
        """Why it is dropped unseen; "" if it is not."""
        if not self.key:
            return "too_many"
        return "" if self.area else "hidden"


class PagePictures:
    """Passes on the pictures of one document, page by page."""

    def __init__(self, context: ReadingContext, document: Any) -> None:
        self._is_off = not context.pictures.max_pictures
        self._document = document
        self._read_bytes = 0
        self._sieve = PictureSieve(context)

    def add(self, page: Any, number: int, text: str, *, has_characters: bool = False) -> None:
        """Pass on the pictures of an open page whose text, its own or recognised, is `text`.

        `has_characters`: it has characters, readable or not. If it has no text all the same, the
        whole page is passed on as one picture.
        """
        if self._is_off:
            return
        frame = pdfium.read_frame(page)
        images = list(islice(self._iterate_images(page, frame), MAX_PICTURES))
        letters = len("".join(text.split()))
        strips = [image for image in images if image.is_full_width]
        is_scan = _compute_area(strips) >= _MIN_SCAN_SHARE
        if letters:
            is_picture = is_scan and letters < _MIN_TEXT_CHARACTERS
        else:
            is_picture = has_characters or _compute_area(images) >= _MIN_PICTURE_SHARE
        if is_picture and sum(image.pixels for image in images) <= _MAX_PAGE_PIXELS:
            self._sieve.add(_draw_whole_page(page, number, images, has_characters=has_characters))
            return
        is_read = is_scan and letters >= _MIN_TEXT_CHARACTERS
        for image in images:
            load = partial(self._draw_image, page, image, frame.turns)
            found = FoundPicture(image.key, image.width, image.height, load, number, image.box)
            self._sieve.add(
                found, "background" if is_read and image.is_full_width else image.rejection
            )

    def _iterate_images(self, page: Any, frame: PageFrame) -> Iterator[_Image]:
        """The image objects of a page, in the order in which they are drawn."""
        for handle, matrix in _iterate_image_objects(page.raw, Matrix(), 0):
            size, key = pdfium.read_image_size(handle), ""
            if self._read_bytes <= _MAX_COMPARED_BYTES:
                data = pdfium.read_image_data(handle)
                self._read_bytes += len(data)
                key = hash_bytes(f"{size}".encode(), data)
                size = max(size, _read_jpeg_size(data), key=math.prod)
            yield _Image(handle, matrix, *size, _to_box(matrix, frame), key)

    def _draw_image(self, page: Any, image: _Image, turns: int) -> Any:
        """Draw the image as displayed, with its mask, at its own resolution or a lower one."""
        original = pdfium.read_matrix(image.handle)
        pdfium.write_matrix(image.handle, _compute_upright_matrix(image, turns))
        try:
            return pdfium.draw_image(self._document, page, image.handle)
        finally:
            pdfium.write_matrix(image.handle, original)


def _iterate_image_objects(holder: Any, outer: Matrix, depth: int) -> Iterator[tuple[Any, Matrix]]:
    """Image objects of a page or form: their raw handles and their matrices to page space."""
    for item, kind in pdfium.list_objects(holder, is_form=depth > 0):
        if kind == pdfium.IMAGE:
            yield item, pdfium.read_matrix(item).compose(outer)
        elif kind == pdfium.FORM and depth < _MAX_FORM_DEPTH:
            yield from _iterate_image_objects(
                item, pdfium.read_matrix(item).compose(outer), depth + 1
            )


def _compute_upright_matrix(image: _Image, turns: int) -> Matrix:
    """The image's matrix, turned with the page, scaled to its pixels and moved to the origin."""
    matrix = image.matrix.compose(QUARTER_TURNS[turns])
    shown_width, shown_height = math.hypot(matrix.a, matrix.b), math.hypot(matrix.c, matrix.d)
    left, bottom, right, top = matrix.bounds
    scale = min(
        max(image.width / shown_width, image.height / shown_height),
        MAX_SIDE_PIXELS / max(right - left, top - bottom),
    )
    if not math.isfinite(scale):
        raise ValueError("no size on the page")
    moved = matrix.compose(Matrix(e=-left, f=-bottom))
    return moved.compose(Matrix(a=scale, d=scale))


def _compute_area(images: Sequence[_Image]) -> float:
    """Share of the page that images cover; overlaps count twice."""
    return sum(image.area for image in images)


def _to_box(matrix: Matrix, frame: PageFrame) -> PictureBox:
    """The box where an image is displayed, clipped to the page."""
    rect = frame.to_view(*matrix.bounds)
    return clip(rect.x0), clip(rect.y0), clip(rect.x1), clip(rect.y1)


def _draw_whole_page(
    page: Any, number: int, images: Sequence[_Image], *, has_characters: bool
) -> FoundPicture:
    """The whole page as one picture, whatever strips and masks it consists of."""
    width, height = page.get_size()
    area = max(width * height, 1.0)
    densities = [image.pixels / (image.area * area) for image in images if image.area]
    scale = MAX_SIDE_PIXELS / max(width, height, 1.0)
    if not has_characters:  # drawing it larger than its pictures adds nothing
        scale = min(scale, max(1.0, math.sqrt(max(densities, default=1.0))))
    keys = [image.key.encode() for image in images]
    return FoundPicture(
        hash_bytes(*keys, str(number).encode() if has_characters else b""),
        round(width * scale),
        round(height * scale),
        lambda: page.render(scale=scale).to_pil(),
        number,
        (0.0, 0.0, 1.0, 1.0),
        cost=sum(image.pixels for image in images),
    )


def _read_jpeg_size(data: bytes) -> tuple[int, int]:
    """Width and height declared in the JPEG itself; the page may claim less."""
    return read_declared_size(data) if data.startswith(_JPEG_SIGNATURES) else (0, 0)
