import json
from datetime import timedelta

import pytest
from django.core.management import CommandError
from django.db import connection

from documents import ingest, reindex, renewal, services, spaces
from documents.models import Chunk, EmbeddingSpace, Reindexing
from documents.search.store import ScopedStore
from rag.factory import get_engine
from tests.documents.changing import TOPICS, add, configure, list_embedded_keys, run_reindex_command
from tests.documents.conftest import upload

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("first_model")]


def list_chunk_rows():
    return list(Chunk.objects.order_by("pk").values_list("pk", "document_id", "index", "text"))


def indexes():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname, indisvalid FROM pg_index JOIN pg_class ON oid = indexrelid"
            " WHERE relname LIKE 'embedding_space_%'"
        )
        return dict(cursor.fetchall())


def test_every_chunk_gets_a_vector_of_the_new_model_and_stays_as_it_was(library, embedding_server):
    before, old = list_chunk_rows(), spaces.get_active_space()
    text = run_reindex_command(model="words-32", base_url=embedding_server.url, languages="*")
    new = spaces.get_active_space()
    assert (new.model, new.dimensions) == ("words-32", 32)
    assert EmbeddingSpace.objects.filter(active=True).count() == 1
    assert list_embedded_keys(new) == list_embedded_keys(old) == {row[0] for row in before}
    assert list_chunk_rows() == before
    assert "recall@5" in text
    assert f"filling {len(before)}/{len(before)}" in text
    assert embedding_server.count("words-32")[0] >= len(before)


@pytest.mark.parametrize("widths", [(384, 1024, 8), (8, 4096)])
def test_models_of_other_widths_follow_each_other(owner, settings, embedding_server, widths):
    for width in widths:
        configure(settings, embedding_server, f"words-{width}")
        if width == widths[0]:
            document = add(owner, "규정.md")
        else:
            run_reindex_command(force=True)
        used = spaces.get_space_in_use()
        assert used.space.dimensions == width
        vector = get_engine(used.config).embedder.embed_query("연차 휴가 2조")
        (hit, *_) = ScopedStore([document.pk], space=used.space).find_similar(vector, 3)
        assert hit.passage.document_id == document.pk


def test_the_same_name_with_another_width_is_another_space(library, embedding_server):
    old = spaces.get_active_space()
    embedding_server.widths["words-16"] = 24
    run_reindex_command()
    new = spaces.get_active_space()
    assert (new.model, new.dimensions) == (old.model, 24)
    assert new.pk != old.pk


def test_the_index_is_whole_before_the_swap(library, settings, embedding_server, monkeypatch):
    seen = {}

    def look(space, *args, **options):
        seen.update(indexes())
        return forward(space, *args, **options)

    forward = renewal.swap_forward
    monkeypatch.setattr(renewal, "swap_forward", look)
    configure(settings, embedding_server, "words-32")
    run_reindex_command()
    assert seen[spaces.to_index_name(spaces.get_active_space())] is True


def test_uploads_deletions_and_new_versions_during_the_run_are_caught(
    library, owner, settings, embedding_server, monkeypatch
):
    configure(settings, embedding_server, "words-32")
    original, added = renewal.fill_space, []

    def busy(*args, **options):
        original(*args, **options)
        if len(added) < 2:
            services.delete_document(document=library[len(added)])
            added.append(add(owner, f"새 지침 {len(added)}.md", TOPICS[4:6]))

    monkeypatch.setattr(renewal, "fill_space", busy)
    run_reindex_command()
    assert spaces.get_active_space().model == "words-32"
    assert list_embedded_keys(spaces.get_active_space()) == set(
        Chunk.objects.values_list("pk", flat=True)
    )
    assert {document.chunks.count() > 0 for document in added} == {True}


def test_a_chunk_deleted_while_it_is_embedded_leaves_no_vector(
    library, settings, embedding_server, monkeypatch
):
    configure(settings, embedding_server, "words-32")
    embed = renewal.indexing.embed_chunks

    def slow(titled, embedder):
        vectors = embed(titled, embedder)
        if embedder.name == "words-32" and library:
            services.delete_document(document=library.pop())
        return vectors

    monkeypatch.setattr(renewal.indexing, "embed_chunks", slow)
    run_reindex_command()
    assert list_embedded_keys(spaces.get_active_space()) == set(
        Chunk.objects.values_list("pk", flat=True)
    )


def test_texts_in_a_language_that_the_model_does_not_know_are_left_out(
    library, owner, embedding_server
):
    english = upload(owner, name="leave.md", content="# Leave\n\nFifteen days a year.\n")
    assert ingest.ingest_next_document()
    korean = add(owner, "휴가.md")
    run_reindex_command(model="words-32", base_url=embedding_server.url, languages="en", force=True)
    assert list_embedded_keys(spaces.get_active_space()) == set(
        english.chunks.values_list("pk", flat=True)
    )
    assert korean.chunks.exists()


def test_a_model_that_finds_less_is_refused_and_its_vectors_are_kept(
    library, settings, embedding_server, tmp_path
):
    file = tmp_path / "questions.json"
    rows = [
        {"question": " ".join(reversed(chunk.text.split()[2:9])), "text": chunk.text[:60]}
        for chunk in Chunk.objects.all()
    ]
    file.write_text(json.dumps(rows), encoding="utf-8")
    settings.RAG = spaces.replace(settings.RAG, bm25_weight=0.0)
    run_reindex_command(model="words-256", base_url=embedding_server.url, languages="*", force=True)
    old = spaces.get_active_space()
    with pytest.raises(CommandError, match="--force"):
        run_reindex_command(
            model="noise-16", base_url=embedding_server.url, languages="*", questions=file
        )
    assert spaces.get_active_space().pk == old.pk
    run = Reindexing.objects.latest("pk")
    assert (run.state, run.open) == ("refused", False)
    assert run.report["new"]["at_5"] < run.report["old"]["at_5"]
    embedded = embedding_server.count("noise-16")[0]
    options = {"model": "noise-16", "base_url": embedding_server.url, "languages": "*"}
    run_reindex_command(**options, force=True)
    assert spaces.get_active_space().model == "noise-16"
    asked = (
        len(reindex.make_questions_from_headings()) + 2
    )  # one each for the width, and whether it answers
    assert embedding_server.count("noise-16")[0] - embedded <= asked


def test_an_endpoint_that_fails_ends_the_command_and_it_can_go_on(
    library, settings, embedding_server, monkeypatch
):
    monkeypatch.setattr(renewal, "MAX_CHUNKS_A_BATCH", 4)
    configure(settings, embedding_server, "words-32")
    embedding_server.refuse_after(3)  # one for the width, two batches
    with pytest.raises(CommandError, match="run the same command again"):
        run_reindex_command()
    assert Reindexing.objects.get().claim is None
    assert spaces.get_active_space().model == "words-16"
    assert len(list_embedded_keys(EmbeddingSpace.objects.get(model="words-32"))) == 8
    embedding_server.release()
    run_reindex_command()
    assert spaces.get_active_space().model == "words-32"
    assert Reindexing.objects.count() == 1


def test_rolling_back_takes_the_vectors_that_are_there(library, owner, embedding_server):
    old = spaces.get_active_space()
    run_reindex_command(model="words-32", base_url=embedding_server.url, languages="*")
    late = add(owner, "나중.md", TOPICS[5:6])
    text = run_reindex_command(rollback=True)
    assert spaces.get_active_space().pk == old.pk
    count = late.chunks.count()
    assert f"{count} chunks uploaded since" in text
    hits = ScopedStore([late.pk]).find_by_terms({"경조": 1.0}, 3)
    assert hits
    run = Reindexing.objects.get(open=True)
    assert (run.model, run.background) == ("words-16", True)
    run_reindex_command(model="words-16")
    assert list_embedded_keys(spaces.get_active_space()) == set(
        Chunk.objects.values_list("pk", flat=True)
    )
    run_reindex_command(rollback=True)
    assert spaces.get_active_space().model == "words-32"


def test_there_is_nothing_to_roll_back_to_at_first(library):
    with pytest.raises(CommandError):
        run_reindex_command(rollback=True)


def test_a_second_command_does_not_run_beside_the_first(library, embedding_server, monkeypatch):
    claim = reindex.claim_change(
        reindex.begin_change(reindex.ReindexTarget("words-32"), background=False).pk
    )
    monkeypatch.setattr(Reindexing, "LEASE", timedelta(0))  # what one waits for; this one has begun
    with pytest.raises(CommandError, match="Another process"):
        run_reindex_command(model="words-8", base_url=embedding_server.url)
    assert claim.rows().exists()


def test_old_vectors_are_deleted_when_that_is_asked(library, embedding_server):
    old = spaces.get_active_space()
    run_reindex_command(model="words-32", base_url=embedding_server.url, languages="*")
    run_reindex_command(drop_old=True)
    assert list(EmbeddingSpace.objects.values_list("model", flat=True)) == ["words-32"]
    assert spaces.to_index_name(old) not in indexes()
    assert renewal.get_previous_space() is None


def test_languages_that_the_settings_add_are_filled_in_place(library, settings, embedding_server):
    EmbeddingSpace.objects.update(languages=["en"])
    space = spaces.get_active_space()
    space.embeddings.filter(document=library[0]).delete()
    configure(settings, embedding_server, "words-16", languages=("ko", "en"))
    run_reindex_command()
    assert spaces.get_active_space().languages == ["en", "ko"]
    assert list_embedded_keys(spaces.get_active_space()) == set(
        Chunk.objects.values_list("pk", flat=True)
    )
    assert spaces.describe_pending_reindex() == ""


def test_what_the_old_model_embedded_right_before_the_swap_searches_the_old_space(
    library, settings, embedding_server
):
    used = spaces.get_space_in_use()
    store = ScopedStore([document.pk for document in library], space=used.space)
    vector = get_engine(used.config).embedder.embed_query("출장 여비 2조")
    before = [hit.passage.key for hit in store.find_similar(vector, 5)]
    embedding_server.widths["noise-16"] = 16
    run_reindex_command(model="noise-16", base_url=embedding_server.url, languages="*", force=True)
    assert [hit.passage.key for hit in store.find_similar(vector, 5)] == before


def test_search_goes_on_while_a_space_is_filled(library, settings, embedding_server, monkeypatch):
    configure(settings, embedding_server, "words-32")
    embed, found = renewal.indexing.embed_chunks, []

    def searched(titled, embedder):
        used = spaces.get_space_in_use()
        vector = get_engine(used.config).embedder.embed_query("출장 여비")
        store = ScopedStore([document.pk for document in library], space=used.space)
        found.append((used.space.model, len(store.find_similar(vector, 3))))
        return embed(titled, embedder)

    monkeypatch.setattr(renewal.indexing, "embed_chunks", searched)
    run_reindex_command()
    assert found[0] == ("words-16", 3)


def test_how_alike_unrelated_texts_are_is_measured(owner, embedding_server):
    for number in range(12):
        add(owner, f"{number}.md", TOPICS[number % 3 : number % 3 + 4])
    run_reindex_command(model="noise-32", base_url=embedding_server.url, languages="*", force=True)
    assert spaces.get_active_space().unrelated == pytest.approx(0.0, abs=0.1)
