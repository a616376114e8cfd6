"""DOCX: tables with merged cells, equations, charts, code, and what no reader of it sees."""

from pathlib import Path

from rag.types import Kind
from tests.documents.parsers.reading import read, shared
from tests.documents.parsers.samples import W, docx, paragraph, write_zip
from tests.documents.parsers.test_docx import package_parts

M = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
C = 'xmlns:c="http://schemas.openxmlformats.org/drawingml/2006/chart"'
A = 'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"'
R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'


def cell(text: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{paragraph(text)}</w:tc>"


def row(*cells: str, properties: str = "") -> str:
    return f"<w:tr><w:trPr>{properties}</w:trPr>{''.join(cells)}</w:tr>"


def table(*rows: str) -> str:
    return f"<w:tbl>{''.join(rows)}</w:tbl>"


def math(text: str) -> str:
    return f"<m:r><m:t>{text}</m:t></m:r>"


def test_merged_cells_hold_their_text_once_and_columns_stay_aligned(tmp_path: Path) -> None:
    body = table(
        row(cell("구분"), cell("금액", '<w:gridSpan w:val="2"/>')),
        row(cell("출장비", '<w:vMerge w:val="restart"/>'), cell("국내"), cell("90,000")),
        row(cell("", "<w:vMerge/>"), cell("국외"), cell("200,000")),
    )

    assert read(docx(tmp_path / "a.docx", body)).text == (
        "| 구분 | 금액 |  |\n| --- | --- | --- |\n| 출장비 | 국내 | 90,000 |\n|  | 국외 | 200,000 |"
    )


def test_what_a_row_leaves_free_at_its_left_is_an_empty_cell(tmp_path: Path) -> None:
    body = table(
        row(cell("항목"), cell("금액")),
        row(cell("100"), properties='<w:gridBefore w:val="1"/>'),
    )

    assert read(docx(tmp_path / "a.docx", body)).text.endswith("|  | 100 |")


def test_columns_in_which_nothing_stands_are_left_out(tmp_path: Path) -> None:
    wide = '<w:gridSpan w:val="3"/>'
    body = table(row(cell("가", wide), cell("나")), row(cell("다", wide), cell("라")))

    assert read(docx(tmp_path / "a.docx", body)).text == "| 가 | 나 |\n| --- | --- |\n| 다 | 라 |"


def test_the_rows_that_word_repeats_are_the_header_of_a_table(tmp_path: Path) -> None:
    header = "<w:tblHeader/>"
    body = paragraph("앞") + table(
        row(cell("가"), cell("나"), properties=header),
        row(cell("다"), cell("라"), properties=header),
        row(cell("마"), cell("바")),
    )

    (page,) = read(docx(tmp_path / "a.docx", body)).pages

    (region,) = page.regions
    assert region.kind is Kind.TABLE
    head = page.text[region.start : region.header_end]
    assert head == "| 가 | 나 |\n| --- | --- |\n| 다 | 라 |"
    assert page.text[region.header_end : region.end] == "\n| 마 | 바 |"


def test_a_merged_cell_of_the_first_row_makes_the_rows_below_headers(tmp_path: Path) -> None:
    body = table(
        row(cell("구분", '<w:vMerge w:val="restart"/>'), cell("금액", '<w:gridSpan w:val="2"/>')),
        row(cell("", "<w:vMerge/>"), cell("2025"), cell("2026")),
        row(cell("출장비"), cell("1"), cell("2")),
    )

    (page,) = read(docx(tmp_path / "a.docx", body)).pages

    (region,) = page.regions
    assert page.text[region.start : region.header_end].endswith("|  | 2025 | 2026 |")


def test_a_table_within_a_cell_becomes_its_lines(tmp_path: Path) -> None:
    inner = table(row(cell("갑"), cell("을")), row(cell("병"), cell("정")))
    body = table(
        row(cell("가"), cell("나")),
        row(cell("다"), f"<w:tc>{paragraph('라')}{inner}<w:p/></w:tc>"),
    )

    assert read(docx(tmp_path / "a.docx", body)).text.endswith("| 다 | 라 갑 을 병 정 |")


def test_a_note_of_a_cell_stands_behind_the_table(tmp_path: Path) -> None:
    footnote = f'<w:footnote w:id="2">{paragraph("각주")}</w:footnote>'
    note = f'<w:footnotes xmlns:w="{W}">{footnote}</w:footnotes>'
    mark = '<w:tc><w:p><w:r><w:t>라</w:t><w:footnoteReference w:id="2"/></w:r></w:p></w:tc>'
    body = table(row(cell("가"), cell("나")), row(cell("다"), mark))

    assert read(docx(tmp_path / "a.docx", body, footnotes=note)).text.endswith(
        "| 다 | 라 |\n\n1) 각주"
    )


def test_an_equation_is_read_as_latex(tmp_path: Path) -> None:
    power = f"<m:sSup><m:e>{math('r')}</m:e><m:sup>{math('2')}</m:sup></m:sSup>"
    root = f"<m:rad><m:deg/><m:e>{math('x')}</m:e></m:rad>"
    fraction = f"<m:f><m:num>{math('−b±')}{root}</m:num><m:den>{math('2a')}</m:den></m:f>"
    body = (
        f"<w:p {M}><w:r><w:t>넓이 </w:t></w:r><m:oMath>{math('A=π')}{power}</m:oMath></w:p>"
        f"<w:p {M}><m:oMathPara><m:oMath>{fraction}</m:oMath></m:oMathPara></w:p>"
    )

    assert read(docx(tmp_path / "a.docx", body)).text == (
        "넓이 $A=\\pi r^{2}$\n\n$\\frac{-b\\pm \\sqrt{x}}{2a}$"
    )


def test_sums_brackets_and_matrices_are_equations_too(tmp_path: Path) -> None:
    limits = f"<m:sub>{math('i=1')}</m:sub><m:sup>{math('n')}</m:sup>"
    total = (
        f'<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr>{limits}<m:e>{math("i")}</m:e></m:nary>'
    )
    cells = f"<m:mr><m:e>{math('1')}</m:e><m:e>{math('0')}</m:e></m:mr>"
    matrix = f"<m:d><m:dPr/><m:e><m:m>{cells}{cells}</m:m></m:e></m:d>"
    body = f"<w:p {M}><m:oMath>{total}{math('+')}{matrix}</m:oMath></w:p>"

    assert read(docx(tmp_path / "a.docx", body)).text == (
        "$\\sum_{i=1}^{n} i+\\left(\\begin{matrix}1 & 0 \\\\ 1 & 0\\end{matrix}\\right)$"
    )


def test_a_chart_is_the_table_of_its_figures(tmp_path: Path) -> None:
    def points(name: str, *values: str) -> str:
        listed = "".join(
            f'<c:pt idx="{at}"><c:v>{value}</c:v></c:pt>' for at, value in enumerate(values)
        )
        return f"<c:{name}><c:numRef><c:numCache>{listed}</c:numCache></c:numRef></c:{name}>"

    series = (
        points("tx", "예산")
        + points("cat", "2025", "2026")
        + points("val", "4.3", "4.4000000000000004")
    )
    title = "<c:title><a:p><a:r><a:t>연도별 예산</a:t></a:r></a:p></c:title>"
    chart = (
        f"<c:chartSpace {C} {A}><c:chart>{title}"
        f"<c:barChart><c:ser>{series}</c:ser></c:barChart></c:chart></c:chartSpace>"
    )
    drawing = f'<w:p {R} {C}><w:r><w:drawing><c:chart r:id="rId1"/></w:drawing></w:r></w:p>'
    relationships = (
        '<Relationships><Relationship Id="rId1" Target="charts/chart1.xml"/></Relationships>'
    )
    parts = package_parts(docx(tmp_path / "a.docx", paragraph("앞") + drawing + paragraph("뒤")))
    parts |= {"word/charts/chart1.xml": chart, "word/_rels/document.xml.rels": relationships}

    assert read(write_zip(tmp_path / "b.docx", parts)).text == (
        "앞\n\n연도별 예산\n\n|  | 예산 |\n| --- | --- |\n| 2025 | 4.3 |\n| 2026 | 4.4 |\n\n뒤"
    )


def test_paragraphs_in_a_style_for_code_are_one_block_of_code(tmp_path: Path) -> None:
    styles = (
        f'<w:styles xmlns:w="{W}"><w:style w:type="paragraph" w:styleId="S">'
        '<w:name w:val="Source Code"/></w:style></w:styles>'
    )
    body = (
        paragraph("보기") + paragraph("if x:", "S") + paragraph("    go()", "S") + paragraph("끝")
    )

    (page,) = read(docx(tmp_path / "a.docx", body, styles=styles)).pages

    assert page.text == "보기\n\n```\nif x:\n    go()\n```\n\n끝"
    (region,) = page.regions
    assert region.kind is Kind.CODE
    assert page.text[region.start : region.end].startswith("```\nif")


def test_typewritten_prose_is_no_code_and_typewritten_code_is(tmp_path: Path) -> None:
    def typed(text: str) -> str:
        font = '<w:rPr><w:rFonts w:ascii="Courier New"/></w:rPr>'
        return f"<w:p><w:r>{font}<w:t>{text}</w:t></w:r></w:p>"

    body = typed("이 편지는 타자기로 썼다.") + paragraph("보기") + typed("total = 1;")

    assert read(docx(tmp_path / "a.docx", body)).text == (
        "이 편지는 타자기로 썼다.\n\n보기\n\n```\ntotal = 1;\n```"
    )


def test_hidden_text_and_orders_to_fields_are_not_read(tmp_path: Path) -> None:
    body = (
        "<w:p><w:r><w:rPr><w:vanish/></w:rPr><w:t>숨은 지시</w:t></w:r>"
        '<w:r><w:fldChar w:fldCharType="begin"/><w:instrText>DATE</w:instrText></w:r>'
        "<w:hyperlink><w:r><w:t>누리집</w:t></w:r></w:hyperlink></w:p>"
    )

    assert read(docx(tmp_path / "a.docx", body)).text == "누리집"


def test_soft_breaks_tabs_and_symbols_are_text(tmp_path: Path) -> None:
    body = (
        "<w:p><w:r><w:t>가</w:t><w:br/><w:t>나</w:t><w:tab/><w:t>다</w:t><w:noBreakHyphen/>"
        '<w:sym w:font="Wingdings" w:char="F0FC"/><w:sym w:font="Symbol" w:char="F061"/>'
        "</w:r></w:p>"
    )

    assert read(docx(tmp_path / "a.docx", body)).text == "가\n나\t다-✓α"


def test_the_properties_of_the_file_are_metadata(tmp_path: Path) -> None:
    core = (
        '<cp:coreProperties xmlns:cp="http://schemas.openxmlformats.org/package/2006/metadata/'
        'core-properties" xmlns:dc="http://purl.org/dc/elements/1.1/" '
        'xmlns:dcterms="http://purl.org/dc/terms/"><dc:title>업무 편람</dc:title>'
        "<dc:creator>홍길동</dc:creator><dcterms:created>2026-03-01T09:00:00Z</dcterms:created>"
        "</cp:coreProperties>"
    )
    parts = package_parts(docx(tmp_path / "a.docx", paragraph("본문이 있다.")))

    metadata = read(write_zip(tmp_path / "b.docx", parts | {"docProps/core.xml": core})).metadata

    assert metadata["title"] == "업무 편람"
    assert metadata["author"] == "홍길동"
    assert metadata["date"] == "2026-03-01"


def test_a_strict_document_reads_like_any_other(tmp_path: Path) -> None:
    strict = "http://purl.oclc.org/ooxml/wordprocessingml/main"
    parts = package_parts(docx(tmp_path / "a.docx", paragraph("제1장", "1") + paragraph("본문")))
    parts = {name: content.decode().replace(W, strict) for name, content in parts.items()}

    (page,) = read(write_zip(tmp_path / "b.docx", parts)).pages

    assert page.text == "제1장\n\n본문"
    assert [heading.title for heading in page.headings] == ["제1장"]


def test_a_broken_part_beside_the_text_is_left_out_with_a_warning(tmp_path: Path) -> None:
    result = read(docx(tmp_path / "a.docx", paragraph("본문"), numbering="<broken"))

    assert result.text == "본문"
    assert result.warnings == ("part_skipped",)


def test_a_file_of_another_format_within_the_text_is_left_out_with_a_warning(
    tmp_path: Path,
) -> None:
    result = read(docx(tmp_path / "a.docx", paragraph("본문") + "<w:altChunk/>"))

    assert (result.text, result.warnings) == ("본문", ("part_skipped",))


def test_comments_are_left_out() -> None:
    assert "comment" not in read(shared("docx/mammoth/comments.docx")).text.lower()
