"""Our calls of PDFium: documents, pages, characters with their boxes, and what a page draws.

PDFium is not thread-safe: only one thread of a process may call this module.
"""

import ctypes
import re
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from documents.parsers.base import Corrupt, Encrypted
from documents.parsers.pdf.geometry import Matrix, PageFrame
from documents.parsers.text import clean_text

Bookmark = tuple[int, str]
"""Level from 1, title."""
Outline = Mapping[int, list[Bookmark]]
"""Bookmarks by the index of their page."""

PATH, IMAGE, FORM = 2, 3, 5
"""FPDF_PAGEOBJ_PATH, FPDF_PAGEOBJ_IMAGE, FPDF_PAGEOBJ_FORM."""
_PASSWORD, _SECURITY = 4, 5
"""FPDF_ERR_PASSWORD, FPDF_ERR_SECURITY."""
_MAX_BOOKMARKS = 5_000
_DATE = re.compile(r"^D:(\d{4})(\d\d)(\d\d)")


class UnreadablePage(Exception):
    """PDFium cannot read a page of an open document."""


def open_document(path: Path) -> Any:
    """The open document; raises Encrypted or Corrupt."""
    import pypdfium2

    try:
        return pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        if error.err_code in {_PASSWORD, _SECURITY}:
            raise Encrypted(lock="password") from error
        raise Corrupt(detail="PDF") from error


def read_properties(document: Any) -> dict[str, str]:
    """Title, author and date (YYYY-MM-DD) from the document information; "" if missing."""
    fields = document.get_metadata_dict(skip_empty=True)
    date = _DATE.match(fields.get("CreationDate", ""))
    return {
        "title": clean_text(fields.get("Title", "")),
        "author": clean_text(fields.get("Author", "")),
        "date": "-".join(date.groups()) if date else "",
    }


def read_outline(document: Any) -> Outline:
    """The bookmarks of a document."""
    bookmarks: dict[int, list[Bookmark]] = defaultdict(list)
    for bookmark in islice(document.get_toc(max_depth=6), _MAX_BOOKMARKS):
        target, title = bookmark.get_dest(), " ".join(clean_text(bookmark.get_title()).split())
        index = target.get_index() if target is not None else None
        if title and index is not None:
            bookmarks[index].append((bookmark.level + 1, title[:200]))
    return bookmarks


@contextmanager
def open_page(document: Any, index: int) -> Iterator[Any]:
    """A page with its form fields and notes; its memory is freed at the end.

    An error of PDFium within the block is raised as UnreadablePage.
    """
    import pypdfium2

    try:
        page = document[index]
        try:
            page = _flatten_annotations(document, page, index)
            yield page
        finally:
            page.close()
    except pypdfium2.PdfiumError as error:
        raise UnreadablePage from error


def _flatten_annotations(document: Any, page: Any, index: int) -> Any:
    """The page with form fields and text notes as part of its content; the file is unchanged."""
    import pypdfium2.raw as pdfium

    if not pdfium.FPDFPage_GetAnnotCount(page.raw):
        return page
    if pdfium.FPDFPage_Flatten(page.raw, pdfium.FLAT_NORMALDISPLAY) != pdfium.FLATTEN_SUCCESS:
        return page
    page.close()
    return document[index]


@contextmanager
def open_text(page: Any) -> Iterator[Any]:
    """The text page of an open page."""
    textpage = page.get_textpage()
    try:
        yield textpage
    finally:
        textpage.close()


def read_frame(page: Any) -> PageFrame:
    """The visible part of an open page."""
    import pypdfium2.raw as pdfium

    box = pdfium.FS_RECTF()
    pdfium.FPDF_GetPageBoundingBox(page.raw, ctypes.byref(box))
    width, height = box.right - box.left, box.top - box.bottom
    turns = page.get_rotation() // 90 % 4
    return PageFrame(box.left, box.bottom, width or 1.0, height or 1.0, turns)


def read_characters(textpage: Any) -> str:
    """All characters of an open text page, one UTF-16 unit for each."""
    import pypdfium2.raw as pdfium

    count = textpage.count_chars()
    buffer = (ctypes.c_ushort * (count + 1))()
    if pdfium.FPDFText_GetText(textpage.raw, 0, count, buffer) != count + 1:
        # Characters without a Unicode value are left out there, but not if read one by one.
        units = (pdfium.FPDFText_GetUnicode(textpage.raw, index) for index in range(count))
        return "".join(chr(unit) if unit < 0x10000 else "\ufffd" for unit in units)
    whole = memoryview(buffer).cast("B")[: count * 2].tobytes()
    text = whole.decode("utf-16-le", "surrogatepass")
    # Surrogate pairs are decoded to one character, but PDFium counts two glyphs.
    return text if len(text) == count else "".join(map(chr, buffer[:count]))


def read_boxes(textpage: Any, count: int) -> "array[float]":
    """Left, top, right and bottom of each of the first `count` characters, in points."""
    import pypdfium2.raw as pdfium

    read_box, raw = pdfium.FPDFText_GetLooseCharBox, textpage.raw
    box, boxes = pdfium.FS_RECTF(), array("f")
    reference, no_box = ctypes.byref(box), (0.0, 0.0, 0.0, 0.0)
    for index in range(count):
        has_box = read_box(raw, index, reference)
        boxes.extend((box.left, box.top, box.right, box.bottom) if has_box else no_box)
    return boxes


def count_objects(holder: Any, *, is_form: bool) -> int:
    """Number of objects in an open page or a form on it, given by its raw handle."""
    import pypdfium2.raw as pdfium

    count = pdfium.FPDFFormObj_CountObjects if is_form else pdfium.FPDFPage_CountObjects
    return max(int(count(holder)), 0)


def list_objects(holder: Any, *, is_form: bool) -> Iterator[tuple[Any, int]]:
    """The objects of a page or form with their types, in the order in which they are drawn."""
    import pypdfium2.raw as pdfium

    get = pdfium.FPDFFormObj_GetObject if is_form else pdfium.FPDFPage_GetObject
    for index in range(count_objects(holder, is_form=is_form)):
        item = get(holder, index)
        yield item, pdfium.FPDFPageObj_GetType(item)


def read_matrix(item: Any) -> Matrix:
    """The matrix from an object's own space to that of its holder."""
    import pypdfium2.raw as pdfium

    matrix = pdfium.FS_MATRIX()
    pdfium.FPDFPageObj_GetMatrix(item, ctypes.byref(matrix))
    return Matrix(matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f)


def write_matrix(item: Any, matrix: Matrix) -> None:
    """Set the matrix from an object's own space to that of its holder."""
    import pypdfium2.raw as pdfium

    pdfium.FPDFPageObj_SetMatrix(item, ctypes.byref(pdfium.FS_MATRIX(*matrix)))


def read_bounds(item: Any) -> tuple[float, float, float, float]:
    """Left, bottom, right and top of an object in its holder's space; zeros where unknown."""
    import pypdfium2.raw as pdfium

    sides = [ctypes.c_float() for _ in range(4)]
    pdfium.FPDFPageObj_GetBounds(item, *map(ctypes.byref, sides))
    left, bottom, right, top = (side.value for side in sides)
    return left, bottom, right, top


def has_ink(path: Any, white_level: int) -> bool:
    """Whether a path leaves ink: stroked, or filled with a colour below `white_level` of 255."""
    import pypdfium2.raw as pdfium

    fill, stroke = ctypes.c_int(), ctypes.c_int()
    pdfium.FPDFPath_GetDrawMode(path, ctypes.byref(fill), ctypes.byref(stroke))
    if stroke.value or not fill.value:
        return bool(stroke.value)
    colours = [ctypes.c_uint() for _ in range(4)]
    pdfium.FPDFPageObj_GetFillColor(path, *map(ctypes.byref, colours))
    *ink, alpha = (colour.value for colour in colours)
    return bool(alpha > 0 and min(ink) < white_level)


def count_segments(path: Any) -> int:
    """Number of segments of a path."""
    import pypdfium2.raw as pdfium

    return int(pdfium.FPDFPath_CountSegments(path))


def list_segments(path: Any) -> Iterator[tuple[int, float, float]]:
    """Type (FPDF_SEGMENT_...) and end of each segment of a path, in the path's own space."""
    import pypdfium2.raw as pdfium

    x, y = ctypes.c_float(), ctypes.c_float()
    for index in range(count_segments(path)):
        segment = pdfium.FPDFPath_GetPathSegment(path, index)
        pdfium.FPDFPathSegment_GetPoint(segment, ctypes.byref(x), ctypes.byref(y))
        yield pdfium.FPDFPathSegment_GetType(segment), x.value, y.value


def read_image_size(item: Any) -> tuple[int, int]:
    """Width and height in pixels that the file declares for an image object."""
    import pypdfium2.raw as pdfium

    width, height = ctypes.c_uint(), ctypes.c_uint()
    pdfium.FPDFImageObj_GetImagePixelSize(item, ctypes.byref(width), ctypes.byref(height))
    return width.value, height.value


def read_image_data(item: Any) -> bytes:
    """The raw stream of an image object."""
    import pypdfium2.raw as pdfium

    count = pdfium.FPDFImageObj_GetImageDataRaw(item, None, 0)
    buffer = (ctypes.c_ubyte * count)()
    pdfium.FPDFImageObj_GetImageDataRaw(item, buffer, count)
    return bytes(buffer)


def draw_image(document: Any, page: Any, item: Any) -> Any:
    """An image object with its mask, as a Pillow image; raises ValueError where there is none."""
    import pypdfium2
    import pypdfium2.raw as pdfium

    raw = pdfium.FPDFImageObj_GetRenderedBitmap(document.raw, page.raw, item)
    if not raw:
        raise ValueError("no bitmap")
    return pypdfium2.PdfBitmap.from_raw(raw).to_pil().copy()
