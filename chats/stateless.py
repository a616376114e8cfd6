"""Answers that are stored nowhere: requests of the gateway without a chat, and its odd jobs."""

from typing import Any
from uuid import UUID


async def answer(run_id: UUID, request: dict[str, Any]) -> None:
    """Answer a request into the log of `run_id`, and nowhere else."""
    raise NotImplementedError
