"""DOCX: the body in order, and what simple readers leave out."""

from pathlib import Path

import pytest

from documents.parsers.base import ArchiveBomb, Corrupt, Limits, XmlUnsafe
from tests.documents.parsers.reading import read, shared
from tests.documents.parsers.samples import W, docx, paragraph, write_zip


def test_paragraphs_and_headings_come_in_order(tmp_path: Path) -> None:
    body = (
        paragraph("제1장 총칙", "1") + paragraph("목적을 정한다.") + paragraph("제2장 절차", "a5")
    )

    (page,) = read(docx(tmp_path / "a.docx", body)).pages

    assert page.text == "제1장 총칙\n\n목적을 정한다.\n\n제2장 절차"
    assert [(heading.level, heading.title) for heading in page.headings] == [
        (1, "제1장 총칙"),
        (1, "제2장 절차"),
    ]
    assert all(page.text[h.start :].startswith(h.title) for h in page.headings)
    assert page.number is None


def test_a_table_is_markdown(tmp_path: Path) -> None:
    cells = [["구분", "금액"], ["출장비", "90,000원"]]
    rows = "".join(
        "<w:tr>" + "".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) + "</w:tr>"
        for row in cells
    )

    text = read(docx(tmp_path / "a.docx", f"<w:tbl>{rows}</w:tbl>")).text

    assert text == "| 구분 | 금액 |\n| --- | --- |\n| 출장비 | 90,000원 |"


def test_a_table_of_one_cell_is_text_in_a_frame(tmp_path: Path) -> None:
    body = f"<w:tbl><w:tr><w:tc>{paragraph('알림')}{paragraph('내용')}</w:tc></w:tr></w:tbl>"

    assert read(docx(tmp_path / "a.docx", body)).text == "알림\n내용"


def test_insertions_are_read_and_deletions_are_not(tmp_path: Path) -> None:
    body = (
        "<w:p><w:r><w:t>기한은 </w:t></w:r><w:del><w:r><w:delText>5일</w:delText></w:r></w:del>"
        "<w:ins><w:r><w:t>7일</w:t></w:r></w:ins><w:r><w:t>이다.</w:t></w:r></w:p>"
    )

    assert read(docx(tmp_path / "a.docx", body)).text == "기한은 7일이다."


def test_a_text_box_is_read_once(tmp_path: Path) -> None:
    box = f"<w:txbxContent>{paragraph('글상자 문장')}</w:txbxContent>"
    mc = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    body = (
        f"<w:p><w:r><w:t>본문</w:t></w:r><w:r><mc:AlternateContent {mc}>"
        f"<mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback></mc:AlternateContent></w:r></w:p>"
    )

    assert read(docx(tmp_path / "a.docx", body)).text == "본문\n\n글상자 문장"


def test_a_footnote_follows_its_paragraph(tmp_path: Path) -> None:
    note = f'<w:footnote w:id="2">{paragraph("각주")}</w:footnote>'
    notes = f'<w:footnotes xmlns:w="{W}">{note}</w:footnotes>'
    body = '<w:p><w:r><w:t>본문</w:t><w:footnoteReference w:id="2"/></w:r></w:p>' + paragraph("끝")

    assert read(docx(tmp_path / "a.docx", body, footnotes=notes)).text == "본문\n\n1) 각주\n\n끝"


def test_headers_stand_beside_the_text_once_and_page_numbers_not_at_all(tmp_path: Path) -> None:
    header = f'<w:hdr xmlns:w="{W}">{paragraph("정보화기획과")}</w:hdr>'
    footer = f'<w:ftr xmlns:w="{W}">{paragraph("- 1 -")}</w:ftr>'
    parts = {"header1": header, "header2": header, "footer1": footer}

    (page,) = read(docx(tmp_path / "a.docx", paragraph("본문"), **parts)).pages

    assert page.text == "본문"
    assert page.margins == ("정보화기획과",)


def test_a_document_type_is_refused(tmp_path: Path) -> None:
    document = (
        '<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/hostname">]>'
        f'<w:document xmlns:w="{W}"><w:body>{paragraph("&x;")}</w:body></w:document>'
    )
    whole = docx(tmp_path / "a.docx", paragraph("본문"))
    path = write_zip(tmp_path / "b.docx", package_parts(whole) | {"word/document.xml": document})

    with pytest.raises(XmlUnsafe):
        read(path)


def test_a_part_that_unpacks_to_too_much_is_a_bomb(tmp_path: Path) -> None:
    path = docx(tmp_path / "a.docx", paragraph("가" * 400_000))

    with pytest.raises(ArchiveBomb):
        read(path, Limits(seconds=10, ratio_after=100_000))


def test_too_many_entries_are_a_bomb(tmp_path: Path) -> None:
    parts = package_parts(docx(tmp_path / "a.docx", paragraph("본문")))
    path = write_zip(tmp_path / "b.docx", parts | {f"x/{n}": "" for n in range(60)})

    with pytest.raises(ArchiveBomb):
        read(path, Limits(seconds=10, entries=50))


def test_nesting_beyond_reason_is_corrupt(tmp_path: Path) -> None:
    deep = "<w:smartTag>" * 300 + paragraph("x") + "</w:smartTag>" * 300

    with pytest.raises(Corrupt):
        read(docx(tmp_path / "a.docx", deep))


def test_a_real_document_has_nearly_all_words_that_others_find() -> None:
    path = shared("docx/docling/word_sample.docx")
    expected = shared("docx/docling/groundtruth/word_sample.docx.md").read_text()

    found = set(read(path).text.split())

    words = set(expected.replace("#", " ").replace("|", " ").split())
    assert len(words & found) > 0.85 * len(words)


def package_parts(path: Path) -> dict[str, bytes]:
    import zipfile

    with zipfile.ZipFile(path) as package:
        return {name: package.read(name) for name in package.namelist()}
