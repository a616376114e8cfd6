"""Which documents a question sees."""

from uuid import uuid4

from rag.retrieve.scope import select_scope as select
from rag.types import ScopeReason

A, B, C = uuid4(), uuid4(), uuid4()


def test_explicit_documents_come_before_the_chats_and_before_all():
    assert select([A], [B], [A, B, C]).document_ids == (A,)
    assert select(None, [B], [A, B, C]).reason is ScopeReason.CHAT
    assert select(None, [], [A, B, C]).document_ids == (A, B, C)


def test_an_explicit_list_that_turns_out_empty_never_widens():
    scope = select([], [B], [A, B, C])
    assert (scope.document_ids, scope.reason) == ((), ScopeReason.EXPLICIT)


def test_a_chat_whose_documents_are_gone_never_widens():
    scope = select(None, [], [A], chat_named=True)
    assert (scope.document_ids, scope.reason) == ((), ScopeReason.CHAT)


def test_an_id_named_twice_counts_once():
    assert select([A, A, B], [], []).document_ids == (A, B)
