"""The parts of a Word file: python-docx's model of them, behind our caps and checks.

python-docx opens packages itself, but believes their sizes and gives up on the first part that is
missing; so the archive is ours, and each part is handed to its parser once it is known to be safe.
Beside the parts stands what they say of paragraphs: styles (headings, numbering, code, each
inherited by `basedOn`), and the numbers that Word puts before paragraphs and into no text.
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
_MAX_CHAIN = 10
TEXT_LEVEL = 0

BULLET = "-"
_PLACE = re.compile(r"%([1-9])")


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
        """A part beside the main one, as `styles.xml`, without which the text can be read.

        None where it is missing; unsafe or broken, only it is lost, with a warning.
        """
        return self._read_optional(f"{self._folder}/{name}")

    def iterate_parts(self, kind: str) -> Iterator[Any]:
        """All parts of a kind that may come more than once: `header` or `footer`."""
        for name in self._archive.names:
            if name.startswith(f"{self._folder}/{kind}") and name.endswith(".xml"):
                root = self._read_optional(name)
                if root is not None:
                    yield root

    def read_related_part(self, relationship: str) -> Any | None:
        """The part that the main part refers to by this id (a chart), or None."""
        return self._read_optional(self._targets.get(relationship, ""))

    def find_picture(self, relationship: str) -> tuple[str, Callable[[], bytes]] | None:
        """Name and bytes of the picture with this id; None for one outside of the file."""
        name = self._targets.get(relationship, "")
        return (name, partial(self._archive.read_part, name)) if name in self._archive else None

    def list_styles(self) -> list[Any]:
        """python-docx's styles, in order."""
        from docx.styles.styles import Styles

        root = self.read_part("styles.xml")
        return [] if root is None else list(Styles(root))

    def read_properties(self) -> dict[str, str]:
        """Title, author and date (ISO) as the file carries them."""
        from docx.opc.coreprops import CoreProperties

        root = self._read_optional("docProps/core.xml")
        if root is None:
            return {}
        core = CoreProperties(root)
        date = core.created.date().isoformat() if core.created else ""
        return {"title": core.title, "author": core.author, "date": date}

    def _read_relationships(self) -> dict[str, str]:
        """Relationship id -> name of the part, of the main part."""
        folder, name = posixpath.split(self._main)
        root = self._read_optional(f"{folder}/_rels/{name}.rels".lstrip("/"))
        return {
            one.get("Id", ""): posixpath.normpath(
                posixpath.join("/", folder, one.get("Target", ""))
            )[1:]
            for one in (root if root is not None else ())
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


def _find_main_part(archive: Archive) -> str:
    """Name of the part with the text; nearly always word/document.xml, but the package decides."""
    if "[Content_Types].xml" in archive:
        match = _MAIN_TYPE.search(archive.read_part("[Content_Types].xml"))
        if match and match[1].decode("utf-8", "replace") in archive:
            return match[1].decode("utf-8", "replace")
    if "word/document.xml" not in archive:
        raise Corrupt(detail="word/document.xml is missing")
    return "word/document.xml"


def get_attribute(element: Any | None, name: str = "val") -> str:
    """An attribute of an element, which may be missing, in whatever namespace; else ""."""
    for key, value in element.attrib.items() if element is not None else ():
        if key.rpartition("}")[2] == name:
            return str(value)
    return ""


def get_local_name(element: Any) -> str:
    """The element's name without its namespace; "" for comments and instructions."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def is_switched_on(element: Any | None) -> bool:
    """Whether an on/off element (`w:tblHeader`) is present and not turned off."""
    return element is not None and get_attribute(element) not in {"0", "false", "off", "none"}


@dataclass(frozen=True, slots=True)
class _Style:
    """One style by itself; None where it leaves a matter to its base."""

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
        levels = (style.level for _, style in self._iterate_bases(style_id))
        return next((level for level in levels if level is not None), TEXT_LEVEL)

    def get_numbering(self, style_id: str) -> tuple[str, str, str] | None:
        """Number id, its level ("" unless said) and the style that says so; None without."""
        for name, style in self._iterate_bases(style_id):
            if style.number is not None:
                return style.number, style.depth, name
        return None

    def is_code(self, style_id: str) -> bool:
        """Whether the style is named as one for code."""
        return any(style.is_code for _, style in self._iterate_bases(style_id))

    def _iterate_bases(self, style_id: str) -> Iterator[tuple[str, _Style]]:
        """The style and what it is based on, from near to far."""
        for _ in range(_MAX_CHAIN):
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
    """The level that a style gives by itself."""
    if outline:
        return to_heading_level(outline)
    if name.lower() == "title":
        return 1
    match = _HEADING_NAME.fullmatch(name)
    return int(match[1]) if match else None


def to_heading_level(value: str) -> int:
    """Word counts outline levels from 0; 9 is text."""
    return int(value) + 1 if value.isdecimal() and int(value) < 9 else TEXT_LEVEL


@dataclass(frozen=True, slots=True)
class _Level:
    """How one level of a list counts."""

    start: int
    form: str
    pattern: str
    style: str
    joined: bool
    arabic: bool

    def format_label(self, text: str) -> str:
        """The label with what parts it from the paragraph."""
        return text if self.joined or not text else f"{text} "


@dataclass(frozen=True, slots=True)
class _List:
    """One list (`w:num`): whose counters it shares, its levels, and where it restarts."""

    counters: str
    levels: dict[int, _Level]
    starts: dict[int, int]


class WordNumbering:
    """Counts along the document; each numbered paragraph must be asked for once, in order."""

    def __init__(self, root: Any | None = None) -> None:
        self._lists = dict(_read_lists(root)) if root is not None else {}
        self._counts: dict[str, dict[int, int]] = {}
        self._begun: set[tuple[str, int]] = set()

    def get_depth(self, number: str, style_id: str) -> int:
        """The level that a list has for a style; 0 where it names none."""
        levels = self._lists[number].levels if number in self._lists else {}
        return next((at for at, level in levels.items() if level.style == style_id), 0)

    def next_label(self, number: str, depth: int) -> str | None:
        """What stands before the next paragraph of this list, up to its text; "" for nothing.

        None where there is no such list.
        """
        found = self._lists.get(number)
        if found is None or depth not in found.levels:
            return None
        counts = self._count_paragraph(number, found, depth)
        level = found.levels[depth]
        if level.form == "bullet":
            return level.format_label(BULLET)

        def format_place(match: re.Match[str]) -> str:
            at = int(match[1]) - 1
            if at not in found.levels:
                return ""
            form = "decimal" if level.arabic else found.levels[at].form
            return format_number(counts.get(at, 0), form)

        return level.format_label(_PLACE.sub(format_place, level.pattern).strip())

    def _count_paragraph(self, number: str, found: _List, depth: int) -> dict[int, int]:
        """The counters after one more paragraph at this depth; deeper ones begin again."""
        counts = self._counts.setdefault(found.counters, {})
        if depth in found.starts and (number, depth) not in self._begun:
            counts[depth] = found.starts[depth]
        elif depth in counts:
            counts[depth] += 1
        else:
            counts[depth] = found.levels[depth].start
        self._begun.add((number, depth))
        # A level that was skipped counts as begun: 2., 2.1.1., 2.2.
        skipped = {at: level.start for at, level in found.levels.items() if at < depth}
        self._counts[found.counters] = skipped | {at: n for at, n in counts.items() if at <= depth}
        return self._counts[found.counters]


def _read_lists(root: Any) -> Iterator[tuple[str, _List]]:
    """The lists by id; one that only names a list style takes the levels of that style."""
    kinds = {get_attribute(one, "abstractNumId"): one for one in root.iter("{*}abstractNum")}
    styled = {
        get_attribute(one.find("{*}styleLink")): key
        for key, one in kinds.items()
        if one.find("{*}styleLink") is not None
    }
    for one in root.iter("{*}num"):
        key = get_attribute(one.find("{*}abstractNumId"))
        if key in kinds:
            key = styled.get(get_attribute(kinds[key].find("{*}numStyleLink")), key)
            yield get_attribute(one, "numId"), _read_list(one, key, kinds[key])


def _read_list(number: Any, counters: str, kind: Any) -> _List:
    """A list with its own changes to the levels of its kind."""
    levels = dict(map(_read_level, kind.iter("{*}lvl")))
    starts = {}
    for change in number.iter("{*}lvlOverride"):
        levels |= dict(map(_read_level, change.iter("{*}lvl")))
        start = change.find("{*}startOverride")
        if start is not None:
            starts[_to_integer(get_attribute(change, "ilvl"))] = _to_integer(get_attribute(start))
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
        joined=get_attribute(element.find("{*}suff")) == "nothing",
        arabic=is_switched_on(element.find("{*}isLgl")),
    )


def _to_integer(value: str) -> int:
    """A number from the file; 0 if it is invalid or absurd."""
    return int(value) if value.isdecimal() and len(value) < 10 else 0
