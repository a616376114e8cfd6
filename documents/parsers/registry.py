"""Which reader reads which type: one line a format."""

from importlib import import_module
from typing import cast

from documents.parsers import kinds
from documents.parsers.base import Parser

READERS = {
    kinds.PDF: "pdf:PdfParser",
    kinds.DOCX: "docx:DocxParser",
    kinds.HWP: "hwp:HwpParser",
    kinds.HWPX: "hwp:HwpParser",
    kinds.HTML: "html:HtmlParser",
    kinds.MARKDOWN: "markdown:MarkdownParser",
    kinds.TEXT: "text:TextParser",
}


def parser(content_type: str) -> Parser:
    """The reader of a type; its module is loaded only now."""
    module, _, name = READERS[content_type].partition(":")
    return cast("Parser", getattr(import_module(f"documents.parsers.{module}"), name)())
