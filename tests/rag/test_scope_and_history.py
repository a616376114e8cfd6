"""Which documents and which messages a question sees."""

from uuid import uuid4

from rag.history.window import window
from rag.selection import select
from rag.types import HistoryMessage, Role, ScopeReason

A, B, C = uuid4(), uuid4(), uuid4()


def talk(pairs):
    return [
        HistoryMessage(role, f"{role.value} {n}")
        for n in range(pairs)
        for role in (Role.USER, Role.ASSISTANT)
    ]


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


def test_the_window_holds_the_last_pairs_oldest_first():
    kept = window(talk(12), pairs=10, characters=500)
    assert len(kept) == 20
    assert (kept[0].content, kept[-1].content) == ("user 2", "assistant 11")


def test_a_question_without_an_answer_counts_as_a_pair():
    messages = [*talk(2), HistoryMessage(Role.USER, "unanswered")]
    kept = window(messages, pairs=2, characters=500)
    assert [m.content for m in kept] == ["user 1", "assistant 1", "unanswered"]


def test_long_messages_are_cut_and_system_messages_left_out():
    messages = [HistoryMessage(Role.SYSTEM, "s"), HistoryMessage(Role.USER, "가" * 900)]
    (only,) = window(messages, pairs=3, characters=500)
    assert len(only.content) == 500


def test_no_pairs_means_no_history():
    assert window(talk(3), pairs=0, characters=500) == ()
