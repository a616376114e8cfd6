"""The parts of a Word file: python-docx's model of them, behind our caps and checks.

python-docx opens packages itself, but believes their sizes and gives up on the first part that is
missing; so the archive is ours, and each part is handed to its parser once it is known to be safe.
"""

import posixpath
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from documents.parsers.archive import Archive, check_xml_part
from documents.parsers.base import ReadingContext
from documents.parsers.errors import Corrupt

_MAIN_TYPE = re.compile(
    rb'PartName="/?([^"]+)"[^>]*ContentType="[^"]*(?:wordprocessingml\.document|'
    rb'ms-word\.document\.macroEnabled)\.main\+xml"'
)
_STRICT = b"http://purl.oclc.org/ooxml/"
_TRANSITIONAL = b"http://schemas.openxmlformats.org/"
_FAMILIES = (b"wordprocessingml", b"drawingml", b"officeDocument")


class Package:
    """An open Word file. Raises Corrupt where there is no main part."""

    def __init__(self, path: Path, context: ReadingContext) -> None:
        self._archive = Archive(path, context.limits)
        self._context = context
        self._main = _main_part(self._archive)
        self._folder = posixpath.dirname(self._main) or "word"
        self._targets = self._relationships()

    def body(self) -> Any:
        """The body of the main part."""
        body = self._parsed(self._main).find("{*}body")
        if body is None:
            raise Corrupt(detail="no body")
        return body

    def part(self, name: str) -> Any | None:
        """A part beside the main one, as `styles.xml`, without which the text can be read.

        None where it is missing; unsafe or broken, only it is lost, with a warning.
        """
        return self._optional(f"{self._folder}/{name}")

    def parts(self, kind: str) -> Iterator[Any]:
        """All parts of a kind that may come more than once: `header` or `footer`."""
        for name in self._archive.names:
            if name.startswith(f"{self._folder}/{kind}") and name.endswith(".xml"):
                root = self._optional(name)
                if root is not None:
                    yield root

    def related(self, relationship: str) -> Any | None:
        """The part that the main part refers to by this id (a chart), or None."""
        return self._optional(self._targets.get(relationship, ""))

    def picture(self, relationship: str) -> tuple[str, Callable[[], bytes]] | None:
        """Name and bytes of the picture with this id; None for one outside of the file."""
        name = self._targets.get(relationship, "")
        return (name, partial(self._archive.read_part, name)) if name in self._archive else None

    def styles(self) -> list[Any]:
        """python-docx's styles, in order."""
        from docx.styles.styles import Styles

        root = self.part("styles.xml")
        return [] if root is None else list(Styles(root))

    def properties(self) -> dict[str, str]:
        """Title, author and date (ISO) as the file carries them."""
        from docx.opc.coreprops import CoreProperties

        root = self._optional("docProps/core.xml")
        if root is None:
            return {}
        core = CoreProperties(root)
        date = core.created.date().isoformat() if core.created else ""
        return {"title": core.title, "author": core.author, "date": date}

    def _relationships(self) -> dict[str, str]:
        """Relationship id -> name of the part, of the main part."""
        folder, name = posixpath.split(self._main)
        root = self._optional(f"{folder}/_rels/{name}.rels".lstrip("/"))
        return {
            one.get("Id", ""): posixpath.normpath(
                posixpath.join("/", folder, one.get("Target", ""))
            )[1:]
            for one in (root if root is not None else ())
        }

    def _optional(self, name: str) -> Any | None:
        if name not in self._archive:
            return None
        try:
            return self._parsed(name)
        except Corrupt:
            self._context.warn("part_skipped")
            return None

    def _parsed(self, name: str) -> Any:
        """The part as python-docx's elements; strict documents as if they were transitional.

        Document types and deep nesting are refused before a tree is built.
        """
        from docx.oxml import parse_xml
        from lxml import etree

        check_xml_part(self._archive, name)
        data = self._archive.read_part(name)
        if _STRICT in data:
            for family in _FAMILIES:
                data = data.replace(_STRICT + family, _TRANSITIONAL + family + b"/2006")
        try:
            return parse_xml(data)
        except etree.XMLSyntaxError as error:
            raise Corrupt(detail=f"XMLSyntaxError in {name}") from error


def _main_part(archive: Archive) -> str:
    """Name of the part with the text; nearly always word/document.xml, but the package decides."""
    if "[Content_Types].xml" in archive:
        match = _MAIN_TYPE.search(archive.read_part("[Content_Types].xml"))
        if match and match[1].decode("utf-8", "replace") in archive:
            return match[1].decode("utf-8", "replace")
    if "word/document.xml" not in archive:
        raise Corrupt(detail="word/document.xml is missing")
    return "word/document.xml"


def attribute(element: Any | None, name: str = "val") -> str:
    """An attribute of an element, which may be missing, in whatever namespace; else ""."""
    for key, value in element.attrib.items() if element is not None else ():
        if key.rpartition("}")[2] == name:
            return str(value)
    return ""


def local(element: Any) -> str:
    """The element's name without its namespace; "" for comments and instructions."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def is_on(element: Any | None) -> bool:
    """Whether a switch (`w:tblHeader`) is there and not turned off."""
    return element is not None and attribute(element) not in {"0", "false", "off", "none"}
