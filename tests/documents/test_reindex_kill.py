"""A real process at work on a change is killed with SIGKILL, and the next one ends whole."""

import os
import signal
import subprocess
import sys
import textwrap

import pytest
from django.db import IntegrityError, connection

from documents import reindex, spaces
from documents.models import Chunk, EmbeddingSpace, Reindexing
from tests.documents.changing import configure, list_embedded_keys, run_reindex_command
from tests.support import ROOT, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("library")]

PROCESS = textwrap.dedent(
    """
    import sys
    import django
    from django.conf import settings
    settings.DATABASES["default"]["NAME"] = sys.argv[1]
    django.setup()
    from dataclasses import replace
    from datetime import timedelta
    from django.core.management import call_command
    from documents.models import Reindexing
    from documents import reindex, renewal
    from jobs.lease import Heartbeat
    from rag.config import Endpoint
    url = sys.argv[2]
    settings.RAG = replace(settings.RAG, embedding_endpoint=Endpoint(url, "words-16"))
    Reindexing.LEASE = timedelta(seconds=1.5)
    reindex.HEARTBEAT = Heartbeat(Reindexing, seconds=0.3)
    renewal.MAX_CHUNKS_A_BATCH = 4
    forward = renewal.swap_forward
    def told(*args, **options):
        if "stop-before-swap" in sys.argv:
            print("swapping", flush=True)
            import threading; threading.Event().wait()
        return forward(*args, **options)
    renewal.swap_forward = told
    call_command("reindex", model="words-32", base_url=url, languages="*")
    """
)


def start(server, *words):
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "nura.settings.test"}
    name = str(connection.settings_dict["NAME"])
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS, name, server.url, *words],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.communicate()


def wait_for_lease():
    wait_until(lambda: not Reindexing.objects.filter(lease_until__gte=reindex.Now()).exists())


@pytest.mark.parametrize("requests", [2, 4])
def test_a_run_killed_midway_is_ended_by_the_next_with_each_chunk_embedded_once(
    embedding_server, requests
):
    embedding_server.hold_after(requests)
    process = start(embedding_server)
    assert embedding_server.held.wait(60)
    kill(process)
    space = EmbeddingSpace.objects.get(model="words-32")
    kept = list_embedded_keys(space)
    assert len(kept) == 4 * (requests - 1)  # the first request told the width
    assert spaces.get_active_space().model == "words-16"
    embedding_server.release()
    wait_for_lease()
    text = run_reindex_command(model="words-32", base_url=embedding_server.url, languages="*")
    assert "in use" in text
    assert list_embedded_keys(space) == set(Chunk.objects.values_list("pk", flat=True))
    assert count_embedded_passages(embedding_server) == Chunk.objects.count()
    assert Reindexing.objects.count() == 1


def count_embedded_passages(server):
    """How many chunks the new model embedded in all; questions do not count."""
    ends = tuple(Chunk.objects.values_list("text", flat=True))
    counted = server.embedded["words-32"]
    return sum(count for text, count in counted.items() if text.endswith(ends))


def test_a_run_killed_right_before_the_swap_swaps_the_next_time(embedding_server):
    process = start(embedding_server, "stop-before-swap")
    for line in process.stdout:
        if "swapping" in line:
            break
    kill(process)
    assert spaces.get_active_space().model == "words-16"
    wait_for_lease()
    run_reindex_command(model="words-32", base_url=embedding_server.url, languages="*")
    assert spaces.get_active_space().model == "words-32"
    assert count_embedded_passages(embedding_server) == Chunk.objects.count()


def test_an_index_that_was_interrupted_is_made_again(embedding_server, settings):
    configure(settings, embedding_server, "words-32")
    space = spaces.ensure_space(
        spaces.get_engine(settings.RAG).embedder, base_url=embedding_server.url
    )
    with connection.cursor() as cursor, pytest.raises(IntegrityError):
        # what a killed CREATE INDEX CONCURRENTLY leaves: a name that is taken and serves nobody
        cursor.execute(
            f"CREATE UNIQUE INDEX CONCURRENTLY {spaces.to_index_name(space)}"
            " ON documents_chunkembedding ((1))"
        )
    assert spaces._is_index_valid(space) is False
    run_reindex_command()
    assert spaces._is_index_valid(spaces.get_active_space()) is True


def test_a_build_that_is_cut_off_leaves_an_index_that_the_next_one_repairs(
    embedding_server, settings
):
    configure(settings, embedding_server, "words-32")
    space = spaces.ensure_space(
        spaces.get_engine(settings.RAG).embedder, base_url=embedding_server.url
    )
    with connection.cursor() as cursor:
        # a value of another width in the column makes the build fail after its first phase
        cursor.execute(
            "INSERT INTO documents_chunkembedding (chunk_id, space_id, document_id, vector)"
            " SELECT id, %s, document_id, '[1,2]'::halfvec FROM documents_chunk LIMIT 1",
            (space.pk,),
        )
    with pytest.raises(Exception, match="dimensions"):
        spaces.build_index(space)
    assert spaces._is_index_valid(space) is False
    space.embeddings.all().delete()
    spaces.build_index(space)
    assert spaces._is_index_valid(space) is True
