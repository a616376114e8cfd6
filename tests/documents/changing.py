"""Documents under one embedding model, and the change to another."""

from dataclasses import replace
from io import StringIO

from django.core.management import call_command

from documents import ingest
from documents.models import ChunkEmbedding, Document
from rag.config import Endpoint
from tests.documents.conftest import upload

TOPICS = ("연차 휴가", "출장 여비", "건강 검진", "재택 근무", "교육 훈련", "경조 휴가", "명절 상여")


def configure(settings, server, model, languages=("*",)):
    """What a person does who sets NURA_EMBEDDING_MODEL and the address."""
    endpoint = Endpoint(server.url, model, api_key="key-of-the-settings")
    settings.RAG = replace(
        settings.RAG, embedding_endpoint=endpoint, embedding_languages=frozenset(languages)
    )


def write_text(topics, sections=3):
    """A document with headings, each over a text of its own."""
    return "\n\n".join(
        _write_part(topic, part) for topic in topics for part in range(1, sections + 1)
    )


def _write_part(topic, part):
    person = topic.split()[0]
    return (
        f"# {topic} {part}조\n\n{topic} {part}조에 따른 절차는 {person} 담당자가 {part}일 안에 "
        f"정한다. {topic[::-1]} 신청서 {part}호를 쓴다. " + f"세부 사항 {part}. " * 40
    )


def add(owner, name, topics=TOPICS[:2]):
    """An ingested document."""
    document = upload(owner, name=name, content=f"{write_text(topics)}\n\n{name}\n")
    ingest.ingest_next_document()
    document.refresh_from_db()
    assert document.status == Document.Status.COMPLETED, document.error_code
    return document


def run_reindex_command(**options):
    """The command; what it printed."""
    out = StringIO()
    call_command("reindex", stdout=out, **options)
    return out.getvalue()


def list_embedded_keys(space):
    """Chunk keys with a vector in the space, each once."""
    keys = list(ChunkEmbedding.objects.filter(space=space).values_list("chunk_id", flat=True))
    assert len(keys) == len(set(keys))
    return set(keys)
