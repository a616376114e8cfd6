"""The models process: it alone holds torch, and its death costs no document."""

from pathlib import Path

import psutil
import psycopg
import pytest

from nura.embedded import models
from tests.support import get_part_name, wait_until

pytestmark = [pytest.mark.product, pytest.mark.timeout(600)]

LIBRARIES = ("libtorch", "site-packages/torch/", "sentence_transformers")
PARAGRAPHS = 60


def make_english_file(number, paragraphs=PARAGRAPHS):
    """A file in the language of the embedded model, a chunk for every paragraph."""
    lines = (
        f"Station {number}.{n} measures the level of the river every {n + 5} minutes. " * 8
        for n in range(paragraphs)
    )
    return f"river-{number}.txt", "\n\n".join(lines).encode()


def count_vectors(product, document):
    query = """
        SELECT count(*), count(e.vector) FROM documents_chunk c
          LEFT JOIN documents_chunkembedding e ON e.chunk_id = c.id WHERE c.document_id = %s
    """
    with psycopg.connect(**product.database) as connection:
        return connection.execute(query, [document["id"]]).fetchone()


def test_a_models_process_killed_in_the_middle_of_an_ingest_loses_nothing(product, client):
    document = client.upload(*make_english_file(1))
    path = f"/documents/{document['id']}"
    socket = str(product.data_dir / "run" / "models.sock")
    wait_until(lambda: (models.read_health(socket) or {}).get("waiting"), 120)
    product.find_process("models").kill()
    wait_until(lambda: "models was ended by SIGKILL" in product.log)
    wait_until(lambda: client.call("GET", path)[1]["status"] == "COMPLETED", 300, step=0.5)
    chunks, embedded = count_vectors(product, document)
    assert chunks == embedded > 20


def test_after_uploads_and_questions_it_alone_holds_torch(product, client):
    document = client.upload(*make_english_file(2, 3))
    path = f"/documents/{document['id']}"
    wait_until(lambda: client.call("GET", path)[1]["status"] == "COMPLETED", 300, step=0.5)
    wish = {"query": "How often does the station measure the river?"}
    status, found = client.call("POST", "/search", wish)
    assert status == 200
    assert any("similarity" in hit["scores"] for hit in found["hits"])
    holders = set()
    for process in product.processes():
        try:
            maps = Path(f"/proc/{process.pid}/maps").read_text()
        except (OSError, psutil.Error):
            continue
        if any(library in maps for library in LIBRARIES):
            holders.add(get_part_name(process))
    assert holders == {"models"}
