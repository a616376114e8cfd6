"""HWP 5 and HWPX: text, and the exact name of what locks a file."""

import re
from difflib import SequenceMatcher
from pathlib import Path

import pytest

from documents.parsers.errors import Corrupt, Encrypted, UnsupportedVersion, XmlUnsafe
from documents.parsers.hwp import LOCKS, SIGNATURE, _checked_flags
from tests.documents.parsers.reading import read, shared
from tests.documents.parsers.samples import hwpx

PAIRS = ("aligns", "facename", "footnote-endnote", "lists", "outline", "sample-5017-pics")


def words(name: str) -> list[str]:
    return re.findall(r"\w+", read(shared(f"hwp/hwpjs_pairs/{name}")).text)


def test_paragraphs_of_a_hwpx_are_read(tmp_path: Path) -> None:
    result = read(hwpx(tmp_path / "a.hwpx", "민원은 14일 이내에 처리한다.", "끝."))

    assert [page.number for page in result.pages] == [None]
    assert result.text == "민원은 14일 이내에 처리한다.\n\n끝."


@pytest.mark.parametrize("name", PAIRS)
def test_both_formats_of_a_document_give_the_same_words(name: str) -> None:
    one, other = words(f"{name}.hwp"), words(f"{name}.hwpx")

    assert len(one) > 5
    assert SequenceMatcher(None, one, other).ratio() > 0.9


def test_an_outline_gives_headings_at_their_places() -> None:
    (page,) = read(shared("hwp/hwpjs_pairs/outline.hwp")).pages

    assert ("가. 개요2", 1) in [(heading.title, heading.level) for heading in page.headings]
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
        _checked_flags(header)

    assert caught.value.params == {"lock": lock}


def test_another_version_is_named() -> None:
    with pytest.raises(UnsupportedVersion):
        _checked_flags(SIGNATURE.ljust(32, b"\0") + bytes((0, 0, 0, 9)) + bytes(4))


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
