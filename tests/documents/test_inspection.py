from io import StringIO

import pytest
from django.core.management import call_command

from documents import ingest
from documents.models import DocumentPage, DocumentPicture
from documents.representation import LengthStatistics, inspect_document
from tests.documents.conftest import upload

pytestmark = pytest.mark.django_db


@pytest.fixture
def document(owner, sent, tiny_engine):
    document = upload(owner)
    ingest.ingest_next_document()
    document.refresh_from_db()
    return document


def picture(document, index, **fields):
    values = {"digest": str(index), "width": 400, "height": 300}
    return DocumentPicture.objects.create(document=document, index=index, **values | fields)


def test_a_histogram_begins_at_nothing_and_counts_everything():
    lengths = LengthStatistics.from_lengths([0, 99, 100, 101, 950])
    assert [(one.start, one.end, one.count) for one in lengths.histogram][:2] == [
        (0, 100, 2),
        (100, 200, 2),
    ]
    assert lengths.histogram[-1].count == 1
    assert sum(one.count for one in lengths.histogram) == 5
    assert (lengths.min, lengths.median, lengths.max) == (0, 100, 950)


@pytest.mark.parametrize("longest", [0, 1, 9, 10, 999, 1000, 12_345])
def test_a_histogram_has_few_bars_however_long_the_texts_are(longest):
    lengths = LengthStatistics.from_lengths([longest])
    assert 1 <= len(lengths.histogram) <= 10
    assert lengths.histogram[-1].start <= longest < lengths.histogram[-1].end
    assert lengths.p90 == longest


def test_nothing_has_no_lengths():
    assert LengthStatistics.from_lengths([]) is None


def test_an_inspection_counts_what_was_made(document):
    DocumentPage.objects.create(document=document, number=2, start=999, text="")
    picture(document, 0, description="막대그래프")
    picture(document, 1)
    picture(document, 2, rejected="flat")
    picture(document, 3, rejected="flat")

    found = inspect_document(document)

    assert found["pages_without_text"] == [2]
    assert found["chunks"]["count"] == document.chunk_count
    assert sum(found["chunks"]["kinds"].values()) == document.chunk_count
    assert found["chunks"]["embedded"] == document.chunk_count
    assert found["chunks"]["length"]["min"] > 0
    assert found["pictures"] == {"kept": 2, "described": 1, "dropped": {"flat": 2}}


def test_the_api_shows_the_inspection_to_the_owner_alone(document, api, stranger_api):
    address = f"/api/v1/documents/{document.pk}/inspection"
    answer = api.get(address)
    assert answer.status_code == 200
    assert answer.json()["characters"] == sum(len(page.text) for page in document.pages.all())
    assert stranger_api.get(address).status_code == 404


def test_a_document_without_chunks_can_be_inspected(owner, sent):
    found = inspect_document(upload(owner))
    assert found["chunks"]["length"] is None
    assert found["characters"] == 0


def test_the_commands_draw_the_histogram(document):
    for command in (("inspect_index",), ("inspect_index", str(document.pk))):
        out = StringIO()
        call_command(*command, stdout=out)
        assert "characters a chunk: least" in out.getvalue()
        assert "####" in out.getvalue()
