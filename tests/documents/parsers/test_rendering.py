"""Drawn pages: the right one, at the right size, kept, and refused with a reason."""

import io
from pathlib import Path

import pytest
from PIL import Image

from documents.api.transfers import render_page_png
from documents.errors import NotRenderable, PageNotFound
from documents.parsers import formats
from documents.parsers.base import OutOfMemory
from tests.documents.parsers.reading import shared
from tests.documents.parsers.samples import Pdf


@pytest.fixture
def pdf(tmp_path: Path) -> Path:
    return (
        Pdf().page((50, 700, "첫째")).page((50, 700, "둘째"), rotate=90).write(tmp_path / "a.pdf")
    )


def test_a_page_is_drawn_as_shown(pdf: Path, tmp_path: Path) -> None:
    upright = Image.open(
        io.BytesIO(render_page_png(pdf, formats.PDF, 1, 600, cache_dir=tmp_path / "c"))
    )
    turned = Image.open(
        io.BytesIO(render_page_png(pdf, formats.PDF, 2, 600, cache_dir=tmp_path / "c"))
    )

    assert upright.size == (600, 800)
    assert turned.size == (600, 450)


def test_a_drawn_page_is_kept_whole(pdf: Path, tmp_path: Path) -> None:
    image = render_page_png(pdf, formats.PDF, 1, cache_dir=tmp_path / "c")
    pdf.unlink()

    assert render_page_png(pdf, formats.PDF, 1, cache_dir=tmp_path / "c") == image
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["1-1200.png"]


@pytest.mark.parametrize("number", [-1, 0, 3])
def test_a_page_that_is_not_there_is_not_found(pdf: Path, tmp_path: Path, number: int) -> None:
    with pytest.raises(PageNotFound) as caught:
        render_page_png(pdf, formats.PDF, number, cache_dir=tmp_path / "c")

    assert caught.value.code == "page_not_found"


def test_other_formats_have_no_pages_to_draw(tmp_path: Path) -> None:
    with pytest.raises(NotRenderable):
        render_page_png(tmp_path / "a.md", formats.MARKDOWN, 1, cache_dir=tmp_path / "c")


def test_a_huge_page_is_drawn_small(tmp_path: Path) -> None:
    path = shared("bad-inputs/pdf/mediabox-1e6.pdf")

    image = Image.open(io.BytesIO(render_page_png(path, formats.PDF, 1, cache_dir=tmp_path / "c")))

    assert max(image.size) <= 4000


def test_a_page_that_eats_memory_harms_nobody(tmp_path: Path) -> None:
    path = shared("bad-inputs/pdf/flate-bomb-1gb.pdf")

    with pytest.raises(OutOfMemory):
        render_page_png(path, formats.PDF, 1, cache_dir=tmp_path / "c")
