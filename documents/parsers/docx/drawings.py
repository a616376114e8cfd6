"""Text that Word keeps in parts of their own: the figures behind charts, the words of diagrams."""

from collections.abc import Iterator
from typing import Any

from documents.parsers.builder import PageBuilder
from documents.parsers.docx.package import local

REFERENCES = {"chart": "id", "relIds": "dm"}
"""Elements of a paragraph that name such a part, and in which attribute."""
PICTURES = {"blip": "embed", "imagedata": "id"}
"""The same for pictures; only those within the file have these attributes, or a part."""


def add(builder: PageBuilder, root: Any) -> None:
    """Add a chart as a table of its figures, a diagram as its words."""
    if local(root) == "chartSpace":
        builder.add_paragraph(_words(root.find("{*}chart/{*}title")))
        rows = list(_figures(root))
        if rows:
            builder.add_table(rows)
    else:
        for point in root.iter("{*}pt"):
            builder.add_paragraph(_words(point.find("{*}t")))


def _figures(chart: Any) -> Iterator[list[str]]:
    """A row for the names of the series, then one for each category; as last saved."""
    series = list(chart.iter("{*}ser"))
    categories = _points(series[0], "cat", "xVal") if series else {}
    columns = [_points(one, "val", "yVal") for one in series]
    if not any(columns):
        return
    yield ["", *(" ".join(_points(one, "tx").values()) for one in series)]
    for at in sorted({at for column in columns for at in column} | set(categories)):
        yield [categories.get(at, ""), *(column.get(at, "") for column in columns)]


def _points(series: Any, *names: str) -> dict[int, str]:
    """Position -> value of the first of these parts of a series that is there."""
    found = next((part for name in names for part in series.findall(f"{{*}}{name}")), None)
    points = found.iter("{*}pt") if found is not None else ()
    values = {point.get("idx", "0"): point.findtext("{*}v") or "" for point in points}
    return {int(at): _value(text) for at, text in values.items() if at.isdecimal() and len(at) < 10}


def _value(text: str) -> str:
    """A number as Excel shows it: it stores 4.4 as 4.4000000000000004."""
    try:
        return f"{float(text):.15g}"
    except ValueError:
        return text


def _words(element: Any | None) -> str:
    """The paragraphs of DrawingML below an element."""
    paragraphs = element.iter("{*}p") if element is not None else ()
    return "\n".join("".join(text.text or "" for text in one.iter("{*}t")) for one in paragraphs)
