"""Text: encodings of Korean files, what is cleaned away, and what a beginning says of its file."""

from pathlib import Path

import pytest

from documents.parsers.base import NoText
from documents.parsers.metadata import derive_metadata
from documents.parsers.text import clean_text, decode_text, is_readable
from tests.documents.parsers.reading import read, shared

KOREAN = "담당자는 홍길동이다. 똠방각하\n예산은 1,234원이다.\n"


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp949"]
)
def test_korean_is_read_in_every_usual_encoding(encoding: str) -> None:
    assert decode_text(KOREAN.encode(encoding)) == (KOREAN, 0)


def test_one_stray_byte_does_not_lose_a_cp949_file() -> None:
    text, lost = decode_text((KOREAN * 20).encode("cp949") + b"\xff")

    assert text.startswith(KOREAN)
    assert lost == 1


def test_a_cut_syllable_at_the_end_costs_only_itself() -> None:
    text, lost = decode_text(KOREAN.strip().encode() + "원".encode()[:-1])

    assert text.startswith("담당자는 홍길동이다.")
    assert lost == 1


def test_two_encodings_in_one_file_are_both_read() -> None:
    half = KOREAN * 20

    assert decode_text(half.encode("cp949") + half.encode()) == (half + half, 0)


def test_western_text_is_not_taken_for_korean() -> None:
    text, _ = decode_text("Le café était fermé à cause de l'été.\n".encode("latin-1") * 20)

    assert "caf" in text
    assert not any("가" <= character <= "힣" for character in text)


def test_what_may_not_be_stored_is_cleaned_away() -> None:
    assert clean_text("관\u200b리\u00ad자\x00\ud800\ufffe\u202e") == "관리자"
    assert clean_text("\u1112\u1161\u11ab") == "한"
    assert clean_text("a\r\nb\rc\u2028d") == "a\nb\nc\nd"
    assert clean_text("\U000e0041지시\x1b[31m") == "지시[31m"


def test_signs_of_private_areas_are_written_as_signs_that_every_font_has() -> None:
    assert clean_text("\uf06d 국민 여러분의 의견\n\uf0fc 참석") == "❍ 국민 여러분의 의견\n✓ 참석"
    assert clean_text("\U000f02b1 소통, \U000f02ba\U000f02c3 인력") == "1 소통, 10 인력"
    unknown = "\uf041 \U000f0854 \ue0bc"
    assert clean_text(unknown) == unknown


def test_invisible_marks_alone_are_not_readable() -> None:
    assert not is_readable(clean_text(" \u3000\u200b\ufeff\n"))


def test_blank_text_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(" \u3000\n")

    with pytest.raises(NoText) as caught:
        read(tmp_path / "a.txt")

    assert caught.value.params == {"kind": "empty"}


def test_lost_characters_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes((KOREAN * 20).encode("cp949") + b"\xff\n\xff")
    (tmp_path / "b.txt").write_bytes((KOREAN * 20).encode("cp949"))

    assert read(tmp_path / "a.txt").warnings == ({"code": "characters_replaced", "count": 2},)
    assert read(tmp_path / "b.txt").warnings == ()


def test_a_law_names_its_ministry_and_title() -> None:
    law = next(shared("kr_law/kr/공탁법").glob("*.md"))

    result = read(law)

    assert result.metadata["issuer"] == "법무부"
    assert result.metadata["소관부처"] == "법무부"
    assert result.metadata["project_name"] == result.metadata["title"] == "공탁법"
    assert "제1조 (목적)" in [heading.title for heading in result.pages[0].headings]


def test_labels_at_the_beginning_are_metadata() -> None:
    text = "1. 사 업 명 : 차세대 시스템 구축\n○ 발주기관: 한국정보원\n| 공고일 | 2026-03-01 |\n"

    assert derive_metadata({}, text) == {
        "project_name": "차세대 시스템 구축",
        "issuer": "한국정보원",
        "date": "2026-03-01",
    }


def test_what_the_file_carries_goes_before_labels() -> None:
    assert derive_metadata({"issuer": "법무부"}, "발주기관: 다른 곳\n")["issuer"] == "법무부"
