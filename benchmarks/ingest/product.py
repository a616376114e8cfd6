"""The product's own ingest, in this process, on a Postgres of its own."""

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.local_models import local_embedder
from benchmarks.scale import stock
from tests.support import copy_prepared_folder


class Unembedded:
    """In place of the embedder: it knows no language, so that no chunk is embedded."""

    name = "none"
    dimensions = 384
    languages: frozenset[str] = frozenset()

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0] + [0.0] * (self.dimensions - 1) for _ in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_passages([text])[0]


class Timed:
    """The product's own model, taken for one that knows every language; `seconds` were its own."""

    def __init__(self) -> None:
        self._model = local_embedder(frozenset({"*"}))
        self.name, self.languages = self._model.name, self._model.languages
        self.dimensions = self._model.dimensions
        self.seconds = 0.0

    def embed_passages(self, texts: Sequence[str]) -> list[list[float]]:
        begun = time.perf_counter()
        vectors = self._model.embed_passages(texts)
        self.seconds += time.perf_counter() - begun
        return vectors

    def embed_query(self, text: str) -> list[float]:
        return self._model.embed_query(text)


@contextlib.contextmanager
def running(embedder: Any) -> Iterator[Any]:
    """A migrated database and a user; ingests embed with `embedder`."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="nura-ingest-"))
        copy_prepared_folder(Path(folder))
        stack.enter_context(stock.postgres(Path(folder)))
        from django.conf import settings
        from django.contrib.auth.models import User
        from django.core.management import call_command

        from documents import ingest, notices, queue, spaces
        from rag.factory import Engine

        call_command("migrate", verbosity=0)
        engine = Engine(settings.RAG, embedder=embedder)
        # `patch` says so where a name is gone.
        for module in (ingest, spaces):
            stack.enter_context(patch.object(module, "get_engine", lambda _config: engine))
        # No Redis here: who is told and who is sent is not what is measured.
        stack.enter_context(patch.object(notices, "send_notices"))
        stack.enter_context(patch.object(queue, "_send"))
        yield User.objects.create(username="bench")
        stock.close_connections()


@contextlib.contextmanager
def unrecognised() -> Iterator[None]:
    """Pages that are pictures stay without text: no text recognition, which the rival has not."""
    from django.conf import settings

    limits = settings.READING_LIMITS
    settings.READING_LIMITS = replace(limits, recognised_pages=0)
    try:
        yield
    finally:
        settings.READING_LIMITS = limits


def ingested(owner: Any, path: Path) -> float:
    """Seconds from the upload of a file until it can be searched."""
    from django.core.files import File

    from documents import ingest, services
    from documents.models import Document

    Document.objects.all().delete()
    with path.open("rb") as file:
        begun = time.perf_counter()
        document, _new = services.upload_document(owner=owner, name=path.name, content=File(file))
        assert ingest.ingest_next_document()
        took = time.perf_counter() - begun
    document.refresh_from_db()
    assert document.status == Document.Status.COMPLETED, document.error_code
    return took
