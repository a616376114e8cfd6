"""HWP 5 and HWPX: text, and the exact name of what locks a file."""

from pathlib import Path

import pytest

from documents.parsers import formats
from documents.parsers.base import (
    Corrupt,
    Encrypted,
    ParseFailed,
    UnsupportedVersion,
    XmlUnsafe,
)
from documents.parsers.builder import format_hangul_number
from documents.parsers.hwp import binary
from documents.parsers.hwp.binary import LOCKS, SIGNATURE, _read_flags
from documents.parsers.hwp.blocks import (
    HeadKind,
    NumberingLevel,
    ParagraphHead,
    ParagraphNumberer,
)
from documents.parsers.sandbox import client
from rag.types import Kind
from tests.documents.parsers.reading import read, shared
from tests.documents.parsers.samples import hwpx
from tests.quality.likeness import token_f1
from tests.support import DATA

NAMESPACES = (
    'xmlns:hp="http://www.hancom.co.kr/hwpml/2011/paragraph" '
    'xmlns:hh="http://www.hancom.co.kr/hwpml/2011/head"'
)


LIST = "<hp:subList><hp:p><hp:run><hp:t>{}</hp:t></hp:run></hp:p></hp:subList>"


def list_pairs() -> list[str]:
    folder = DATA / "hwp" / "hwpjs_pairs"
    stems = sorted(path.stem for path in folder.glob("*.hwpx"))
    return [stem for stem in stems if (folder / f"{stem}.hwp").exists()]


def read_to_end(path: Path) -> str:
    try:
        return read(path).text
    except ParseFailed as failure:
        return failure.code


def cell(row: int, column: int, text: str, *, rows: int = 1, columns: int = 1) -> str:
    return (
        f"<hp:tc>{LIST.format(text)}"
        f'<hp:cellAddr colAddr="{column}" rowAddr="{row}"/>'
        f'<hp:cellSpan colSpan="{columns}" rowSpan="{rows}"/></hp:tc>'
    )


def section(runs: str) -> str:
    return f"<hs:sec {NAMESPACES} xmlns:hs='s'><hp:p>{runs}</hp:p></hs:sec>"


def write_section(path: Path, runs: str) -> Path:
    return hwpx(path, **{"Contents__section0.xml": section(runs)})


def test_paragraphs_of_a_hwpx_are_read(tmp_path: Path) -> None:
    result = read(hwpx(tmp_path / "a.hwpx", "민원은 14일 이내에 처리한다.", "끝."))

    assert [page.number for page in result.pages] == [None]
    assert result.text == "민원은 14일 이내에 처리한다.\n\n끝."


@pytest.mark.parametrize("name", list_pairs())
def test_both_formats_of_a_document_give_the_same_words(name: str) -> None:
    folder = shared("hwp/hwpjs_pairs")
    binary_text, xml_text = (read_to_end(folder / f"{name}.{end}") for end in ("hwp", "hwpx"))

    assert token_f1(binary_text, xml_text) >= 0.99


def test_an_outline_gives_headings_at_their_places() -> None:
    (page,) = read(shared("hwp/hwpjs_pairs/outline.hwp")).pages

    assert ("가. 개요2", 2) in [(heading.title, heading.level) for heading in page.headings]
    assert all(page.text[h.start :].startswith(h.title) for h in page.headings)


def test_tables_of_a_press_release_are_markdown() -> None:
    text = read(shared("hwp/gov_docs/2024년 1분기 해외직접투자 보도자료 ff.hwpx")).text

    assert "| 총투자 | 282.3 | 198.5 |" in text


def test_a_distribution_document_is_locked_not_a_notice() -> None:
    with pytest.raises(Encrypted) as caught:
        read(shared("hwp/hwplib/distribution.hwp"))

    assert caught.value.params == {"lock": "distribution"}


@pytest.mark.parametrize("name", ["password-12345.hwp", "password-12345.hwpx"])
def test_a_password_is_named(name: str) -> None:
    with pytest.raises(Encrypted) as caught:
        read(shared(f"hwp/hwpjs_pairs/{name}"))

    assert caught.value.params == {"lock": "password"}


@pytest.mark.parametrize(("bit", "lock"), LOCKS)
def test_every_lock_of_a_file_header_has_its_name(bit: int, lock: str) -> None:
    header = SIGNATURE.ljust(32, b"\0") + bytes((0, 0, 1, 5)) + (1 << bit).to_bytes(4, "little")

    with pytest.raises(Encrypted) as caught:
        _read_flags(header)

    assert caught.value.params == {"lock": lock}


def test_another_version_is_named() -> None:
    with pytest.raises(UnsupportedVersion):
        _read_flags(SIGNATURE.ljust(32, b"\0") + bytes((0, 0, 0, 9)) + bytes(4))


def test_encryption_in_the_manifest_is_seen_before_reading(tmp_path: Path) -> None:
    manifest = "<manifest><file-entry><encryption-data/></file-entry></manifest>"
    path = hwpx(tmp_path / "a.hwpx", "noise", **{"META-INF__manifest.xml": manifest})

    with pytest.raises(Encrypted):
        read(path)


def test_an_entity_is_refused(tmp_path: Path) -> None:
    evil = '<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><a>&x;</a>'

    with pytest.raises(XmlUnsafe):
        read(hwpx(tmp_path / "a.hwpx", "본문", Contents__header2__xml=evil, **{"x.xml": evil}))


def test_broken_xml_is_corrupt(tmp_path: Path) -> None:
    with pytest.raises(Corrupt):
        read(hwpx(tmp_path / "a.hwpx", "열린 <b> 표시"))


def test_a_table_keeps_its_merged_cells_and_says_where_its_header_ends(tmp_path: Path) -> None:
    rows = (
        f"<hp:tr>{cell(0, 0, '구분', rows=2)}{cell(0, 1, '2024년', columns=2)}</hp:tr>"
        f"<hp:tr>{cell(1, 1, '1분기')}{cell(1, 2, '2분기')}</hp:tr>"
        f"<hp:tr>{cell(2, 0, '투자')}{cell(2, 1, '150.9')}{cell(2, 2, '161.2')}</hp:tr>"
    )
    caption = f"<hp:caption>{LIST.format('표 1')}</hp:caption>"
    path = write_section(tmp_path / "a.hwpx", f"<hp:run><hp:tbl>{caption}{rows}</hp:tbl></hp:run>")

    (page,) = read(path).pages
    (region,) = page.regions

    assert page.text.startswith("표 1\n\n| 구분 | 2024년 |  |\n")
    assert page.text[region.start : region.end].endswith("| 투자 | 150.9 | 161.2 |")
    assert region.kind is Kind.TABLE
    assert page.text[region.start : region.header_end].endswith("|  | 1분기 | 2분기 |")


def test_a_note_stands_behind_its_paragraph_with_its_number_at_its_place() -> None:
    text = read(shared("hwp/hwpjs_pairs/footnote-endnote.hwp")).text

    assert "각주참조1)" in text
    assert "1) 각주입니다." in text


def test_deleted_words_of_tracked_changes_are_left_out(tmp_path: Path) -> None:
    runs = (
        '<hp:run><hp:t>기한은 <hp:deleteBegin Id="1"/>7일<hp:deleteEnd Id="1"/>'
        '<hp:insertBegin Id="2"/>14일<hp:insertEnd Id="2"/>이다.</hp:t></hp:run>'
    )

    assert read(write_section(tmp_path / "a.hwpx", runs)).text == "기한은 14일이다."


def test_running_headers_are_margins_and_hidden_remarks_are_not_read(tmp_path: Path) -> None:
    runs = (
        f"<hp:run><hp:ctrl><hp:header>{LIST.format('대외비')}</hp:header></hp:ctrl>"
        f"<hp:ctrl><hp:hiddenComment>{LIST.format('고쳐야 함')}</hp:hiddenComment></hp:ctrl>"
        "<hp:t>본문이다.</hp:t></hp:run>"
    )

    (page,) = read(write_section(tmp_path / "a.hwpx", runs)).pages

    assert page.text == "본문이다."
    assert page.margins == ("대외비",)


def test_text_boxes_equations_and_words_with_ruby_are_read(tmp_path: Path) -> None:
    runs = (
        f"<hp:run><hp:rect><hp:drawText>{LIST.format('상자 속')}</hp:drawText></hp:rect>"
        "<hp:equation><hp:script>{a} over {b+1}</hp:script>"
        "</hp:equation><hp:dutmal><hp:mainText>漢字</hp:mainText><hp:subText>한자</hp:subText></hp:dutmal>"
        "</hp:run>"
    )

    assert (
        read(write_section(tmp_path / "a.hwpx", runs)).text
        == "$\\frac{a}{b+1}$ 漢字(한자)\n\n상자 속"
    )


@pytest.mark.parametrize(
    ("value", "style", "shown"),
    [
        (4, "ROMAN_CAPITAL", "IV"),
        (3, "HANGUL_SYLLABLE", "다"),
        (2, "CIRCLED_DIGIT", "②"),
        (21, "CIRCLED_DIGIT", "(21)"),
        (1, "CIRCLED_HANGUL_SYLLABLE", "㉮"),
        (12, "HANGUL_PHONETIC", "십이"),
        (20, "IDEOGRAPH", "二十"),
        (27, "LATIN_SMALL", "a"),
        (0, "ROMAN_SMALL", "0"),
        (10**9, "ROMAN_SMALL", "1000000000"),
        (5, "UNHEARD_OF", "5"),
    ],
)
def test_numbers_are_written_as_the_program_writes_them(value: int, style: str, shown: str) -> None:
    assert format_hangul_number(value, style) == shown


def test_numbered_paragraphs_count_by_level_and_begin_anew_below_a_new_one() -> None:
    levels = [
        NumberingLevel("제^1장"),
        NumberingLevel("^1.^2)"),
        NumberingLevel("^3", "HANGUL_SYLLABLE", start=3),
    ]
    numberer = ParagraphNumberer({1: levels})

    marks = [
        numberer.number_paragraph(ParagraphHead(HeadKind.OUTLINE, level, 1))
        for level in (0, 1, 1, 2, 2, 0, 1, 9)
    ]

    assert marks == ["제1장", "1.1)", "1.2)", "다", "라", "제2장", "2.1)", ""]


def test_records_that_end_too_early_are_corrupt() -> None:
    head = (binary.PARA_TEXT | 8 << 20).to_bytes(4, "little")

    with pytest.raises(Corrupt):
        binary.parse_records(head + b"1234")


def test_records_nested_without_end_are_corrupt() -> None:
    heads = b"".join((1 | level << 10).to_bytes(4, "little") for level in range(1000))

    with pytest.raises(Corrupt):
        binary.parse_records(heads)


def test_a_control_that_lacks_its_record_costs_nothing_but_itself() -> None:
    text = (
        "앞".encode("utf-16-le") + (11).to_bytes(2, "little") + bytes(14) + "뒤".encode("utf-16-le")
    )
    paragraph = binary.HwpRecord(
        binary.PARA_HEADER, bytes(22), [binary.HwpRecord(binary.PARA_TEXT, text)]
    )

    (read_,) = binary.HwpSection([paragraph], binary.DocInfo([])).iterate_paragraphs()

    assert read_.text == "앞뒤"


@pytest.mark.parametrize("end", ["hwp", "hwpx"])
def test_pictures_are_handed_on_with_their_place_in_the_text(end: str) -> None:
    path = shared(f"hwp/hwpjs_pairs/latex.{end}")
    with client.read_document(path, formats.detect_content_type(path, path.name)) as reading:
        (page,) = reading
        (picture,) = reading.pictures

    assert (picture.width, picture.height, picture.rejected) == (1028, 224, "")
    assert picture.data.startswith((b"\x89PNG", b"\xff\xd8"))
    assert page.text[: picture.offset].strip() == "3.\n\n(1)"
