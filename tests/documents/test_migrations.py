"""What migrations make of rows that earlier versions wrote."""

import importlib

import pytest

from documents import lexical
from rag.retrieval.bm25 import K1, B

chunkterms = importlib.import_module("documents.migrations.0002_chunkterms")


def parsed(literal):
    body, _, dimensions = literal.partition("}/")
    pairs = [pair.split(":") for pair in body.lstrip("{").split(",") if pair]
    return {int(place): float(value) for place, value in pairs}, int(dimensions)


def former_weights(terms):
    """As the first version stored them: six digits, an average length of 500."""
    norm = K1 * (1 - B + B * sum(terms.values()) / 500)
    return lexical.sparsevec(
        (term, float(f"{count * (K1 + 1) / (count + norm):.6g}")) for term, count in terms.items()
    )


@pytest.mark.parametrize(
    "terms", [{"연차": 1}, {"연차": 3, "휴가": 1, "규정": 12}, {f"말{n}": n for n in range(1, 60)}]
)
def test_chunks_of_the_first_version_get_the_marks_of_an_upload_of_today(terms):
    length = sum(terms.values())
    marks, surplus = chunkterms.marks_and_surplus(former_weights(terms), length)
    assert parsed(marks) == parsed(lexical.marks(terms, {}))
    expected = lexical.surplus(terms, {})
    if expected is None:
        assert surplus is None
    else:
        places, dimensions = parsed(expected)
        assert parsed(surplus)[1] == dimensions
        assert parsed(surplus)[0] == pytest.approx(places, rel=1e-3)


def test_a_chunk_without_terms_gets_none():
    assert chunkterms.marks_and_surplus("{}/1000000000", 0) == ("{}/1000000000", None)
