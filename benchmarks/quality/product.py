"""The product's own search: sets as documents of one user in a Postgres of its own."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from benchmarks.local_models import with_local_models
from benchmarks.scale import stock
from rag import chunking
from rag.factory import Engine
from rag.types import Heading, Page, Scope, ScopeReason, StrategyName, TextChunk
from tests.quality.sets import QuestionSet, Unit

THREADS = 3
"""Two cores: one thread waits for Postgres while the others compute."""
FOUND = 5
FOUND_CHUNKS = 10
"""Of the product's own chunks several may lie in one unit."""
LEASE = timedelta(hours=1)
"""Each thread has the document that it made, and not the one whose turn it would be."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a question is searched. `filters` None: found in the question; empty: none."""

    name: str
    strategy: StrategyName = StrategyName.AUTO
    filters: Mapping[str, str] | None = None
    rerank: bool = True


@dataclass(slots=True)
class Indexed:
    """A set in the database: its documents, and the unit of each chunk."""

    documents: list[UUID] = field(default_factory=list)
    units: dict[tuple[UUID, int], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Library:
    """Indexed sets may be joined: the scope is all of their documents."""

    engine: Engine
    space: Any = None
    """The embedding space; None: the active one."""

    def add(self, made: QuestionSet, *, whole: bool = False) -> Indexed:
        """Ingest a set: one chunk a unit, or whole documents in the product's own chunks."""
        documents: dict[str, list[int]] = {}
        for place, unit in enumerate(made.units):
            documents.setdefault(unit.document, []).append(place)

        def ingest(item: tuple[int, list[int]]) -> tuple[UUID, list[int]]:
            number, places = item
            units = [made.units[place] for place in places]
            name = (units[0].title or f"{made.name} {number:05d}")[:200]
            metadata = made.metadata.get(units[0].document, {})
            pages, chunks, held = _cut(units) if whole else _one_each(units)
            return _write(self.engine, name, pages, chunks, metadata), [places[at] for at in held]

        added = Indexed()
        for key, held in in_threads(ingest, list(enumerate(documents.values()))):
            added.documents.append(key)
            added.units.update({(key, at): place for at, place in enumerate(held)})
        return added

    def search(
        self, question: str, scope: Sequence[UUID], way: Way, top_k: int = FOUND
    ) -> list[tuple[UUID, int]]:
        """Document and number of each chunk found, best first."""
        from documents.search.store import ScopedStore

        found = self.engine.search(
            question,
            Scope(tuple(scope), ScopeReason.ALL),
            ScopedStore(scope, space=self.space),
            strategy=way.strategy,
            filters=way.filters,
            rerank=way.rerank,
            top_k=top_k,
        )
        return [(hit.passage.document_id, hit.passage.index) for hit in found.hits]

    def rank(
        self,
        questions: Sequence[str],
        indexed: Indexed,
        way: Way,
        *,
        among: Sequence[UUID] = (),
        top_k: int = FOUND,
    ) -> list[list[int]]:
        """The units found for each question, each once; -1: a chunk of another set.

        `among` are the documents searched, if not the set's own alone.
        """
        scope = list(among) or indexed.documents

        def ask(question: str) -> list[int]:
            hits = self.search(question, scope, way, top_k)
            places = [indexed.units.get(hit, -1) for hit in hits]
            return [p for at, p in enumerate(places) if p < 0 or p not in places[:at]]

        return in_threads(ask, questions)


@contextlib.contextmanager
def running() -> Iterator[Library]:
    """A fresh database with the engine as the product runs it; both are gone afterwards."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="nura-quality-"))
        stack.enter_context(stock.postgres(Path(folder)))
        from django.conf import settings
        from django.contrib.auth.models import User
        from django.core.management import call_command
        from django.db import connection

        from documents import spaces
        from rag.factory import get_engine

        call_command("migrate", verbosity=0)
        with connection.cursor() as cursor:  # for connections yet to come: these rows may be lost
            cursor.execute("ALTER ROLE CURRENT_USER SET synchronous_commit = off")
        stock.close_connections()
        User.objects.create(username="bench")
        settings.RAG = with_local_models(settings.RAG)
        _space, config = spaces.get_space_for_writing()
        yield Library(get_engine(config))
        stock.close_connections()


def settle() -> None:
    """Statistics for the planner; what the product measures on its own after uploads."""
    from django.db import connection

    from documents import spaces

    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE)")
    spaces.measure_missing_unrelated()


def in_threads(work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """The work on every item, in order; each thread has its own connection."""
    from django.db import connection

    def done(part: Sequence[Any]) -> list[Any]:
        try:
            return [work(item) for item in part]
        finally:
            connection.close()

    with ThreadPoolExecutor(THREADS) as pool:
        size = max(1, len(items) // (THREADS * 8))
        parts = [items[at : at + size] for at in range(0, len(items), size)]
        return [result for part in pool.map(done, parts) for result in part]


def _one_each(units: Sequence[Unit]) -> tuple[list[Page], list[TextChunk], list[int]]:
    """One chunk a unit."""
    pages, starts = _page(units)
    chunks = [
        TextChunk(at, unit.text, start, start + len(unit.text), None, None, unit.section)
        for at, (unit, start) in enumerate(zip(units, starts, strict=True))
    ]
    return pages, chunks, list(range(len(units)))


def _cut(units: Sequence[Unit]) -> tuple[list[Page], list[TextChunk], list[int]]:
    """The product's own chunks of the document, and the unit that holds most of each."""
    pages, starts = _page(units)
    split = chunking.split_pages(pages, size=1000, overlap=200)
    spans = [(start, start + len(unit.text)) for unit, start in zip(units, starts, strict=True)]

    def most(chunk: TextChunk) -> int:
        shared = [min(chunk.end, end) - max(chunk.start, start) for start, end in spans]
        return shared.index(max(shared))

    return pages, split.chunks, [most(chunk) for chunk in split.chunks]


def _page(units: Sequence[Unit]) -> tuple[list[Page], list[int]]:
    """The units as the text of one page, their sections as its headings, and their offsets."""
    starts, headings, text = [], [], ""
    section = ""
    for unit in units:
        if unit.section != section:
            section = unit.section
            headings.append(Heading(len(text), 1, section))
        starts.append(len(text))
        text += unit.text + "\n\n"
    return [Page(None, text, tuple(headings))], starts


def _write(
    engine: Engine,
    title: str,
    pages: list[Page],
    chunks: Sequence[TextChunk],
    metadata: Mapping[str, str],
) -> UUID:
    from django.contrib.auth.models import User
    from django.db.models.functions import Now

    from documents import index, spaces
    from documents.models import Document
    from jobs.lease import Lease

    claim = Lease(Document, uuid4(), uuid4())
    key = claim.job_id
    document = Document.objects.create(
        pk=key,
        owner=User.objects.get(),
        name=f"{title}.md",
        original_name=f"{title}.md",
        file=f"documents/{key}/original.md",
        content_type="text/markdown",
        size=1,
        sha256="0" * 64,
        claim=claim.token,
        lease_until=Now() + LEASE,
    )
    indexed = engine.index_chunks(chunks, title, lambda _done, _total: None, len(chunks))
    space, _config = spaces.get_space_for_writing()
    with index.IndexDraft(document) as draft:
        for page in pages:
            draft.add_page(page, 0)
        draft.index(indexed, space)
        index.replace_index(claim, draft, index.IngestFindings(dict(metadata)), space)
    return key
