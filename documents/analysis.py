"""The chunks of a document are analysed in a thread while its next pages are read."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self

from rag.indexing import ChunkAnalyser
from rag.types import Chunk, IndexedChunk

BATCH = 64
"""Chunks that are analysed together: some tens of milliseconds."""
AHEAD = 2
"""Batches that may wait before whoever reads the pages has to."""


class Analysis:
    """Takes chunks as they come and gives them to `keep` in order, in the thread of its user.

    Used within a `with`; `finish` when all have come.
    """

    def __init__(self, keep: Callable[[IndexedChunk], None]) -> None:
        self._keep = keep
        self._analyser = ChunkAnalyser()
        self._batch: list[Chunk] = []
        self._working: deque[Future[list[IndexedChunk]]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="analysis")

    def add(self, chunks: Sequence[Chunk]) -> None:
        """The next chunks."""
        self._batch += chunks
        if len(self._batch) >= BATCH:
            self._begin()

    def finish(self) -> None:
        """Wait for all that is not analysed yet."""
        self._begin()
        while self._working:
            self._take()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._thread.shutdown(cancel_futures=True)

    def _begin(self) -> None:
        batch, self._batch = self._batch, []
        self._working.append(self._thread.submit(lambda: list(self._analyser.analysed(batch))))
        while len(self._working) > AHEAD or (self._working and self._working[0].done()):
            self._take()

    def _take(self) -> None:
        for analysed in self._working.popleft().result():
            self._keep(analysed)
