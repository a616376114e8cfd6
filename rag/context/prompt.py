"""Builds the messages for the model.

What stays the same from turn to turn comes first, so that the server can reuse its cached prefix:
constant instructions, the summary, the conversation. What belongs to this question comes last: the
passages, then the question. Text by users or from documents never goes into the system message; it
is neutralised and fenced, or in a message of its own role.
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
MAX_CACHED_PASSAGES = 4096
"""Size of the cache of prepared passages, which the next question reuses; a few megabytes."""
MAX_TITLES = 8
"""Maximum number of documents of the last answer to name."""
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
    """Everything that goes into the prompt of an answer.

    `standalone` is the question as it stands alone, if that differs from its wording. `window` are
    the last messages, `summary` sums up what came before them, `recalled_turns` are older turns
    relevant to the question, oldest first. `last_titles` are the documents that the last answer
    showed. `notes` were taken while reading whole documents that do not fit. `notices` name prompts
    that say how the evidence was found. `was_searched`: documents were searched. `profile` lines
    describe the user; the first `protected_count` are never dropped. `is_medical`: it is about
    health.
    `persona` is the assistant asked, `shape` names the prompt for the form of the answer, and
    `tool_results` come from tools on other servers.
    """

    question: str
    language: str
    today: date
    fence: str
    standalone: str = ""
    window: tuple[HistoryMessage, ...] = ()
    summary: str = ""
    recalled_turns: tuple[PastTurn, ...] = ()
    findings: tuple[str, ...] = ()
    last_titles: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    notes: tuple[str, ...] = ()
    notices: tuple[str, ...] = ()
    was_searched: bool = False
    profile: tuple[str, ...] = ()
    protected_count: int = 0
    is_medical: bool = False
    persona: Persona | None = None
    shape: str = ""
    tool_results: tuple[ToolResult, ...] = ()

    @property
    def conversation_texts(self) -> tuple[str, ...]:
        """The texts of the conversation in the prompt."""
        window = [message.content for message in self.window]
        turns = [f"{turn.user_text}\n{turn.assistant_text}" for turn in self.recalled_turns]
        texts = (*window, *turns, self.summary, *self.findings, *self.profile)
        return tuple(filter(None, texts))

    @property
    def tool_texts(self) -> tuple[str, ...]:
        """Results of tools, without calls that failed or await confirmation."""
        return tuple(result.text for result in self.tool_results if result.succeeded)

    @property
    def persona_texts(self) -> tuple[str, ...]:
        """Name and instructions of the assistant."""
        return (self.persona.name, self.persona.instructions) if self.persona else ()


def build_messages(context: AnswerContext) -> tuple[HistoryMessage, ...]:
    """The prompt: instructions, earlier conversation, recent messages, question."""
    fence = _choose_fence(context)
    return (
        HistoryMessage(Speaker.SYSTEM, render_system(context.language, fence)),
        *_render_earlier(context, fence),
        *(
            HistoryMessage(message.role, neutralise_text(message.content))
            for message in context.window
        ),
        HistoryMessage(Speaker.USER, _render_question(context, fence)),
    )


def render_system(language: str, fence: str) -> str:
    """The instructions; the same text for every question in one language."""
    return prompts.fill_prompt("system", language, fence=fence)


def render_passages(evidence: Sequence[Evidence], language: str) -> str:
    """The passages in order, under a line for each document."""
    lines: list[str] = []
    previous: Evidence | None = None
    for item in evidence:
        if previous is None or not is_same_document(previous, item):
            lines.append(render_document(item.passage))
        lines.append(render_passage(item, language))
        previous = item
    return "\n\n".join(lines)


def is_same_document(previous: Evidence, item: Evidence) -> bool:
    """Whether two passages share a document line."""
    return previous.document_id == item.document_id and previous.weak == item.weak


def render_passage(item: Evidence, language: str) -> str:
    """A passage with its head."""
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


@functools.lru_cache(maxsize=MAX_CACHED_PASSAGES)
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
    if context.recalled_turns:
        turns = "\n\n".join(_render_turn(turn, language) for turn in context.recalled_turns)
        blocks.append(_render_block("block_recalled", language, fence, turns))
    if not blocks:
        return ()
    return (
        HistoryMessage(Speaker.USER, "\n\n".join(blocks)),
        HistoryMessage(Speaker.ASSISTANT, prompts.load_prompt("noted", language)),
    )


def _render_persona(persona: Persona, language: str, fence: str) -> str:
    """The instructions of an assistant, which come after ours and do not outrank them."""
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
        profile_lines = "\n".join(f"- {_sanitise_text(line)}" for line in context.profile)
        blocks.append(_render_block("block_profile", language, fence, profile_lines))
    if context.is_medical:
        blocks.append(prompts.load_prompt("medical", language))
    if context.last_titles:
        titles = "\n".join(_sanitise_title(title) for title in context.last_titles[:MAX_TITLES])
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
    if context.was_searched and not context.evidence and not context.notes:
        blocks.append(prompts.load_prompt("nothing_found", language))
    names = [name.replace("notice_", "tell_", 1) for name in context.notices]
    names += [context.shape] if context.shape else []
    blocks += [prompts.load_prompt(name, language) for name in names]
    question = prompts.fill_prompt("question", language, question=neutralise_text(context.question))
    if context.standalone:
        meaning = neutralise_text(context.standalone)
        question += "\n" + prompts.fill_prompt("question_meaning", language, question=meaning)
    return "\n\n".join([*blocks, question])


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
        *context.conversation_texts,
        *context.persona_texts,
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
    """The text neutralised, without numbers that look like citations of this answer's passages."""
    return _MARKER.sub(r"(\1)", neutralise_text(text))


def _sanitise_title(title: str) -> str:
    return f"- {_sanitise_text(title)}".replace("\n", " ")[:MAX_TITLE_CHARACTERS]
