"""Files of every format all the way to the index, with the real readers."""

import json
from pathlib import Path

import pytest
from django.core.files.base import ContentFile

from documents import services, tasks
from documents.errors import DOCUMENTS, FILES, WARNINGS, explain_code, explain_warning
from documents.models import Document
from documents.parsers.base import ParseFailed
from documents.search.store import ScopedStore
from rag import tokenize
from tests.documents.conftest import upload

pytestmark = pytest.mark.django_db
BAD = Path(__file__).parents[3] / "shared/data/bad-inputs"
needs_data = pytest.mark.skipif(not BAD.exists(), reason="needs ../shared/data/bad-inputs")
REFUSED = {"encrypted", "corrupt", "type_mismatch", "empty_file", "unsupported_type"}


def take_in(owner, path):
    """The end of a file: a document, or the code of the refusal."""
    try:
        with path.open("rb") as file:
            content = ContentFile(file.read())
        document, _created = services.upload_document(owner=owner, name=path.name, content=content)
    except ParseFailed as error:
        return error.code
    for _ in range(2):
        tasks.ingest_document(str(document.pk))
    document.refresh_from_db()
    return document


@needs_data
def test_a_korean_pdf_is_found_with_its_page_and_boxes(owner, sent, tiny_engine, api):
    document = take_in(owner, BAD / "pdf/ok-korean-control.pdf")
    assert document.status == "COMPLETED", document.error_code
    (hit, *_) = ScopedStore([document.pk]).find_by_terms(tokenize.count_terms("3분기 집행액"), 3)
    assert "1,234,567,000원" in hit.passage.text
    assert hit.passage.page == 1
    assert all(0 <= box.x0 < box.x1 <= 1 for box in hit.passage.boxes)
    assert hit.passage.boxes
    picture = api.get(f"/api/v1/documents/{document.pk}/pages/1.png", HTTP_ACCEPT="image/png")
    assert picture.content.startswith(b"\x89PNG")
    assert api.get(f"/api/v1/documents/{document.pk}/pages/9.png").status_code == 404


@needs_data
@pytest.mark.parametrize(
    ("folder", "pattern"), [("hwp", "ok*.hwp"), ("hwpx", "ok*.hwpx"), ("docx", "ok*.docx")]
)
def test_ordinary_office_files_are_completed(owner, sent, tiny_engine, folder, pattern):
    files = sorted((BAD / folder).glob(pattern))[:2]
    if not files:
        pytest.skip(f"no {pattern} there")
    for path in files:
        document = take_in(owner, path)
        assert document.status == "COMPLETED", (path.name, document.error_code)
        assert document.chunk_count > 0


@needs_data
def test_c31_bad_files_end_with_a_reason_and_the_next_good_one_completes(owner, sent, tiny_engine):
    manifest = json.loads((BAD / "manifest.json").read_text())
    entries = [e for e in manifest if REFUSED & set(e.get("reasons") or ())]
    small = [e for e in entries if (BAD / e["file"]).stat().st_size < 50_000]
    for entry in small[::8]:
        end = take_in(owner, BAD / entry["file"])
        if isinstance(end, Document):
            assert end.status in {"COMPLETED", "FAILED"}, entry["file"]
            code = end.error_code
        else:
            code = end
        assert not code or code in FILES | DOCUMENTS, (entry["file"], code)
    good = upload(owner)
    tasks.ingest_document(str(good.pk))
    good.refresh_from_db()
    assert good.status == "COMPLETED"


def test_every_code_of_a_parser_has_its_own_sentence():
    from documents.parsers.base import BY_CODE

    fallback = explain_code("no such code")
    assert all(explain_code(code) != fallback for code in BY_CODE)


def test_a_sentence_never_fails_for_want_of_a_parameter():
    for code in FILES | DOCUMENTS | WARNINGS:
        assert "%(" not in explain_warning(code)
