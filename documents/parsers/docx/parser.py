"""DOCX: the body in order; headers and footers stand beside it."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from documents.parsers.base import ReadingContext
from documents.parsers.builder import PageBuilder
from documents.parsers.docx.blocks import Blocks, Surroundings
from documents.parsers.docx.numbering import Numbering
from documents.parsers.docx.package import Package, attribute
from documents.parsers.docx.styles import Styles
from documents.parsers.pictures import PictureSieve
from rag.pages import Page

_LETTER = re.compile(r"[^\W\d_]")


class DocxParser:
    """Reads .docx; Word documents have no fixed pages, so there is one without a number."""

    def parse(self, path: Path, context: ReadingContext) -> Iterator[Page]:
        """The whole document as one page."""
        package = Package(path, context)
        context.add_metadata(package.properties())
        styles, numbering = Styles(package.styles()), Numbering(package.part("numbering.xml"))
        beside = Surroundings(styles, numbering)
        sieve = PictureSieve(context)

        def picture(relationship: str, at: int) -> None:
            if found := package.picture(relationship):
                sieve.add_file(*found, at)

        surroundings = Surroundings(
            styles,
            numbering,
            notes=_notes(package, beside, context),
            related=package.related,
            picture=picture,
            warn=context.warn,
        )
        builder = PageBuilder(context)
        Blocks(builder, surroundings).add(package.body())
        yield builder.build_page(_margins(package, beside, context))


def _notes(
    package: Package, beside: Surroundings, context: ReadingContext
) -> dict[tuple[str, str], str]:
    """Footnotes and endnotes by kind and id."""
    found = {}
    for kind in ("footnote", "endnote"):
        root = package.part(f"{kind}s.xml")
        for note in root if root is not None else ():
            if attribute(note, "type") in {"", "normal"}:
                found[kind, attribute(note, "id")] = "\n".join(_blocks(note, beside, context))
    return found


def _margins(package: Package, beside: Surroundings, context: ReadingContext) -> Sequence[str]:
    """Paragraphs of all headers and footers, each once; page numbers alone are nothing."""
    found: dict[str, None] = {}
    for kind in ("header", "footer"):
        for root in package.parts(kind):
            found |= dict.fromkeys(_blocks(root, beside, context))
    return [text for text in found if _LETTER.search(text)]


def _blocks(root: Any, beside: Surroundings, context: ReadingContext) -> list[str]:
    """The blocks of a part that is no body."""
    builder = PageBuilder(context)
    Blocks(builder, beside).add(root)
    return builder.build_page().text.split("\n\n")
