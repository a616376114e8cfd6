"""Pages between child and parent: whole as they were, refused where they cannot be."""

import json
import math
from array import array
from base64 import b64encode
from typing import Any

import pytest

from documents.parsers.sandbox import client, server
from rag.types import Kind, Line, Page, Region

PAGE = Page(
    7,
    "가나다\n라",
    lines=(Line(0, 3, 0.1, 0.2, (0.1, 0.12345, 0.3, 0.4)), Line(4, 5, 0.3, 0.4, (0.1, 0.2))),
    regions=(Region(0, 3, Kind.TABLE, 2),),
    margins=("- 7 -",),
)
LINES, EDGES = 3, 4
"""Where they stand among the values of a page."""


def send_page(page: Page = PAGE) -> list[Any]:
    """A page as it comes out of the pipe."""
    ((kind, value),) = client.take_frames(
        bytearray(server.encode_frame("page", server.to_page_value(page))), 1 << 20
    )
    assert kind == "page"
    return list(value)


def encode_edges(*values: float) -> str:
    return b64encode(array("d", values).tobytes()).decode()


def test_a_page_comes_out_as_it_went_in() -> None:
    assert client.from_page_value(send_page()) == PAGE


def test_a_page_without_places_comes_out_as_it_went_in() -> None:
    page = Page(None, "가")
    assert client.from_page_value(send_page(page)) == page


@pytest.mark.parametrize(
    "wrong",
    [
        encode_edges(),
        encode_edges(0.1, 0.2, 0.3, 0.4, 0.1),
        encode_edges(0.1, 0.2, 0.3, 0.4, 0.1, 0.2, 0.3),
        encode_edges(0.1, 0.2, math.nan, 0.4, 0.1, 0.2),
        encode_edges(0.1, 0.2, math.inf, -math.inf, 0.1, 0.2),
        encode_edges(*PAGE.lines[0].edges, *PAGE.lines[1].edges)[:-4],
        "!" * 64,
        "가",
        None,
        [0.1, 0.2, 0.3, 0.4, 0.1, 0.2],
    ],
)
def test_edges_that_do_not_fit_the_characters_are_refused(wrong: object) -> None:
    value = send_page()
    value[EDGES] = wrong
    with pytest.raises(client.BrokenFrame):
        client.from_page_value(value)


@pytest.mark.parametrize(
    "line",
    [
        [2, 1, 0.1, 0.2],
        [-1, 2, 0.1, 0.2],
        [3, 6, 0.1, 0.2],
        [0, 3, "x", 0.2],
        [0, 3, 0.1, math.nan],
        [0, 3, 0.1],
        ["x", 3, 0.1, 0.2],
    ],
)
def test_a_line_outside_of_the_text_is_refused(line: list[object]) -> None:
    value = send_page()
    value[LINES][0] = line
    with pytest.raises(client.BrokenFrame):
        client.from_page_value(value)


@pytest.mark.parametrize("number", ["1e999", "NaN", "[1]", "{}", '"x"'])
@pytest.mark.parametrize("field", [0, 2, 3, 5])
def test_a_number_that_is_none_is_refused_wherever_it_stands(field: int, number: str) -> None:
    value = send_page()
    value[2] = [[0, 1, "가"]]
    holder = value if field == 0 else value[field][0]
    holder[0] = json.loads(number)
    with pytest.raises(client.BrokenFrame):
        client.from_page_value(value)
