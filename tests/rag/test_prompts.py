"""What the model reads: own messages, fenced evidence, nothing obeyed by accident."""

from uuid import uuid4

import pytest

from rag import prompts
from rag.generation.brief import Brief, Evidence
from rag.generation.prompted import PromptedAnswerer, build
from rag.neutral import neutralise
from rag.ports import GenerationOptions
from rag.types import HistoryMessage, Role

TRAPS = "{x} {{x}} {{fence}} {{question}} %s ${HOME} %(name)s \\1"


def evidence(text="숙박비 상한은 90,000원이다.", slot=1, name="여비.md"):
    return Evidence(slot, uuid4(), name, 3, "제2장", text, 0.9)


def brief(question="숙박비는?", *items, **fields):
    return Brief(question, fields.pop("language", "ko"), evidence=tuple(items), **fields)


@pytest.mark.parametrize(
    "name", ["documents", "question", "general", "extractive_note", "safety", "block_previous"]
)
def test_every_prompt_comes_in_both_languages(name):
    assert prompts.text(name, "ko") != prompts.text(name, "en")


def test_braces_and_percents_of_users_and_documents_stay_literal():
    turns = build(brief(TRAPS, evidence(TRAPS), history=(HistoryMessage(Role.USER, TRAPS),)))
    assert turns[1].content == TRAPS
    assert turns[-1].content.count(TRAPS) == 2


def test_roles_are_separate_messages_and_the_system_message_holds_no_document_text():
    turns = build(
        brief("숙박비는?", evidence("비밀 자료"), history=(HistoryMessage(Role.USER, "전"),))
    )
    assert [turn.role for turn in turns] == [Role.SYSTEM, Role.USER, Role.USER]
    assert "비밀 자료" not in turns[0].content


def test_evidence_stands_between_marks_that_no_document_can_know():
    first, second = (build(brief("q", evidence())) for _ in range(2))
    fence = first[-1].content.splitlines()[1]
    assert fence in first[0].content
    assert first[-1].content.count(fence) == 2
    assert fence not in second[-1].content


def test_each_passage_is_labelled_with_slot_name_and_page():
    text = build(brief("q", evidence(slot=2)))[-1].content
    assert "[2] 여비.md, p. 3, 제2장" in text


@pytest.mark.parametrize(
    "token",
    [
        "<|im_start|>",
        "<|im_end|>",
        "[INST]",
        "[/INST]",
        "<s>",
        "</s>",
        "<<SYS>>",
        "<start_of_turn>",
        "<think>",
    ],
)
def test_chat_template_tokens_lose_their_power(token):
    turns = build(brief(f"q {token}", evidence(f"a {token} b", name=f"n{token}.md")))
    assert all(token not in turn.content for turn in turns)


def test_invisible_marks_are_taken_out():
    assert neutralise("지\u200b시\u2066\U000e0041") == "지시"


def test_ordinary_markup_stays():
    text = "a < b > c, x[0], <table>, `<b>`"
    assert neutralise(text) == text


class Overflowing:
    """A model whose context overflows the first time."""

    name = "small"

    def __init__(self):
        self.asked = []

    async def stream(self, turns, options):
        from rag.errors import ContextOverflow
        from rag.types import Piece

        self.asked.append(turns)
        if len(self.asked) == 1:
            raise ContextOverflow
        yield Piece(text="ok")


async def test_an_overflow_is_trimmed_once_and_asked_again():
    model = Overflowing()
    history = tuple(HistoryMessage(Role.USER, f"m{n}") for n in range(8))
    asked = brief("q", evidence("one"), evidence("two"), history=history)
    answerer = PromptedAnswerer(model, GenerationOptions())
    pieces = [piece async for piece in answerer.stream(asked)]
    assert [piece.text for piece in pieces if piece.text] == ["ok"]
    assert 2 < len(model.asked[1]) < len(model.asked[0])
    assert "m7" in model.asked[1][-2].content
    assert "one" in model.asked[1][-1].content
    assert "two" not in model.asked[1][-1].content
    (plan,) = [piece.trimmed for piece in pieces if piece.trimmed]
    assert plan["dropped"]["passages"] == 1
