"""What the styles of a Word file say: headings, numbering, code; each inherited by `basedOn`."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from documents.parsers.docx.package import attribute

_HEADING_NAME = re.compile(r"(?:heading|제목|개요)\s*([1-9])", re.IGNORECASE)
_CODE_NAME = re.compile(
    r"(?:source )?code(?: block)?|html preformatted|preformatted text|(?:소스 ?)?코드",
    re.IGNORECASE,
)
_LONGEST_CHAIN = 10
BODY_LEVEL = 0


@dataclass(frozen=True, slots=True)
class _Style:
    """One style by itself; None where it leaves a matter to its base."""

    parent: str
    level: int | None
    number: str | None
    depth: str
    is_code: bool


class Styles:
    """The paragraph styles, by their ids."""

    def __init__(self, styles: Sequence[Any] = ()) -> None:
        self._styles = {style.style_id or "": _read(style) for style in styles}

    def level(self, style_id: str) -> int:
        """1..9 for headings, 0 for text."""
        levels = (style.level for _, style in self._chain(style_id))
        return next((level for level in levels if level is not None), BODY_LEVEL)

    def numbering(self, style_id: str) -> tuple[str, str, str] | None:
        """Number id, its level ("" unless said) and the style that says so; None without."""
        for name, style in self._chain(style_id):
            if style.number is not None:
                return style.number, style.depth, name
        return None

    def is_code(self, style_id: str) -> bool:
        """Whether the style is named as one for code."""
        return any(style.is_code for _, style in self._chain(style_id))

    def _chain(self, style_id: str) -> Iterator[tuple[str, _Style]]:
        """The style and what it is based on, from near to far."""
        for _ in range(_LONGEST_CHAIN):
            if (style := self._styles.get(style_id)) is None:
                return
            yield style_id, style
            style_id = style.parent


def _read(style: Any) -> _Style:
    """A style of python-docx."""
    element, name = style.element, (style.name or "").strip()
    number = element.find("{*}pPr/{*}numPr/{*}numId")
    return _Style(
        parent=attribute(element.find("{*}basedOn")),
        level=_level(attribute(element.find("{*}pPr/{*}outlineLvl")), name),
        number=None if number is None else attribute(number),
        depth=attribute(element.find("{*}pPr/{*}numPr/{*}ilvl")),
        is_code=_CODE_NAME.fullmatch(name) is not None,
    )


def _level(outline: str, name: str) -> int | None:
    """The level that a style gives by itself."""
    if outline:
        return outline_level(outline)
    if name.lower() == "title":
        return 1
    match = _HEADING_NAME.fullmatch(name)
    return int(match[1]) if match else None


def outline_level(value: str) -> int:
    """Word counts outline levels from 0; 9 is text."""
    return int(value) + 1 if value.isdecimal() and int(value) < 9 else BODY_LEVEL
