"""What pictures say goes into their page, and all offsets stay true."""

import pytest

from documents.gallery import DescribedPicture, insert_pictures
from rag.types import Box, Heading, Kind, Line, Page, Region

TEXT = "제목\n\n첫 문단\n\n| 표 |\n\n끝 문단"
TABLE = Region(TEXT.index("|"), TEXT.index("|") + len("| 표 |"), Kind.TABLE, TEXT.index("|") + 2)
PAGE = Page(
    1,
    TEXT,
    (Heading(0, 1, "제목"), Heading(TEXT.index("끝"), 1, "끝")),
    (Line(TEXT.index("끝"), TEXT.index("끝") + 1, 0.1, 0.2, (0.1, 0.2)),),
    (TABLE,),
)


def read(page):
    """The text at everything that has an offset."""
    return (
        [page.text[one.start : one.start + len(one.title)] for one in page.headings],
        [page.text[one.start : one.end] for one in page.lines],
        [page.text[one.start : one.end] for one in page.regions],
    )


def test_without_a_place_it_stands_behind_the_text():
    box = Box(1, 0.1, 0.2, 0.3, 0.4)
    page, _ = insert_pictures(PAGE, [DescribedPicture("하나", box), DescribedPicture("둘")])
    assert page.text == TEXT + "\n\n하나\n\n둘"
    assert read(page) == (["제목", "끝"], ["끝"], ["| 표 |", "하나", "둘"])
    assert [region.box for region in page.regions] == [None, box, None]


def test_on_a_blank_page_it_is_the_text():
    page, _ = insert_pictures(Page(3, ""), [DescribedPicture("하나", offset=0)])
    assert (page.text, page.regions) == ("하나", (Region(0, 2, Kind.PICTURE),))


def test_several_at_one_place_keep_their_order():
    at = TEXT.index("첫")
    page, _ = insert_pictures(
        PAGE, [DescribedPicture("하나", offset=at), DescribedPicture("둘", offset=at)]
    )
    assert page.text.startswith("제목\n\n하나\n\n둘\n\n첫 문단")
    assert read(page) == (["제목", "끝"], ["끝"], ["하나", "둘", "| 표 |"])


@pytest.mark.parametrize("at", [TABLE.start + 1, TABLE.end - 1])
def test_no_table_is_torn_apart(at):
    page, _ = insert_pictures(PAGE, [DescribedPicture("하나", offset=at)])
    assert page.text.endswith("| 표 |\n\n하나\n\n끝 문단")


def test_header_rows_move_with_their_table():
    page, _ = insert_pictures(PAGE, [DescribedPicture("하나", offset=0)])
    table = page.regions[1]
    assert page.text[table.start : table.header_end] == "| "


def test_a_place_beyond_the_text_is_its_end():
    page, _ = insert_pictures(PAGE, [DescribedPicture("하나", offset=10_000)])
    assert page.text == TEXT + "\n\n하나"


def test_it_is_told_where_each_stands_with_or_without_a_description():
    first, last = TEXT.index("첫"), TEXT.index("끝")
    pictures = [
        DescribedPicture("", offset=last),
        DescribedPicture("하나", offset=first),
        DescribedPicture("", offset=first),
        DescribedPicture("둘"),
        DescribedPicture(""),
        DescribedPicture("", offset=10_000),
    ]
    page, starts = insert_pictures(PAGE, pictures)
    told = [page.text[one:].split("\n")[0] if one is not None else None for one in starts]
    assert told == ["끝 문단", "하나", "첫 문단", "둘", None, ""]
