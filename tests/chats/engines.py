"""Engines that say what a test tells them to, at the port where the real one is plugged in."""

import asyncio

from rag.events import Delta, Finished, SourcesFound, StepBegan
from rag.types import AnswerMode, AnswerSource, QuestionType


def make_source(slot=1, document_id=None):
    import uuid

    document_id = document_id or uuid.uuid4()
    return AnswerSource(
        slot=slot,
        document_id=document_id,
        document_name="규정.md",
        chunk_id=f"{document_id}_0",
        page=3,
        similarity=0.9,
        content_preview="본문",
        section="제1장",
        cited=True,
        boxes=(),
    )


def make_finished(mode=AnswerMode.GENERAL, sources=None):
    return Finished(mode, QuestionType.SINGLE, sources, None, {"timings_ms": {}})


class ScriptedEngine:
    """Plays a list: events are yielded, exceptions raised, callables awaited."""

    def __init__(self, *script):
        self.script = script
        self.questions = []
        self.histories = []
        self.closed = asyncio.Event()

    async def answer(self, question, store, history=None):
        self.questions.append(question)
        self.histories.append(history)
        try:
            for item in self.script:
                if isinstance(item, Exception):
                    raise item
                if callable(item):
                    await item()
                else:
                    yield item
        finally:
            self.closed.set()


__all__ = ["Delta", "ScriptedEngine", "SourcesFound", "StepBegan", "make_finished", "make_source"]
