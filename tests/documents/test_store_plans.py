"""The plans of the main queries: which index they use, and how many rows they read."""

import json
import random

import pytest
from django.db import connection

from documents import spaces
from documents.search import bm25, codes, database, store
from documents.search.database import SearchedSpace, SearchScope
from tests.documents.conftest import TinyEmbedder, make_owner
from tests.documents.test_store import index

pytestmark = pytest.mark.django_db

CHUNKS = 40
BESIDE = 60
"""Documents of that many chunks, one of them in scope."""


@pytest.fixture(scope="module")
def owner(lasting_rows):
    return make_owner()


@pytest.fixture(scope="module")
def scope(owner):
    dice = random.Random(5)
    words = [f"말{number}" for number in range(300)]
    documents = [
        index(owner, [" ".join(dice.choices(words, k=60)) for _ in range(CHUNKS)])
        for _ in range(BESIDE)
    ]
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    return SearchScope([documents[7].pk])


def list_plan_nodes(scope, statement, **parameters):
    """Every node of the plan as it ran."""
    with database.open_search(scope) as search:
        explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}"
        ((plan,),) = search.fetch_rows(explained, **parameters)
    found = plan if isinstance(plan, list) else json.loads(plan)
    stack, flat = [found[0]["Plan"]], []
    while stack:
        node = stack.pop()
        flat.append(node)
        stack += node.get("Plans", [])
    return flat


def read(plan):
    """Rows that the scans of chunk tables gave or threw away."""
    return {
        node["Relation Name"]: (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
        * node["Actual Loops"]
        for node in plan
        if node.get("Relation Name", "").startswith("documents_chunk")
    }


def list_sequential_scans(plan):
    return [node["Relation Name"] for node in plan if node["Node Type"] == "Seq Scan"]


def list_index_names(plan):
    return {node["Index Name"] for node in plan if "Index Name" in node}


def test_bm25_in_a_small_scope_reads_the_terms_of_its_chunks_and_nothing_else(scope):
    statement = bm25.SCAN.format(marks=bm25.MARKS.format(number=0))
    plan = list_plan_nodes(scope, statement, places0=bm25.to_power_vector([bm25.hash_term("말1")]))
    assert read(plan) == {"documents_chunkterms": CHUNKS}
    assert not list_sequential_scans(plan)


def test_the_best_are_read_by_their_keys(scope):
    from documents.models import Chunk

    keys = list(Chunk.objects.filter(document_id=scope.documents[0]).values_list("pk", flat=True))
    parameters = {
        "query": bm25.to_sparsevec([("말1", 1.0)]),
        "limit": 5,
        "space": spaces.get_active_space().pk,
    }
    plan = list_plan_nodes(
        scope, bm25.BEST_CHUNKS, keys=keys, scores=[1.0] * len(keys), **parameters
    )
    assert read(plan) == {
        "documents_chunkterms": CHUNKS,
        "documents_chunk": 5,
        "documents_chunkembedding": 5,
    }
    assert not list_sequential_scans(plan)


def test_bm25_in_a_large_scope_goes_by_the_lexical_index(scope):
    plan = list_plan_nodes(
        scope,
        bm25.POSTINGS.format(within=database.WITHIN),
        lookups=[bm25.quote_lexeme("말1")],
        most=100,
    )
    assert "chunk_lexemes" in list_index_names(plan)
    assert not list_sequential_scans(plan)
    assert read(plan)["documents_chunk"] < CHUNKS * BESIDE / 2


def test_the_exact_comparison_reads_the_vectors_of_its_documents(scope):
    space = spaces.get_active_space()
    vector = store.to_halfvec(TinyEmbedder().embed_query("말1 말2"))
    plan = list_plan_nodes(
        scope, store.NEAREST_IN_DOCUMENTS, vector=vector, space=space.pk, limit=5
    )
    assert read(plan) == {"documents_chunkembedding": CHUNKS, "documents_chunk": 5}
    assert not list_sequential_scans(plan)


def test_the_graph_gives_the_order_and_the_rows_that_are_wanted(scope):
    active = spaces.get_active_space()
    vector = store.to_halfvec(TinyEmbedder().embed_query("말1 말2"))
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_sort = off")  # few rows: a sort would be cheaper
    statement = store.to_graph_statement(SearchedSpace(active.pk, active.dimensions))
    everything = SearchScope(list(active.embeddings.values_list("document_id", flat=True)))
    for passed in (0, 7):
        plan = list_plan_nodes(everything, statement, vector=vector, limit=5, passed=passed)
        assert f"embedding_space_{active.pk}" in list_index_names(plan)
        assert not list_sequential_scans(plan)
        assert read(plan) == {"documents_chunkembedding": passed + 5, "documents_chunk": 5}


def test_which_codes_there_are_comes_from_an_index_alone(scope):
    plan = list_plan_nodes(scope, codes.ROWS, space=spaces.get_active_space().pk)
    scans = [node for node in plan if "Index Name" in node]
    assert [(node["Node Type"], node["Index Name"]) for node in scans] == [
        ("Index Only Scan", "codes_of_a_document")
    ]
    assert scans[0]["Actual Rows"] == 1
