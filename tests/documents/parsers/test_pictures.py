"""Which pictures of a file are kept, and what is said of the others."""

import io
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from documents.parsers import formats
from documents.parsers.base import Limits, NoText, Picture, PictureRules
from documents.parsers.sandbox import client
from tests.documents.parsers.pictured import (
    PicturedPdf,
    chart,
    docx_with,
    gradient,
    jpeg,
    noise,
    png,
)
from tests.documents.parsers.reading import shared
from tests.documents.parsers.samples import paragraph

TEXT = (60, 750, "보고서")
LONG = tuple((30, 700 - 40 * line, f"글자가 많은 쪽의 {line}번째 줄") for line in range(10))
WHOLE = "600 0 0 800 0 0 cm"


def find_pictures(path: Path, content_type: str = formats.PDF, **rules: float) -> list[Picture]:
    """All pictures of a file."""
    pictures: list[Picture] = []
    limits = Limits(seconds=60)
    with client.read_document(
        path, content_type, path.name, limits, pictures=PictureRules(**rules)
    ) as it:
        for _ in it:
            pictures += it.pictures
    return pictures


def find_pictures_in_docx(tmp_path: Path, *images: bytes, **rules: float) -> list[Picture]:
    """What becomes of these pictures of a Word file."""
    names = [f"p{number}" for number in range(len(images))]
    body = paragraph("보고서") + "".join(f"{{{name}}}" for name in names)
    path = docx_with(tmp_path / "a.docx", body, **dict(zip(names, images, strict=True)))
    return find_pictures(path, formats.DOCX, **rules)


def count_reasons(pictures: list[Picture]) -> dict[str, int]:
    return dict(Counter(picture.rejected for picture in pictures))


def opened(picture: Picture) -> Image.Image:
    return Image.open(io.BytesIO(picture.data))


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (chart(), ""),
        (noise((90, 90)), "too_small"),
        (noise((2000, 60)), "thin"),
        (Image.new("RGB", (400, 300), "navy"), "flat"),
        (gradient(), "smooth"),
    ],
)
def test_a_picture_is_kept_or_has_its_reason(tmp_path, image, reason):
    (picture,) = find_pictures_in_docx(tmp_path, png(image))
    assert picture.rejected == reason
    assert (picture.width, picture.height) == image.size
    assert bool(picture.data) == (not reason)


def test_a_speck_on_white_paper_is_blank(tmp_path):
    image = Image.new("RGB", (1000, 1000), "white")
    image.paste("black", (500, 500, 560, 560))
    (picture,) = find_pictures_in_docx(tmp_path, png(image))
    assert picture.rejected == "blank"


@pytest.mark.parametrize(
    ("rule", "image", "reason"),
    [
        ({"min_pixels": 1_000_000}, chart(), "too_small"),
        ({"max_ratio": 1.1}, chart(), "thin"),
        ({"min_variance": 60_000}, chart(), "flat"),
        ({"min_nonwhite": 0.9}, chart(), "blank"),
        ({"min_edges": 200}, chart(), "smooth"),
        ({"min_edges": 0}, gradient(), ""),
    ],
)
def test_each_rule_can_be_set(tmp_path, rule, image, reason):
    (picture,) = find_pictures_in_docx(tmp_path, png(image), **rule)
    assert picture.rejected == reason


def test_of_copies_one_is_kept_however_they_are_stored(tmp_path):
    again = png(chart(), compress_level=1)
    photograph = jpeg(chart(), quality=90)
    pictures = find_pictures_in_docx(tmp_path, png(chart()), again, photograph, png(chart(10, 20)))
    assert [picture.rejected for picture in pictures] == ["", "duplicate", "duplicate", ""]
    assert len({picture.digest for picture in pictures[:3]}) == 1


def test_charts_that_differ_in_one_figure_are_not_copies(tmp_path):
    pictures = find_pictures_in_docx(tmp_path, png(chart(40, 120)), png(chart(41, 120)))
    assert count_reasons(pictures) == {"": 2}


def test_no_more_are_kept_than_may_be(tmp_path):
    images = [png(noise((120, 120), seed)) for seed in range(5)]
    assert count_reasons(find_pictures_in_docx(tmp_path, *images, max_pictures=2)) == {
        "": 2,
        "too_many": 3,
    }


def test_none_are_looked_at_when_none_may_be_kept(tmp_path):
    assert find_pictures_in_docx(tmp_path, png(chart()), max_pictures=0) == []


def test_a_large_picture_is_made_smaller(tmp_path):
    (picture,) = find_pictures_in_docx(tmp_path, png(chart().resize((4000, 1000))))
    assert opened(picture).size == (1600, 400)
    assert (picture.width, picture.height) == (4000, 1000)


def test_a_turned_photograph_comes_upright_and_without_its_exif(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # Orientation: a quarter turn
    exif[0x010E] = "<script>"  # ImageDescription
    (picture,) = find_pictures_in_docx(tmp_path, jpeg(chart(), exif=exif))
    image = opened(picture)
    assert image.size == (300, 400)
    assert not image.getexif()
    assert b"script" not in picture.data
    assert image.convert("RGB").getpixel((290, 10))[0] > 200  # red, once in the left corner


def test_what_is_transparent_stands_on_white(tmp_path):
    image = chart().convert("RGBA")
    image.putalpha(Image.new("L", image.size, 0))
    image.paste(chart().crop((60, 60, 400, 300)), (60, 60))
    (picture,) = find_pictures_in_docx(tmp_path, png(image))
    assert opened(picture).convert("RGB").getpixel((10, 10)) == (255, 255, 255)


def test_a_drawing_stays_sharp_and_a_photograph_small(tmp_path):
    drawing, photograph = find_pictures_in_docx(
        tmp_path, png(chart()), png(noise((400, 400)).convert("RGB"))
    )
    assert (drawing.content_type, photograph.content_type) == ("image/png", "image/png")
    colours = Image.merge("RGB", [noise((400, 400), n).convert("L") for n in range(3)])
    (picture,) = find_pictures_in_docx(tmp_path, png(colours))
    assert (picture.content_type, opened(picture).format) == ("image/jpeg", "JPEG")


BAD = {
    "chart-control.png": "",
    "cmyk.jpg": "",
    "flat-white-1200x800.png": "flat",
    "jpeg-declares-65500.jpg": "too_large",
    "jpeg-exif-rotated-html.jpg": "",
    "jpeg-truncated.jpg": "broken",
    "png-30000x30000-1bit.png": "too_large",
    "png-plus-html-polyglot.png": "",
    "png-ztxt-bomb.png": "broken",
    "real-pillow-broken_data_stream.png": "broken",
    "real-pillow-crash-4fb027452e6988530aa5dabee76eecacb3b79f8a.j2k": "broken",
    "real-pillow-decompression_bomb.gif": "too_large",
    "real-pillow-png_decompression_dos.png": "broken",
    "real-pillow-truncated_jpeg.jpg": "broken",
    "svg-onload.svg": "broken",
    "thin-strip-1x40000.png": "thin",
}


@pytest.mark.parametrize(("name", "reason"), BAD.items())
def test_a_hostile_picture_is_lost_alone(tmp_path, name, reason):
    data = shared(f"bad-inputs/image/{name}").read_bytes()
    (picture,) = find_pictures_in_docx(tmp_path, data)
    assert picture.rejected == reason


@pytest.mark.parametrize(
    "name", ["jpeg-truncated.jpg", "jpeg-declares-65500.jpg", "cmyk.jpg", "chart-control.png"]
)
@pytest.mark.parametrize("packed", ["DCTDecode", "JPXDecode", "FlateDecode", "JBIG2Decode"])
def test_a_hostile_picture_of_a_page_leaves_its_text(tmp_path, name, packed):
    data = shared(f"bad-inputs/image/{name}").read_bytes()
    pdf = PicturedPdf()
    pdf.drawn("300 0 0 200 50 50 cm /A Do", TEXT, A=pdf.encoded(data, 640, 400, packed))
    with client.read_document(pdf.write(tmp_path / "a.pdf"), formats.PDF) as reading:
        (page,) = reading
    assert "보고서" in page.text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("image-1bit-60000x60000.pdf", {"too_large": 1}),
        ("image-declared-size-lies.pdf", {"too_large": 1}),
        ("images-1500-identical-icons.pdf", {"too_small": 1500}),
    ],
)
def test_floods_and_giants_are_counted_and_cost_nothing(name, expected):
    assert count_reasons(find_pictures(shared(f"bad-inputs/pdf/{name}"))) == expected


def test_many_icons_that_are_large_enough_are_decoded_once(tmp_path):
    pdf = PicturedPdf()
    icon = chart()
    objects = {f"I{number}": pdf.picture(icon) for number in range(300)}
    pdf.drawn(" ".join(f"q 30 0 0 20 50 50 cm /{name} Do Q" for name in objects), TEXT, **objects)
    assert count_reasons(find_pictures(pdf.write(tmp_path / "a.pdf"))) == {"": 1, "duplicate": 299}


def test_the_same_pixels_behind_another_mask_are_another_picture(tmp_path):
    pdf, black = PicturedPdf(), Image.new("RGB", (400, 300))
    one, two = (pdf.picture(black, noise((400, 300), seed)) for seed in (1, 2))
    pdf.drawn("q 200 0 0 150 9 9 cm /A Do Q q 200 0 0 150 9 300 cm /B Do Q", TEXT, A=one, B=two)
    assert count_reasons(find_pictures(pdf.write(tmp_path / "a.pdf"))) == {"": 2}


@pytest.mark.parametrize(
    ("rotate", "box"),
    [
        (0, (0.1, 0.625, 0.6, 0.875)),
        (90, (0.125, 0.1, 0.375, 0.6)),
        (180, (0.4, 0.125, 0.9, 0.375)),
        (270, (0.625, 0.4, 0.875, 0.9)),
    ],
)
def test_a_picture_of_a_turned_page_is_told_as_it_is_shown(tmp_path, rotate, box):
    pdf = PicturedPdf()
    chart_id = pdf.picture(chart(size=(600, 400)))
    pdf.drawn("300 0 0 200 60 100 cm /A Do", TEXT, rotate=rotate, A=chart_id)
    (picture,) = find_pictures(pdf.write(tmp_path / "a.pdf"))
    assert picture.page == 1
    assert picture.box == pytest.approx(box)
    image = opened(picture)
    assert image.size == ((600, 400) if rotate % 180 == 0 else (400, 600))
    corners = {0: (10, 10), 90: (-10, 10), 180: (-10, -10), 270: (10, -10)}
    x, y = corners[rotate]
    assert image.convert("RGB").getpixel((x % image.width, y % image.height))[1] < 50  # red


def test_a_picture_within_forms_stands_where_they_put_it(tmp_path):
    pdf = PicturedPdf()
    inner = pdf.form("100 0 0 100 0 0 cm /A Do", "2 0 0 2 0 0", A=pdf.picture(chart()))
    outer = pdf.form("/Inner Do", "1 0 0 -1 60 800", Inner=inner)
    pdf.drawn("/Outer Do", TEXT, Outer=outer)
    (picture,) = find_pictures(pdf.write(tmp_path / "a.pdf"))
    assert picture.box == pytest.approx((0.1, 0.0, 0.1 + 200 / 600, 0.25), abs=1e-5)
    assert opened(picture).convert("RGB").getpixel((10, -10 % opened(picture).height))[1] < 50


def test_a_picture_beside_the_page_is_not_shown(tmp_path):
    pdf = PicturedPdf()
    pdf.drawn("300 0 0 200 900 100 cm /A Do", TEXT, A=pdf.picture(chart()))
    assert count_reasons(find_pictures(pdf.write(tmp_path / "a.pdf"))) == {"hidden": 1}


def test_a_scan_behind_its_text_is_not_read_again(tmp_path):
    pdf = PicturedPdf()
    pdf.drawn(f"q {WHOLE} /A Do Q", *LONG, A=pdf.picture(chart()))
    assert count_reasons(find_pictures(pdf.write(tmp_path / "a.pdf"))) == {"background": 1}


def test_a_chart_that_fills_its_page_below_a_title_is_kept(tmp_path):
    pdf = PicturedPdf()
    pdf.drawn(f"q {WHOLE} /A Do Q", TEXT, A=pdf.picture(chart()))
    assert count_reasons(find_pictures(pdf.write(tmp_path / "a.pdf"))) == {"": 1}


def test_a_page_of_strips_is_one_picture(tmp_path):
    pdf, page = PicturedPdf(), chart().resize((600, 800))
    strips = {f"S{n}": pdf.picture(page.crop((0, 40 * n, 600, 40 * n + 40))) for n in range(20)}
    pdf.drawn(" ".join(f"q 600 0 0 40 0 {760 - 40 * n} cm /S{n} Do Q" for n in range(20)), **strips)
    (picture,) = find_pictures(pdf.write(tmp_path / "a.pdf"))
    assert (picture.rejected, picture.box) == ("", (0.0, 0.0, 1.0, 1.0))
    assert opened(picture).height in {800, 801}  # as fine as its strips


def test_strips_behind_their_text_are_not_read_again(tmp_path):
    pdf, page = PicturedPdf(), chart().resize((600, 800))
    strips = {f"S{n}": pdf.picture(page.crop((0, 200 * n, 600, 200 * n + 200))) for n in range(4)}
    drawing = " ".join(f"q 600 0 0 200 0 {600 - 200 * n} cm /S{n} Do Q" for n in range(4))
    pdf.drawn(drawing, *LONG, **strips)
    assert count_reasons(find_pictures(pdf.write(tmp_path / "a.pdf"))) == {"background": 4}


def test_a_blank_scan_is_no_picture_to_keep(tmp_path):
    pdf = PicturedPdf()
    pdf.drawn(f"q {WHOLE} /A Do Q", A=pdf.picture(Image.new("RGB", (600, 800), "white")))
    with pytest.raises(NoText) as caught:
        find_pictures(pdf.write(tmp_path / "a.pdf"))
    assert caught.value.params == {"kind": "scan"}


def test_a_scan_says_that_its_text_may_stand_in_its_pictures(tmp_path):
    pdf = PicturedPdf()
    pdf.drawn(f"q {WHOLE} /A Do Q", A=pdf.picture(chart()))
    with client.read_document(pdf.write(tmp_path / "a.pdf"), formats.PDF) as reading:
        (page,) = reading
    assert (page.text, reading.no_text, len(reading.pictures)) == ("", "scan", 1)


def test_a_picture_of_a_word_file_tells_its_place_in_the_text(tmp_path):
    body = paragraph("앞 문단") + "{p0}" + paragraph("뒤 문단")
    path = docx_with(tmp_path / "a.docx", body, p0=png(chart()))
    (picture,) = find_pictures(path, formats.DOCX)
    assert (picture.page, picture.box, picture.offset) == (None, None, len("앞 문단\n\n"))


def test_a_linked_picture_is_not_fetched():
    assert find_pictures(shared("bad-inputs/docx/external-image-link.docx"), formats.DOCX) == []
