"""What migrations make of rows that earlier versions wrote."""

import importlib
from datetime import timedelta

import pytest
from django.apps import apps
from django.utils import timezone

from documents.models import Document
from documents.search import bm25
from rag.retrieve.bm25 import K1, B
from tests.documents.conftest import make_row

chunkterms = importlib.import_module("documents.migrations.0002_chunkterms")
versions = importlib.import_module("documents.migrations.0006_versions")


def parsed(literal):
    body, _, dimensions = literal.partition("}/")
    pairs = [pair.split(":") for pair in body.lstrip("{").split(",") if pair]
    return {int(place): float(value) for place, value in pairs}, int(dimensions)


def former_weights(terms):
    """As the first version stored them: six digits, an average length of 500."""
    norm = K1 * (1 - B + B * sum(terms.values()) / 500)
    return bm25.to_sparsevec(
        (term, float(f"{count * (K1 + 1) / (count + norm):.6g}")) for term, count in terms.items()
    )


@pytest.mark.parametrize(
    "terms", [{"연차": 1}, {"연차": 3, "휴가": 1, "규정": 12}, {f"말{n}": n for n in range(1, 60)}]
)
def test_chunks_of_the_first_version_get_the_marks_of_an_upload_of_today(terms):
    length = sum(terms.values())
    marks, surplus = chunkterms.marks_and_surplus(former_weights(terms), length)
    expected_marks, expected = bm25.weigh_marks(terms, {})
    assert parsed(marks) == parsed(expected_marks)
    if expected is None:
        assert surplus is None
    else:
        places, dimensions = parsed(expected)
        assert parsed(surplus)[1] == dimensions
        assert parsed(surplus)[0] == pytest.approx(places, rel=1e-3)


def test_a_chunk_without_terms_gets_none():
    assert chunkterms.marks_and_surplus("{}/1000000000", 0) == ("{}/1000000000", None)


@pytest.mark.django_db
def test_documents_from_before_know_when_their_file_came_and_that_an_index_serves(owner):
    indexed, failed = make_row(owner, chunk_count=3), make_row(owner, status="FAILED")
    Document.objects.update(received_at=timezone.now() + timedelta(days=1))
    versions.fill(apps, None)
    for row in (indexed, failed):
        row.refresh_from_db()
        assert row.received_at == row.created_at
    assert indexed.indexed
    assert not failed.indexed
