"""Asks the vision model for several pictures at the same time, beside the reading of a document."""

import asyncio
import threading
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from documents.parsers.base import Picture
from rag.ports import Vision

AT_ONCE = 4
"""Pictures of one document that the model is asked for together."""


class Describer:
    """An event loop in a thread of its own for one document; leaving the `with` ends all calls."""

    def __init__(self, vision: Vision) -> None:
        self.model = vision.name
        self._vision = vision
        self._loop = asyncio.new_event_loop()
        self._room = asyncio.Semaphore(AT_ONCE)
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="describer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def describe(self, picture: Picture, language: str) -> "Future[str]":
        """What the model will say; it may end in an `LLMError`."""
        return asyncio.run_coroutine_threadsafe(self._asked(picture, language), self._loop)

    async def _asked(self, picture: Picture, language: str) -> str:
        async with self._room:
            return await self._vision.describe(picture.data, picture.content_type, language)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:  # cancels what is left
            runner.run(self._over.wait())
