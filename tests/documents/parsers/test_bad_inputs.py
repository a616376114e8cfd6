"""Every malformed or hostile file ends in an outcome, and for a reason, that may be."""

import json
from pathlib import Path
from typing import Any

import pytest

from documents.parsers.base import OutOfMemory, ParseFailed, ParserCrashed, TimedOut
from tests.documents.parsers.reading import read
from tests.support import DATA, NO_DATA

FOLDER = DATA / "bad-inputs"
KINDS = ("pdf", "docx", "hwp", "hwpx", "text")
SAMPLED = 4
"""Of so many odd files one is read in every run, all in a whole one."""


def list_entries() -> list[Any]:
    manifest = FOLDER / "manifest.json"
    if not manifest.exists():
        return [pytest.param(None, marks=pytest.mark.skip(NO_DATA))]
    listed = json.loads(manifest.read_text())
    return [
        pytest.param(entry, id=entry["file"])
        for entry in listed
        if Path(entry["file"]).parts[0] in KINDS
    ]


def read_to_end(path: Path) -> tuple[str, str, str]:
    """Outcome, reason and text; COMPLETED with a warning is PARTIAL."""
    try:
        result = read(path)
    except ParseFailed as failure:
        return "FAILED", failure.code, ""
    return "PARTIAL" if result.warnings else "COMPLETED", "", result.text


@pytest.mark.parametrize("entry", list_entries())
def test_a_bad_file_ends_as_it_may(entry: dict[str, Any]) -> None:
    allowed = set(entry["expect"])
    allowed |= {"FAILED"} if "REJECTED" in allowed else set()
    allowed |= {"PARTIAL"} if "COMPLETED" in allowed else set()

    outcome, reason, text = read_to_end(FOLDER / entry["file"])

    assert outcome in allowed, reason
    if outcome == "FAILED":
        assert reason in (entry.get("reasons") or [reason])
        return
    for words in entry.get("must_contain") or ():
        assert words in text
    for words in ["\x00", *(entry.get("must_not_contain") or ())]:
        assert words not in text
    text.encode()  # no lone surrogates


def list_odd_files() -> list[Any]:
    """Files of the sets: found in the wild, some of them broken."""
    paths = [
        path
        for name in ("pdf", "docx", "hwp")
        for path in sorted((DATA / name).rglob("*"))
        if path.suffix in {".pdf", ".docx", ".hwp", ".hwpx"}
    ]
    if not paths:
        return [pytest.param(None, marks=pytest.mark.skip(NO_DATA))]
    return [
        pytest.param(
            path,
            id=str(path.relative_to(DATA)),
            marks=[pytest.mark.whole] if at % SAMPLED else [],
        )
        for at, path in enumerate(paths)
    ]


@pytest.mark.parametrize("path", list_odd_files())
def test_an_odd_file_ends_with_text_or_for_a_reason_and_crashes_nothing(path: Path) -> None:
    outcome, reason, text = read_to_end(path)

    assert reason not in {ParserCrashed.code, TimedOut.code, OutOfMemory.code}
    assert text.strip() if outcome != "FAILED" else reason
    assert "(cid:" not in text
    text.encode()  # no lone surrogates
