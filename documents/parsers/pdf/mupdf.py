"""PDF read with MuPDF's characters instead of PDFium's; everything else is as in `PdfParser`.

PyMuPDF is not installed by default: its licence is the AGPL (`requirements/pymupdf.txt`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from documents.parsers.base import ReaderMissing, ReadingContext
from documents.parsers.pdf.geometry import PageFrame
from documents.parsers.pdf.parser import PdfParser
from documents.parsers.pdf.text_runs import HYPHEN, Glyphs, is_coded
from rag.types import Page

Character = tuple[str, tuple[float, float, float, float]]
"""One UTF-16 unit with its left, top, right, bottom: points from the top left, before /Rotate."""

_HYPHENS = {"-", "\u2010", "\xad"}
_NO_BOX = (0.0, 0.0, 0.0, 0.0)
_LINE_END: Character = ("\n", _NO_BOX)


class PyMuPdfParser(PdfParser):
    """Reads .pdf as `PdfParser` does. Raises `ReaderMissing` where PyMuPDF is not installed."""

    def __init__(self) -> None:
        self._library = _load_library()
        self._document: Any = None
        self._characters: list[Character] = []

    def parse(self, path: Path, context: ReadingContext) -> Iterator[Page]:
        """Every page with its number."""
        if self._library is None:
            raise ReaderMissing(name="PyMuPDF")
        self._library.TOOLS.mupdf_display_errors(False)  # noqa: FBT003 - the only way to call it
        self._document = self._library.open(path)
        yield from super().parse(path, context)

    def read_text(self, textpage: Any, index: int) -> str:
        """All characters of the page at `index`, as `pdfium.read_characters` would give them."""
        pdfium_text = super().read_text(textpage, index)
        if is_coded(pdfium_text):  # MuPDF makes letters of glyph numbers where a font names none
            return pdfium_text
        flags = self._library.TEXT_PRESERVE_WHITESPACE | self._library.TEXT_MEDIABOX_CLIP
        page = self._document[index].get_text("rawdict", flags=flags)
        self._characters = list(_iterate_characters(page))
        return "".join(character for character, _ in self._characters)

    def read_glyphs(self, textpage: Any, text: str, frame: PageFrame) -> Glyphs:
        """The characters of `text`, which `read_text` returned last, with their boxes."""
        left, top = frame.left, frame.bottom + frame.height
        boxes = [
            frame.to_view(left + x0, top - y1, left + x1, top - y0)
            for _, (x0, y0, x1, y1) in self._characters
        ]
        x0s, y0s, x1s, y1s = map(list, zip(*boxes, strict=True)) if boxes else ([], [], [], [])
        return Glyphs(text, x0s, y0s, x1s, y1s, frame.shown_height / frame.shown_width)


def _load_library() -> Any:
    """PyMuPDF, or None."""
    try:
        import pymupdf
    except ImportError:
        return None
    return pymupdf


def _iterate_characters(page: dict[str, Any]) -> Iterator[Character]:
    """Characters of a page as UTF-16 units, with a line end after each line."""
    for block in page["blocks"]:
        for line in block.get("lines", ()):
            letters = [
                (letter["c"], letter["bbox"]) for span in line["spans"] for letter in span["chars"]
            ]
            for number, (letter, box) in enumerate(letters, 1):
                if number == len(letters) and letter in _HYPHENS:
                    yield HYPHEN, box
                else:
                    yield from ((unit, box) for unit in _iterate_utf16_units(letter))
            yield _LINE_END


def _iterate_utf16_units(letter: str) -> Iterator[str]:
    """The UTF-16 units of a character: one, or two surrogates."""
    data = letter.encode("utf-16-le", "surrogatepass")
    for start in range(0, len(data), 2):
        yield chr(int.from_bytes(data[start : start + 2], "little"))
