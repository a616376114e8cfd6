"""Which reader reads which type: one line a format, for PDF one a reader."""

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


def parser(content_type: str, pdf_reader: str = PDFIUM) -> Parser:
    """The reader of a type; its module is loaded only now."""
    key = pdf_reader if content_type == kinds.PDF else content_type
    module, _, name = READERS[key].partition(":")
    return cast("Parser", getattr(import_module(f"documents.parsers.{module}"), name)())
