"""The parts of a Word file, parsed by python-docx after our own limits and checks.

python-docx trusts the sizes that a package declares and fails on the first missing part, so we open
the archive ourselves and give python-docx each part only once it is known to be safe. This module
also resolves the styles of paragraphs (headings, numbering, code, inherited by `basedOn`) and
computes their list numbers, which Word stores in no text.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from documents.parsers.archive import Archive, check_xml_part
from documents.parsers.base import Corrupt, ReadingContext
from documents.parsers.builder import format_number

_MAIN_TYPE = re.compile(
    rb'PartName="/?([^"]+)"[^>]*ContentType="[^"]*(?:wordprocessingml\.document|'
    rb'ms-word\.document\.macroEnabled)\.main\+xml"'
)
_STRICT = b"http://purl.oclc.org/ooxml/"
_TRANSITIONAL = b"http://schemas.openxmlformats.org/"
_FAMILIES = (b"wordprocessingml", b"drawingml", b"officeDocument")

_HEADING_NAME = re.compile(r"(?:heading|제목|개요)\s*([1-9])", re.IGNORECASE)
_CODE_NAME = re.compile(
    r"(?:source )?code(?: block)?|html preformatted|preformatted text|(?:소스 ?)?코드",
    re.IGNORECASE,
)
_MAX_BASE_STYLES = 10
TEXT_LEVEL = 0

BULLET = "-"
_LEVEL_REFERENCE = re.compile(r"%([1-9])")


class WordPackage:
    """An open Word file. Raises Corrupt where there is no main part."""

    def __init__(self, path: Path, context: ReadingContext) -> None:
        self._archive = Archive(path, context.limits)
        self._context = context
        self._main = _find_main_part(self._archive)
        self._folder = posixpath.dirname(self._main) or "word"
        self._targets = self._read_relationships()

    def read_body(self) -> Any:
        """The body of the main part."""
        body = self._parse_part(self._main).find("{*}body")
        if body is None:
            raise Corrupt(detail="no body")
        return body

    def read_part(self, name: str) -> Any | None:
        """An optional part next to the main one, such as `styles.xml`.

        None if it is missing; also, with a warning, if it is unsafe or broken.
        """
        return self._read_optional(f"{self._folder}/{name}")

    def iterate_parts(self, kind: str) -> Iterator[Any]:
        """All parts of a kind that may occur more than once: `header` or `footer`."""
        for name in self._archive.names:
            if name.startswith(f"{self._folder}/{kind}") and name.endswith(".xml"):
                root = self._read_optional(name)
                if root is not None:
                    yield root

    def read_related_part(self, relationship: str) -> Any | None:
        """The part with this relationship id, such as a chart, or None."""
        return self._read_optional(self._targets.get(relationship, ""))

    def find_picture(self, relationship: str) -> tuple[str, Callable[[], bytes]] | None:
        """Name and loader of the picture with this relationship id; None if it is not embedded."""
        name = self._targets.get(relationship, "")
        return (name, partial(self._archive.read_part, name)) if name in self._archive else None

    def list_styles(self) -> list[Any]:
        """python-docx's styles, in order."""
        from docx.styles.styles import Styles

        root = self.read_part("styles.xml")
        return [] if root is None else list(Styles(root))

    def read_properties(self) -> dict[str, str]:
        """Title, author and date (ISO) of the file's properties."""
        from docx.opc.coreprops import CoreProperties

        root = self._read_optional("docProps/core.xml")
        if root is None:
            return {}
        core = CoreProperties(root)
        date = core.created.date().isoformat() if core.created else ""
        return {"title": core.title, "author": core.author, "date": date}

    def _read_relationships(self) -> dict[str, str]:
        """Relationship ids of the main part -> names of parts."""
        folder, name = posixpath.split(self._main)
        relationships = self._read_optional(f"{folder}/_rels/{name}.rels".lstrip("/"))
        return {
            relationship.get("Id", ""): posixpath.normpath(
                posixpath.join("/", folder, relationship.get("Target", ""))
            )[1:]
            for relationship in (relationships if relationships is not None else ())
        }

    def _read_optional(self, name: str) -> Any | None:
        if name not in self._archive:
            return None
        try:
            return self._parse_part(name)
        except Corrupt:
            self._context.warn("part_skipped")
            return None

    def _parse_part(self, name: str) -> Any:
        """The part as python-docx's elements; strict OOXML is read as transitional.

        Raises Corrupt or XmlUnsafe; document types and deep nesting are refused before parsing.
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


def _find_main_part(archive: Archive) -> str:
    """Name of the main part: usually word/document.xml, but the package may say otherwise."""
    if "[Content_Types].xml" in archive:
        match = _MAIN_TYPE.search(archive.read_part("[Content_Types].xml"))
        if match and match[1].decode("utf-8", "replace") in archive:
            return match[1].decode("utf-8", "replace")
    if "word/document.xml" not in archive:
        raise Corrupt(detail="word/document.xml is missing")
    return "word/document.xml"


def get_attribute(element: Any | None, name: str = "val") -> str:
    """An attribute in any namespace; "" if it or the element is missing."""
    for key, value in element.attrib.items() if element is not None else ():
        if key.rpartition("}")[2] == name:
            return str(value)
    return ""


def is_switched_on(element: Any | None) -> bool:
    """Whether an on/off element (`w:tblHeader`) is present and not turned off."""
    return element is not None and get_attribute(element) not in {"0", "false", "off", "none"}


@dataclass(frozen=True, slots=True)
class _Style:
    """One style without what it inherits; None where its base style decides."""

    parent: str
    level: int | None
    number: str | None
    depth: str
    is_code: bool


class WordStyles:
    """The paragraph styles, by their ids."""

    def __init__(self, styles: Sequence[Any] = ()) -> None:
        self._styles = {style.style_id or "": _read_style(style) for style in styles}

    def get_level(self, style_id: str) -> int:
        """1..9 for headings, 0 for text."""
        levels_by_distance = (style.level for _, style in self._iterate_bases(style_id))
        return next((level for level in levels_by_distance if level is not None), TEXT_LEVEL)

    def get_numbering(self, style_id: str) -> tuple[str, str, str] | None:
        """List id, level ("" if not set) and the style that defines them; None without a list."""
        for name, style in self._iterate_bases(style_id):
            if style.number is not None:
                return style.number, style.depth, name
        return None

    def is_code(self, style_id: str) -> bool:
        """Whether the style is named as one for code."""
        return any(style.is_code for _, style in self._iterate_bases(style_id))

    def _iterate_bases(self, style_id: str) -> Iterator[tuple[str, _Style]]:
        """The style, then the styles it is based on, nearest first."""
        for _ in range(_MAX_BASE_STYLES):
            if (style := self._styles.get(style_id)) is None:
                return
            yield style_id, style
            style_id = style.parent


def _read_style(style: Any) -> _Style:
    """A style of python-docx."""
    element, name = style.element, (style.name or "").strip()
    number = element.find("{*}pPr/{*}numPr/{*}numId")
    return _Style(
        parent=get_attribute(element.find("{*}basedOn")),
        level=_read_style_level(get_attribute(element.find("{*}pPr/{*}outlineLvl")), name),
        number=None if number is None else get_attribute(number),
        depth=get_attribute(element.find("{*}pPr/{*}numPr/{*}ilvl")),
        is_code=_CODE_NAME.fullmatch(name) is not None,
    )


def _read_style_level(outline: str, name: str) -> int | None:
    """The level of a style without what it inherits."""
    if outline:
        return to_heading_level(outline)
    if name.lower() == "title":
        return 1
    match = _HEADING_NAME.fullmatch(name)
    return int(match[1]) if match else None


def to_heading_level(value: str) -> int:
    """The heading level of an outline level: Word counts from 0, and 9 is text."""
    return int(value) + 1 if value.isdecimal() and int(value) < 9 else TEXT_LEVEL


@dataclass(frozen=True, slots=True)
class _Level:
    """How one level of a list counts."""

    start: int
    form: str
    pattern: str
    style: str
    has_no_separator: bool
    is_decimal: bool

    def format_label(self, text: str) -> str:
        """The label with the space between it and the paragraph."""
        return text if self.has_no_separator or not text else f"{text} "


@dataclass(frozen=True, slots=True)
class _List:
    """One list (`w:num`): the id of its counters, its levels, and the levels it restarts."""

    counters: str
    levels: dict[int, _Level]
    starts: dict[int, int]


class WordNumbering:
    """Counts numbered paragraphs; `next_label` must be called once for each, in order."""

    def __init__(self, root: Any | None = None) -> None:
        self._lists = dict(_read_lists(root)) if root is not None else {}
        self._counts: dict[str, dict[int, int]] = {}
        self._started: set[tuple[str, int]] = set()

    def get_depth(self, number: str, style_id: str) -> int:
        """The level that a list assigns to a style; 0 if it assigns none."""
        levels = self._lists[number].levels if number in self._lists else {}
        return next((depth for depth, level in levels.items() if level.style == style_id), 0)

    def next_label(self, number: str, depth: int) -> str | None:
        """The label of the next paragraph of this list, with its separator; may be "".

        None if there is no such list or level.
        """
        list_ = self._lists.get(number)
        if list_ is None or depth not in list_.levels:
            return None
        counts = self._count_paragraph(number, list_, depth)
        level = list_.levels[depth]
        if level.form == "bullet":
            return level.format_label(BULLET)

        def format_reference(match: re.Match[str]) -> str:
            at = int(match[1]) - 1
            if at not in list_.levels:
                return ""
            form = "decimal" if level.is_decimal else list_.levels[at].form
            return format_number(counts.get(at, 0), form)

        return level.format_label(_LEVEL_REFERENCE.sub(format_reference, level.pattern).strip())

    def _count_paragraph(self, number: str, list_: _List, depth: int) -> dict[int, int]:
        """Count a paragraph at this depth and return the counters; deeper ones restart."""
        counts = self._counts.setdefault(list_.counters, {})
        if depth in list_.starts and (number, depth) not in self._started:
            counts[depth] = list_.starts[depth]
        elif depth in counts:
            counts[depth] += 1
        else:
            counts[depth] = list_.levels[depth].start
        self._started.add((number, depth))
        # A level that was skipped counts as begun: 2., 2.1.1., 2.2.
        skipped = {
            other_depth: level.start
            for other_depth, level in list_.levels.items()
            if other_depth < depth
        }
        self._counts[list_.counters] = skipped | {
            other_depth: count for other_depth, count in counts.items() if other_depth <= depth
        }
        return self._counts[list_.counters]


def _read_lists(root: Any) -> Iterator[tuple[str, _List]]:
    """The lists with their ids; a list that refers to a list style has the levels of that style."""
    definitions = {
        get_attribute(element, "abstractNumId"): element for element in root.iter("{*}abstractNum")
    }
    definition_by_style = {
        get_attribute(element.find("{*}styleLink")): definition_id
        for definition_id, element in definitions.items()
        if element.find("{*}styleLink") is not None
    }
    for element in root.iter("{*}num"):
        definition_id = get_attribute(element.find("{*}abstractNumId"))
        if definition_id in definitions:
            definition_id = definition_by_style.get(
                get_attribute(definitions[definition_id].find("{*}numStyleLink")), definition_id
            )
            yield (
                get_attribute(element, "numId"),
                _read_list(element, definition_id, definitions[definition_id]),
            )


def _read_list(element: Any, counters: str, definition: Any) -> _List:
    """A list: the levels of its definition with its own overrides."""
    levels = dict(map(_read_level, definition.iter("{*}lvl")))
    starts = {}
    for override in element.iter("{*}lvlOverride"):
        levels |= dict(map(_read_level, override.iter("{*}lvl")))
        start = override.find("{*}startOverride")
        if start is not None:
            starts[_to_integer(get_attribute(override, "ilvl"))] = _to_integer(get_attribute(start))
    return _List(counters, levels, starts)


def _read_level(element: Any) -> tuple[int, _Level]:
    """A level and its depth."""
    form = get_attribute(element.find("{*}numFmt")) or "decimal"
    pattern = get_attribute(element.find("{*}lvlText"))
    return _to_integer(get_attribute(element, "ilvl")), _Level(
        start=_to_integer(get_attribute(element.find("{*}start"))),
        form=form,
        pattern=pattern,
        style=get_attribute(element.find("{*}pStyle")),
        has_no_separator=get_attribute(element.find("{*}suff")) == "nothing",
        is_decimal=is_switched_on(element.find("{*}isLgl")),
    )


def _to_integer(value: str) -> int:
    """A number from the file; 0 if it is invalid or absurdly large."""
    return int(value) if value.isdecimal() and len(value) < 10 else 0
