"""The messages for the model: what an answer may be made from, put in order.

First what stays the same from turn to turn, so that a server's prefix cache holds: constant
instructions, the summary, the conversation. What belongs to this question comes last: passages,
then the question. Nothing that a user or a document wrote stands in the system message; it stands
between marks, without power, or in a message of its own role.
"""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from rag import prompts
from rag.conversation import PastTurn, Persona
from rag.tokenize.text import neutralise_text, to_prompt_text
from rag.types import Evidence, HistoryMessage, Kind, Passage, Speaker, ToolResult

MAX_TITLE_CHARACTERS = 200
MAX_REMEMBERED_PASSAGES = 4096
"""Each is measured before it is chosen, and comes again with the next question; a few megabytes."""
MAX_TITLES = 8
"""Most documents of the last answer to name."""
_MARKER = re.compile(r"\[(\d{1,9})\]")
_WEEKDAYS = {"ko": "월화수목금토일", "en": ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")}
_KINDS = {
    Kind.TABLE: "kind_table",
    Kind.PICTURE: "kind_picture",
    Kind.RECOGNISED: "kind_recognised",
}
_FENCE_END = re.compile(r"\n{3,}")


@dataclass(frozen=True, slots=True)
class AnswerContext:
    """Everything that an answer may be made from.

    `standalone` says what the question means on its own where that is not how it was asked.
    `window` are the last messages, `summary` what was said before them, `recalled` older turns that
    bear on the question, oldest first, `seen` the titles of documents that the last answer showed.
    `notes` are what was noted of whole documents that do not fit, section by section.
    `notices` name prompts that say how the evidence was found. `searched`: documents were looked
    at. `profile` are lines of what is known of the user, of which the first `protected` must stay.
    `medical`: it is about health. `persona` is the assistant that is asked, `shape` the name of the
    prompt that says what shape the answer has. `tool_results` is what tools of other servers told.
    """

    question: str
    language: str
    today: date
    fence: str
    standalone: str = ""
    window: tuple[HistoryMessage, ...] = ()
    summary: str = ""
    recalled: tuple[PastTurn, ...] = ()
    findings: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    notes: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    searched: bool = False
    profile: tuple[str, ...] = ()
    protected: int = 0
    medical: bool = False
    persona: Persona | None = None
    shape: str = ""
    tool_results: tuple[ToolResult, ...] = ()

    @property
    def said_before(self) -> tuple[str, ...]:
        """The texts of the conversation that the model reads."""
        window = [message.content for message in self.window]
        turns = [f"{turn.user_text}\n{turn.assistant_text}" for turn in self.recalled]
        told = (*window, *turns, self.summary, *self.findings, *self.profile)
        return tuple(filter(None, told))

    @property
    def told_by_tools(self) -> tuple[str, ...]:
        """What tools gave, without calls that failed or wait for the user's word."""
        return tuple(one.text for one in self.tool_results if one.told)

    @property
    def wished(self) -> tuple[str, ...]:
        """What the assistant's owner wrote of it."""
        return (self.persona.name, self.persona.instructions) if self.persona else ()


def build_messages(context: AnswerContext) -> tuple[HistoryMessage, ...]:
    """The prompt: instructions, earlier conversation, recent messages, question."""
    fence = _choose_fence(context)
    return (
        HistoryMessage(Speaker.SYSTEM, render_system(context.language, fence)),
        *_render_earlier(context, fence),
        *(HistoryMessage(one.role, neutralise_text(one.content)) for one in context.window),
        HistoryMessage(Speaker.USER, _render_question(context, fence)),
    )


def render_system(language: str, fence: str) -> str:
    """The instructions; the same text for every question in one language."""
    return prompts.fill_prompt("system", language, fence=fence)


def render_passages(evidence: Sequence[Evidence], language: str) -> str:
    """The passages in order, each document under a line of its own."""
    lines: list[str] = []
    before: Evidence | None = None
    for item in evidence:
        if before is None or not is_same_document(before, item):
            lines.append(render_document(item.passage))
        lines.append(render_passage(item, language))
        before = item
    return "\n\n".join(lines)


def is_same_document(before: Evidence, item: Evidence) -> bool:
    """Whether a passage needs no new document line, being of the same document as the last."""
    return before.document_id == item.document_id and before.weak == item.weak


def render_passage(item: Evidence, language: str) -> str:
    """One passage below its head."""
    return f"{render_head(item, language)}\n{render_text(item)}"


def render_head(item: Evidence, language: str) -> str:
    """The line above a passage: its number, section, page and kind."""
    passage = item.passage
    page = prompts.fill_prompt("page", language, page=str(passage.page)) if passage.page else ""
    kind = prompts.load_prompt(_KINDS[passage.kind], language) if passage.kind in _KINDS else ""
    parts = (_strip_section(item), page, kind)
    place = neutralise_text(" · ".join(part[:MAX_TITLE_CHARACTERS] for part in parts if part))
    return f"[{item.number}] {place}".rstrip()


def render_text(item: Evidence) -> str:
    """The passage, one sentence per line, below its table header if it has one."""
    return _sanitise_passage(item.text, item.passage.header, item.passage.kind)


@functools.lru_cache(maxsize=MAX_REMEMBERED_PASSAGES)
def _sanitise_passage(text: str, header: str, kind: Kind) -> str:
    text = to_prompt_text(text, kind)
    return _sanitise_text(f"{header}\n{text}" if header else text)


def render_document(passage: Passage) -> str:
    """The line above a document's passages: title, issuer, date."""
    name = passage.title or passage.document_name
    parts = (name, passage.issuer, passage.date)
    return "# " + neutralise_text(" · ".join(part[:MAX_TITLE_CHARACTERS] for part in parts if part))


def _strip_section(item: Evidence) -> str:
    """The passage's section without its document's title and its own heading."""
    passage = item.passage
    parts = [part.strip() for part in passage.section.split(" > ")]
    if parts[0] == passage.title.strip():
        del parts[0]
    heading = item.text.lstrip().partition("\n")[0]
    if parts and heading.startswith("#") and heading.lstrip("#").strip() == parts[-1]:
        del parts[-1]
    return " > ".join(parts)


def count_characters(messages: Sequence[HistoryMessage], context: AnswerContext) -> dict[str, int]:
    """Characters by part, for traces."""
    return {
        "system": len(messages[0].content),
        "history": sum(len(message.content) for message in messages[1:-1]),
        "profile": sum(map(len, context.profile)),
        "evidence": sum(len(item.content) for item in context.evidence),
        "question": len(context.question),
        "total": sum(len(message.content) for message in messages),
    }


def _render_earlier(context: AnswerContext, fence: str) -> tuple[HistoryMessage, ...]:
    """The earlier conversation as a turn of its own, because servers expect alternating roles."""
    language = context.language
    blocks = []
    if context.persona and context.persona.instructions:
        blocks.append(_render_persona(context.persona, language, fence))
    if context.summary:
        blocks.append(
            _render_block("block_summary", language, fence, _sanitise_text(context.summary))
        )
    if context.recalled:
        told = "\n\n".join(_render_turn(turn, language) for turn in context.recalled)
        blocks.append(_render_block("block_recalled", language, fence, told))
    if not blocks:
        return ()
    return (
        HistoryMessage(Speaker.USER, "\n\n".join(blocks)),
        HistoryMessage(Speaker.ASSISTANT, prompts.load_prompt("noted", language)),
    )


def _render_persona(persona: Persona, language: str, fence: str) -> str:
    """What its owner wishes of an assistant, behind the instructions and below them."""
    return prompts.fill_prompt(
        "block_assistant",
        language,
        fence=fence,
        title=_sanitise_text(persona.name).replace("\n", " "),
        content=_FENCE_END.sub("\n\n", _sanitise_text(persona.instructions)),
    )


def _render_question(context: AnswerContext, fence: str) -> str:
    language = context.language
    blocks = [_render_today(context)]
    if context.profile:
        known = "\n".join(f"- {_sanitise_text(line)}" for line in context.profile)
        blocks.append(_render_block("block_profile", language, fence, known))
    if context.medical:
        blocks.append(prompts.load_prompt("medical", language))
    if context.seen:
        titles = "\n".join(_sanitise_title(title) for title in context.seen[:MAX_TITLES])
        blocks.append(_render_block("block_seen", language, fence, titles))
    for name, lines in (
        ("block_findings", [f"- {_sanitise_text(note)}" for note in context.findings]),
        ("block_tools", [_sanitise_text(one.text) for one in context.tool_results]),
        ("block_notes", context.notes),
    ):
        if lines:
            blocks.append(_render_block(name, language, fence, "\n".join(lines)))
    strong = [item for item in context.evidence if not item.weak]
    weak = [item for item in context.evidence if item.weak]
    for name, group in (("block_passages", strong), ("block_weak", weak)):
        if group:
            blocks.append(_render_block(name, language, fence, render_passages(group, language)))
    if context.searched and not context.evidence and not context.notes:
        blocks.append(prompts.load_prompt("nothing_found", language))
    told = [name.replace("notice_", "tell_", 1) for name in context.notices]
    told += [context.shape] if context.shape else []
    blocks += [prompts.load_prompt(name, language) for name in told]
    asked = prompts.fill_prompt("question", language, question=neutralise_text(context.question))
    if context.standalone:
        meaning = neutralise_text(context.standalone)
        asked += "\n" + prompts.fill_prompt("question_meaning", language, question=meaning)
    return "\n\n".join([*blocks, asked])


def _render_today(context: AnswerContext) -> str:
    day = context.today
    weekday = _WEEKDAYS["ko" if context.language == "ko" else "en"][day.weekday()]
    return prompts.fill_prompt("today", context.language, date=day.isoformat(), weekday=weekday)


def _render_turn(turn: PastTurn, language: str) -> str:
    return prompts.fill_prompt(
        "block_turn",
        language,
        question=_sanitise_text(turn.user_text),
        answer=_sanitise_text(turn.assistant_text),
    )


def _render_block(name: str, language: str, fence: str, content: str) -> str:
    return prompts.fill_prompt(name, language, fence=fence, content=_FENCE_END.sub("\n\n", content))


def _choose_fence(context: AnswerContext) -> str:
    """The installation's fence, or another one if a text contains it."""
    texts = (
        context.question,
        *context.said_before,
        *context.wished,
        *context.notes,
        *(one.text for one in context.tool_results),
        *(item.content + item.passage.document_name for item in context.evidence),
    )
    fence, tries = context.fence, 0
    while any(fence in text for text in texts):
        tries += 1
        fence = f"{context.fence}-{tries}"
    return f"=== {fence} ==="


def _sanitise_text(text: str) -> str:
    """Without power, and with no number that could be taken for one of this answer's passages."""
    return _MARKER.sub(r"(\1)", neutralise_text(text))


def _sanitise_title(title: str) -> str:
    return f"- {_sanitise_text(title)}".replace("\n", " ")[:MAX_TITLE_CHARACTERS]
