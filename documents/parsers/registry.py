"""Which reader reads which type: one line a format, for PDF one a reader."""

import sys
from importlib import import_module
from typing import cast

from documents.parsers import kinds
from documents.parsers.base import Parser

PDFIUM, PYMUPDF = PDF_READERS = ("pdfium", "pymupdf")
"""Who may read PDF. The licence of the second is the AGPL, so that it has to be chosen."""
READERS = {
    PDFIUM: "pdf.parser:PdfParser",
    PYMUPDF: "pdf.mupdf:PyMuPdfParser",
    kinds.DOCX: "docx.parser:DocxParser",
    kinds.HWP: "hangul.parser:HwpParser",
    kinds.HWPX: "hangul.parser:HwpParser",
    kinds.HTML: "html.parser:HtmlParser",
    kinds.MARKDOWN: "markdown.parser:MarkdownParser",
    kinds.TEXT: "text:TextParser",
}
_PICTURES = ("PIL.ImageFilter", "PIL.ImageOps", "PIL.ImageStat")
_PDF = ("pypdfium2", "pypdfium2.raw", *_PICTURES)
LIBRARIES = {
    PDFIUM: _PDF,
    PYMUPDF: _PDF,  # PyMuPDF itself starts threads, which a fork would lack
    kinds.DOCX: ("docx", *_PICTURES),
    kinds.HWP: ("olefile", *_PICTURES),
    kinds.HWPX: ("lxml.etree", *_PICTURES),
    kinds.HTML: ("lxml.html",),
}
"""What readers import once they are at work; a process that forks them imports it before."""


def parser(content_type: str, pdf_reader: str = PDFIUM) -> Parser:
    """The reader of a type; its module is loaded only now."""
    module, name = _place(content_type, pdf_reader)
    return cast("Parser", getattr(import_module(module), name)())


def load(content_type: str, pdf_reader: str) -> None:
    """Load what the reader of a type needs, for all processes that are forked from this one."""
    for library in LIBRARIES.get(_key(content_type, pdf_reader), ()):
        import_module(library)
    if image := sys.modules.get("PIL.Image"):
        image.preinit()
    module, _ = _place(content_type, pdf_reader)
    import_module(module)


def _place(content_type: str, pdf_reader: str) -> tuple[str, str]:
    """Module and class of a reader."""
    module, _, name = READERS[_key(content_type, pdf_reader)].partition(":")
    return f"documents.parsers.{module}", name


def _key(content_type: str, pdf_reader: str) -> str:
    return pdf_reader if content_type == kinds.PDF else content_type
