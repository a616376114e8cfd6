"""DOCX: the body in order, with text boxes, insertions, footnotes, headers and footers."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from documents.parsers import kinds
from documents.parsers.archive import Archive, check_xml
from documents.parsers.base import Context
from documents.parsers.builder import PageBuilder
from documents.parsers.docx_text import Blocks, local
from documents.parsers.errors import Corrupt
from rag.pages import Page

_MAIN_TYPE = re.compile(
    rb'PartName="/?([^"]+)"[^>]*ContentType="[^"]*(?:wordprocessingml\.document|'
    rb'ms-word\.document\.macroEnabled)\.main\+xml"'
)
_HEADING_NAME = re.compile(r"^(?:heading|제목|개요)\s*([1-9])$", re.IGNORECASE)


class DocxParser:
    """Reads .docx; Word documents have no fixed pages, so there is one without a number."""

    types = (kinds.DOCX,)

    def parse(self, path: Path, context: Context) -> Iterator[Page]:
        """The whole document as one page."""
        archive = Archive(path, context.limits)
        main = _main_part(archive)
        folder = main.rpartition("/")[0] or "word"
        builder = PageBuilder(context)
        _properties(archive, context)
        blocks = Blocks(
            builder,
            _heading_levels(archive, f"{folder}/styles.xml"),
            _notes(archive, folder, context),
        )
        for paragraph in _running_titles(archive, folder, "header", context):
            builder.paragraph(paragraph)
        body = _root(archive, main).find("{*}body")
        if body is None:
            raise Corrupt(detail="no body")
        blocks.add(body)
        for paragraph in _running_titles(archive, folder, "footer", context):
            builder.paragraph(paragraph)
        yield builder.page()


def _main_part(archive: Archive) -> str:
    """Name of the part with the text; nearly always word/document.xml, but the package decides."""
    if "[Content_Types].xml" in archive:
        match = _MAIN_TYPE.search(archive.read("[Content_Types].xml"))
        if match and match[1].decode("utf-8", "replace") in archive:
            return match[1].decode("utf-8", "replace")
    if "word/document.xml" not in archive:
        raise Corrupt(detail="word/document.xml is missing")
    return "word/document.xml"


def _root(archive: Archive, name: str) -> Any:
    """The parsed part; document types and deep nesting are refused before a tree is built."""
    from lxml import etree

    check_xml(archive, name)
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, huge_tree=False, remove_comments=True
    )
    return etree.fromstring(archive.read(name), parser)


def _optional(archive: Archive, name: str, context: Context) -> Any | None:
    """A part that the document can be read without; unsafe or broken, only it is lost."""
    if name not in archive:
        return None
    try:
        return _root(archive, name)
    except Corrupt:
        context.warn("part_skipped")
        return None


def _properties(archive: Archive, context: Context) -> None:
    """Title, author and date from docProps/core.xml."""
    core = _optional(archive, "docProps/core.xml", context)
    if core is not None:
        texts = {local(element): element.text for element in core}
        date = (texts.get("created") or "")[:10]
        context.found({"title": texts.get("title"), "author": texts.get("creator"), "date": date})


def _heading_levels(archive: Archive, name: str) -> dict[str, int]:
    """Style id -> heading level, by outline level or name, inherited along `basedOn`."""
    if name not in archive:
        return {}
    try:
        styles = _root(archive, name).findall("{*}style")
    except Corrupt:
        return {}
    levels, parents = {}, {}
    for style in styles:
        style_id = _attribute(style, "styleId")
        parents[style_id] = _value(style.find("{*}basedOn"))
        level = _level(style)
        if level:
            levels[style_id] = level
    for style_id in parents:
        ancestor, steps = style_id, 0
        while ancestor and ancestor not in levels and steps < 10:
            ancestor, steps = parents.get(ancestor, ""), steps + 1
        if ancestor in levels:
            levels[style_id] = levels[ancestor]
    return levels


def _level(style: Any) -> int:
    """The level that a style gives by itself; 0 for text."""
    outline = _value(style.find("{*}pPr/{*}outlineLvl"))
    if outline.isdecimal() and int(outline) < 9:
        return int(outline) + 1
    name = _value(style.find("{*}name"))
    if name.lower() == "title":
        return 1
    match = _HEADING_NAME.match(name)
    return int(match[1]) if match else 0


def _value(element: Any | None) -> str:
    """The `w:val` of an element."""
    return "" if element is None else _attribute(element, "val")


def _attribute(element: Any, name: str) -> str:
    """An attribute in whatever namespace (transitional and strict documents differ)."""
    for key, value in element.attrib.items():
        if key.rpartition("}")[2] == name:
            return str(value)
    return ""


def _notes(archive: Archive, folder: str, context: Context) -> dict[tuple[str, str], str]:
    """Footnotes and endnotes by kind and id."""
    found = {}
    for kind in ("footnote", "endnote"):
        root = _optional(archive, f"{folder}/{kind}s.xml", context)
        for note in root if root is not None else ():
            if _attribute(note, "type") in {"", "normal"}:
                builder = PageBuilder(context)
                Blocks(builder, {}, {}).add(note)
                found[kind, _attribute(note, "id")] = builder.page().text.replace("\n\n", "\n")
    return found


def _running_titles(archive: Archive, folder: str, kind: str, context: Context) -> list[str]:
    """Paragraphs of all headers (or footers), each once; page numbers alone are nothing."""
    found: dict[str, None] = {}
    for name in archive.names:
        if name.startswith(f"{folder}/{kind}") and name.endswith(".xml"):
            root = _optional(archive, name, context)
            if root is not None:
                builder = PageBuilder(context)
                Blocks(builder, {}, {}).add(root)
                found |= dict.fromkeys(builder.page().text.split("\n\n"))
    return [text for text in found if re.search(r"[^\W\d_]", text)]
