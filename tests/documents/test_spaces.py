import pytest
from django.db import transaction

from documents import ingest, spaces
from documents.models import Document, EmbeddingSpace
from documents.search.store import ScopedStore
from nura import preparation
from nura.management.commands import doctor
from nura.management.commands.doctor import State
from rag.factory import get_engine
from tests.documents.changing import add, configure, write_text
from tests.documents.conftest import upload

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def first_model(settings, embedding_server, sent):
    configure(settings, embedding_server, "words-16")


def test_the_first_upload_makes_the_space_of_the_model_that_the_settings_name(owner):
    assert spaces.get_space_in_use().space is None
    add(owner, "규정.md")
    assert [(space.model, space.dimensions) for space in EmbeddingSpace.objects.all()] == [
        ("words-16", 16)
    ]


def test_a_question_before_the_first_upload_makes_no_space_and_finds_nothing(db):
    used = spaces.get_space_in_use()
    vector = get_engine(used.config).embedder.embed_query("연차")
    assert ScopedStore([], space=used.space).find_similar(vector, 3) == []
    assert not EmbeddingSpace.objects.exists()


def test_without_vectors_another_model_in_the_settings_takes_over_at_once(
    owner, settings, embedding_server
):
    document = add(owner, "규정.md")
    Document.objects.get(pk=document.pk).chunks.all().delete()
    configure(settings, embedding_server, "words-32")
    assert spaces.describe_pending_reindex() == ""
    add(owner, "지침.md")
    assert spaces.get_active_space().model == "words-32"


def test_with_vectors_another_model_in_the_settings_changes_nothing_and_is_told(
    owner, settings, embedding_server
):
    add(owner, "규정.md")
    configure(settings, embedding_server, "words-32")
    document = add(owner, "지침.md")
    assert "manage.py reindex" in spaces.describe_pending_reindex()
    used = spaces.get_space_in_use()
    assert (used.space.model, used.config.embedding_endpoint.model) == ("words-16", "words-16")
    vector = get_engine(used.config).embedder.embed_query("연차 휴가")
    hits = ScopedStore([document.pk], space=used.space).find_similar(vector, 3)
    assert len(hits) == 3
    assert "words-32" not in embedding_server.embedded


def test_the_doctor_and_the_start_name_the_command(owner, settings, embedding_server, caplog):
    add(owner, "규정.md")
    assert [finding.state for finding in doctor.check_embedding_space()] == [State.OK]
    configure(settings, embedding_server, "words-32")
    (finding,) = doctor.check_embedding_space()
    assert finding.state is State.WARN
    assert "manage.py reindex" in finding.detail
    preparation.report_changed_model()
    assert "manage.py reindex" in caplog.text


def test_a_width_that_changed_while_nothing_was_stored_makes_another_space(
    owner, settings, embedding_server
):
    document = add(owner, "규정.md")
    Document.objects.get(pk=document.pk).chunks.all().delete()
    embedding_server.widths["words-16"] = 24
    configure(settings, embedding_server, "words-16", languages=("ko", "en"))
    add(owner, "지침.md")
    assert spaces.get_active_space().dimensions == 24


def test_other_languages_in_the_settings_are_told(owner, settings, embedding_server):
    add(owner, "규정.md")
    configure(settings, embedding_server, "words-16", languages=("ko", "en"))
    assert "NURA_EMBEDDING_LANGUAGES" in spaces.describe_pending_reindex()


def test_the_key_of_the_settings_goes_to_their_address_only(settings, embedding_server):
    settings.EMBEDDING_OTHER_API_KEY = "another-key"
    here = spaces.build_config("words-8", embedding_server.url, frozenset())
    elsewhere = spaces.build_config("words-8", "http://127.0.0.1:9/v1", frozenset())
    assert here.embedding_endpoint.api_key == "key-of-the-settings"
    assert elsewhere.embedding_endpoint.api_key == "another-key"


def test_a_space_keeps_no_password_of_an_address(owner, settings, embedding_server):
    secret = embedding_server.url.replace("//", "//me:hunter2@")
    settings.RAG = spaces.replace(
        settings.RAG,
        embedding_endpoint=spaces.replace(settings.RAG.embedding_endpoint, base_url=secret),
    )
    add(owner, "규정.md")
    assert spaces.get_active_space().base_url == embedding_server.url


def test_the_old_model_is_still_reached_when_the_settings_name_one_in_the_workers(
    owner, settings, embedding_server
):
    add(owner, "규정.md")
    settings.RAG = spaces.replace(
        settings.RAG, embedding_endpoint=None, embedding_languages=frozenset()
    )
    used = spaces.get_space_in_use()
    assert used.config.embedding_endpoint.base_url == embedding_server.url
    assert len(get_engine(used.config).embedder.embed_query("연차")) == 16


def test_an_endpoint_that_changed_its_width_puts_no_vector_into_the_space(owner, embedding_server):
    add(owner, "규정.md")
    embedding_server.widths["words-16"] = 32
    late = upload(owner, name="지침.md", content=write_text(("명절 상여",)))
    ingest.ingest_next_document()
    late.refresh_from_db()
    assert late.status == "PROCESSING"  # waits for its second attempt
    assert late.chunks.count() == 0


def test_an_upload_embedded_during_a_swap_is_embedded_again_by_the_new_model(
    owner, settings, embedding_server, monkeypatch
):
    add(owner, "규정.md")
    configure(settings, embedding_server, "words-32")
    other = EmbeddingSpace.objects.create(
        model="words-32", dimensions=32, languages=["*"], base_url=embedding_server.url
    )
    replace, seen = ingest.index.replace_index, []

    def swapped_before(claim, draft, found, space, *beside):
        if not seen:
            EmbeddingSpace.objects.filter(active=True).update(active=False)
            EmbeddingSpace.objects.filter(pk=other.pk).update(active=True)
        seen.append(space.model)
        replace(claim, draft, found, space, *beside)

    monkeypatch.setattr(ingest.index, "replace_index", swapped_before)
    document = add(owner, "지침.md")
    assert seen == ["words-16", "words-32"]
    assert {chunk.embeddings.get().space_id for chunk in document.chunks.all()} == {other.pk}


def test_nobody_writes_into_a_space_that_is_not_in_use(owner):
    add(owner, "규정.md")
    other = EmbeddingSpace.objects.create(model="words-32", dimensions=32)
    with pytest.raises(spaces.SpaceChangedError), transaction.atomic():
        spaces.lock_active_space(other)
