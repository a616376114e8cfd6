"""Pictures of PDF pages: image objects, in nested forms too, and pages that are pictures."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from documents.parsers.base import MAX_PICTURES, MEGABYTE, ReadingContext
from documents.parsers.pdf import pdfium
from documents.parsers.pdf.geometry import Matrix, PageFrame, clip
from documents.parsers.pictures import (
    MAX_PIXELS,
    MAX_SIDE_PIXELS,
    FoundPicture,
    PictureBox,
    PictureSieve,
    hash_bytes,
    read_declared_size,
)

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
    def spans(self) -> bool:
        """Whether it goes from one side of the page to the other, as scans and their strips do."""
        return max(self.box[2] - self.box[0], self.box[3] - self.box[1]) >= _SPANNING

    @property
    def lost(self) -> str:
        """Why it is not even looked at."""
        if not self.key:
            return "too_many"
        return "" if self.area else "hidden"


class PagePictures:
    """Hands on the pictures of one document, page by page."""

    def __init__(self, context: ReadingContext, document: Any) -> None:
        self._off = not context.pictures.most
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
        images = list(islice(self._images(page, frame), MAX_PICTURES))
        letters = len("".join(text.split()))
        strips = [image for image in images if image.spans]
        is_scan = _area(strips) >= _BACKGROUND
        if letters:
            is_picture = is_scan and letters < _LEAST_TEXT
        else:
            is_picture = coded or _area(images) >= _FIGURELESS
        if is_picture and sum(image.pixels for image in images) <= _LARGEST_PAGE:
            self._sieve.add(_whole(page, number, images, coded=coded))
            return
        is_read = is_scan and letters >= _LEAST_TEXT
        for image in images:
            load = partial(self._drawn, page, image, frame.turns)
            found = FoundPicture(image.key, image.width, image.height, load, number, image.box)
            self._sieve.add(found, "background" if is_read and image.spans else image.lost)

    def _images(self, page: Any, frame: PageFrame) -> Iterator[_Image]:
        """The image objects of a page, in the order in which they are drawn."""
        for handle, matrix in _placed(page.raw, Matrix(), 0):
            size, key = pdfium.read_image_size(handle), ""
            if self._read <= _MOST_READ:
                data = pdfium.read_image_data(handle)
                self._read += len(data)
                key = hash_bytes(f"{size}".encode(), data)
                size = max(size, _size(data), key=math.prod)
            yield _Image(handle, matrix, *size, _box(matrix, frame), key)

    def _drawn(self, page: Any, image: _Image, turns: int) -> Any:
        """The image as the page shows it, with its mask, at its own resolution or below."""
        before = pdfium.read_matrix(image.handle)
        pdfium.write_matrix(image.handle, _upright(image, turns))
        try:
            return pdfium.draw_image(self._document, page, image.handle)
        finally:
            pdfium.write_matrix(image.handle, before)


def _placed(holder: Any, outer: Matrix, depth: int) -> Iterator[tuple[Any, Matrix]]:
    """Image objects of a page or form, by raw handle, with where they go on the page."""
    for item, kind in pdfium.list_objects(holder, is_form=depth > 0):
        if kind == pdfium.IMAGE:
            yield item, pdfium.read_matrix(item).then(outer)
        elif kind == pdfium.FORM and depth < _DEEPEST:
            yield from _placed(item, pdfium.read_matrix(item).then(outer), depth + 1)


def _upright(image: _Image, turns: int) -> Matrix:
    """The image's matrix turned with the page and scaled to its pixels, at the origin."""
    matrix = image.matrix.then(TURNS[turns])
    wide, high = math.hypot(matrix.a, matrix.b), math.hypot(matrix.c, matrix.d)
    left, bottom, right, top = matrix.bounds
    scale = min(
        max(image.width / wide, image.height / high),
        MAX_SIDE_PIXELS / max(right - left, top - bottom),
    )
    if not math.isfinite(scale):
        raise ValueError("no size on the page")
    moved = matrix.then(Matrix(e=-left, f=-bottom))
    return moved.then(Matrix(a=scale, d=scale))


def _area(images: Sequence[_Image]) -> float:
    """Share of the page that they cover, apart from overlaps."""
    return sum(image.area for image in images)


def _box(matrix: Matrix, frame: PageFrame) -> PictureBox:
    """Where it is shown, clipped to the page."""
    rect = frame.shown(*matrix.bounds)
    return clip(rect.x0), clip(rect.y0), clip(rect.x1), clip(rect.y1)


def _whole(page: Any, number: int, images: Sequence[_Image], *, coded: bool) -> FoundPicture:
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


def _size(data: bytes) -> tuple[int, int]:
    """Width and height declared in the JPEG itself; the page may claim less."""
    return read_declared_size(data) if data.startswith(_ENCODED) else (0, 0)
