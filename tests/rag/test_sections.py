"""Whole documents that do not fit into a prompt are read part by part."""

import re

import pytest

from rag.adapters.light import Light
from rag.config import ContextRules, RagConfig
from rag.context.tokens import EstimatingCounter
from rag.errors import ContextOverflow, LLMServerError
from rag.events import PARTS_UNREAD, StepBegan
from rag.generate.llm import MAX_PARTS, SectionReader
from rag.ports import Piece
from rag.types import AnswerMode, ScopeReason
from tests.rag.passages import make_evidence
from tests.rag.worlds import Library, ScriptedLLM, find_finished, join_text, make_engine

PART = "제{n}장은 여비의 {n}번째 절차를 정한다. " + "세부 절차를 차례로 적는다. " * 40


def make_reader(*pieces):
    llm = ScriptedLLM(*pieces)
    return SectionReader(Light(llm), "ko", "f00d"), llm


def make_portions(count, each=2):
    return [
        [make_evidence(f"{part}-{at} 내용", number=part * each + at + 1) for at in range(each)]
        for part in range(count)
    ]


async def read(made, parts):
    return [number async for number in made.read("요약해줘", parts)]


async def test_points_are_noted_with_the_passages_that_they_rest_on():
    made, llm = make_reader(
        Piece("- 상한은 90,000원이다 [2]\n없음\n출처 없는 말\n정산은 14일 안에 [1][9]")
    )
    assert await read(made, make_portions(1)) == [1]
    assert [(note.text, note.numbers) for note in made.notes] == [
        ("- 상한은 90,000원이다 [2]", (2,)),
        ("- 정산은 14일 안에 [1]", (1,)),
    ]
    assert "0-0 내용" in llm.last


async def test_a_part_that_cannot_be_read_is_left_out_and_counted():
    made, _ = make_reader(LLMServerError())
    assert await read(made, make_portions(2)) == [1, 2]
    assert (made.notes, made.unread) == ([], 2)


async def test_of_too_many_notes_each_part_keeps_its_first_ones():
    made, _ = make_reader(*(Piece(f"- 조항 {n} [1][2][3][4]\n") for n in range(3)))
    await read(made, make_portions(2))
    assert [(note.part, note.text[:6]) for note in made.notes] == [
        (part, f"- 조항 {n}") for part in range(2) for n in range(3)
    ]
    size = EstimatingCounter().count(made.notes[0].text) + 1
    kept = made.fit_notes(size * 3, EstimatingCounter())
    assert [(note.part, note.text[:6]) for note in kept] == [
        (0, "- 조항 0"),
        (0, "- 조항 1"),
        (1, "- 조항 0"),
    ]


async def test_notes_leave_room_in_the_prompt_and_it_is_said_that_some_were_left_out():
    lines = "".join(
        f"- {n}번째로 적어 둔 긴 메모의 내용이다 {'절차 ' * 30}[{n}]\n" for n in range(1, 60)
    )
    llm = ScriptedLLM(Piece(lines), Piece(finish_reason="stop"))
    config = RagConfig(context=ContextRules(tokens=2000))
    made = Library(make_engine(llm=llm, config=config))
    made.add("편람.md", *(PART.format(n=number) for number in range(1, 20)))
    end = find_finished(await made.ask("이 문서 요약해줘", reason=ScopeReason.EXPLICIT))
    assert sum(EstimatingCounter().count(one.content) for one in llm.asked[-1]) <= 2000
    assert PARTS_UNREAD in end.notices


@pytest.mark.parametrize("count", [MAX_PARTS, MAX_PARTS + 1, 100])
async def test_of_many_parts_evenly_many_are_read_with_the_first_and_the_last(count):
    made, llm = make_reader(Piece("없음"))
    told = await read(made, make_portions(count, each=1))
    assert len(llm.asked) == len(told) == MAX_PARTS
    assert (told[0], told[-1]) == (1, count)
    assert made.unread == count - MAX_PARTS


async def test_a_summary_of_a_long_document_reads_all_of_it_and_says_how_far_it_is():
    llm = ScriptedLLM(Piece("- 여비의 절차를 정한다 [3]"), Piece(finish_reason="stop"))
    config = RagConfig(context=ContextRules(tokens=2000))
    made = Library(make_engine(llm=llm, config=config))
    made.add("편람.md", *(PART.format(n=number) for number in range(1, 9)))
    events = await made.ask("이 문서 요약해줘", reason=ScopeReason.EXPLICIT)
    told = [
        event.detail for event in events if isinstance(event, StepBegan) and event.step == "read"
    ]
    parts = told[0]["parts"]
    assert [detail["part"] for detail in told] == [*range(1, parts + 1)]
    assert parts > 1
    assert "[문서를 차례로 읽고 적은 메모]" in llm.last
    assert all(
        f"제{number}장은" in "".join(m.content for asked in llm.asked for m in asked)
        for number in range(1, 9)
    )
    end = find_finished(events)
    assert end.mode is AnswerMode.DOCUMENTS
    assert [source.cited for source in end.sources].count(True) == 1
    assert "여비의 절차를 정한다" in join_text(events)


@pytest.mark.parametrize(("chapters", "notices"), [(12, ()), (80, (PARTS_UNREAD,))])
async def test_that_not_every_part_was_read_is_told_at_the_end(chapters, notices):
    config = RagConfig(context=ContextRules(tokens=2000))
    made = Library(make_engine(llm=ScriptedLLM(Piece("- 여비의 절차를 정한다 [3]")), config=config))
    made.add("편람.md", *(PART.format(n=number) for number in range(chapters)))
    end = find_finished(await made.ask("이 문서 요약해줘", reason=ScopeReason.EXPLICIT))
    assert end.trace["evidence"]["parts"] > 1
    assert end.notices == notices


class OverflowsOnce(ScriptedLLM):
    """Notes every passage, finds its first prompt too long, then cites a passage of each fate."""

    shown = frozenset()
    cited: dict[str, int]

    async def stream(self, turns, options):
        """Notes of a part, or the answer."""
        prompt = turns[-1].content
        if "[문서를 차례로 읽고 적은 메모]" not in prompt:
            yield Piece("\n".join(f"- {number}번째 절차 [{number}]" for number in range(1, 31)))
            return
        left = {int(number) for number in re.findall(r"^\[(\d+)\]", prompt, re.MULTILINE)}
        if not self.shown:
            self.shown = left
            raise ContextOverflow
        noted = min(set(range(1, 31)) - self.shown)
        self.cited = {"left": min(left), "trimmed": min(self.shown - left), "noted": noted}
        yield Piece(" ".join(f"{n}번째 절차를 정한다 [{n}]." for n in self.cited.values()))


async def test_after_a_trim_only_what_is_left_and_what_was_noted_can_be_cited():
    llm = OverflowsOnce()
    made = Library(make_engine(llm=llm, config=RagConfig(context=ContextRules(tokens=3000))))
    made.add("편람.md", *(PART.format(n=number) for number in range(1, 31)))
    end = find_finished(await made.ask("이 문서 요약해줘", reason=ScopeReason.EXPLICIT))
    cited = {int(source.chunk_id.rpartition("_")[2]) + 1 for source in end.sources if source.cited}
    assert cited == {llm.cited["left"], llm.cited["noted"]}
