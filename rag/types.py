"""What travels between the steps of a question: frozen values, no behaviour beyond reading them.

First what stands on the pages of a document, as parsed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from uuid import UUID


class Kind(StrEnum):
    """What a stretch of a document is."""

    TEXT = "text"
    TABLE = "table"
    LIST = "list"
    CODE = "code"
    PICTURE = "picture"
    """What a vision model read in a picture of the page."""
    RECOGNISED = "recognised"
    """What text recognition (OCR) read on a page without text of its own."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle on a page, in fractions of the page as shown; origin at the top left."""

    page: int
    x0: float
    y0: float
    x1: float
    y1: float


@dataclass(frozen=True, slots=True)
class Line:
    """Where a line of a page's text stands, in page fractions.

    `edges[i]`..`edges[i + 1]` spans character `start + i`.
    `start`/`end` are offsets in the page's text; `len(edges) == end - start + 1`.
    """

    start: int
    end: int
    y0: float
    y1: float
    edges: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a page, from offset `start` of its text to the next of its level or above."""

    start: int
    level: int
    title: str


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of a page's text that is more than plain text; regions do not overlap.

    `header_end` is where the header rows of a table end, 0 where it has none. `box` is where a
    picture stands on the page; all other text has its `Line`s.
    """

    start: int
    end: int
    kind: Kind
    header_end: int = 0
    box: Box | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A page as parsed. `number` counts from 1; None where the format has no pages.

    `margins` are its running header and footer, which are no part of `text`.
    """

    number: int | None
    text: str
    headings: tuple[Heading, ...] = ()
    lines: tuple[Line, ...] = ()
    regions: tuple[Region, ...] = ()
    margins: tuple[str, ...] = ()


_FILE_ENDING = re.compile(r"\.[A-Za-z0-9]{1,5}$")


class Speaker(StrEnum):
    """Who speaks in a prompt or a chat."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class QuestionType(StrEnum):
    """What kind of question it is; it decides the retrieval plan."""

    SINGLE = "single"
    MULTI = "multi"
    COMPARE = "compare"
    FOLLOWUP = "followup"
    RESET = "reset"
    SMALLTALK = "smalltalk"


class Intent(StrEnum):
    """How a question is to be answered: what shape its answer has, and how it is searched for.

    `QuestionType` says what a question is about and whether it follows; this says what is done with
    what is found.
    """

    LOOKUP = "lookup"
    COMPARE = "compare"
    SUMMARY = "summary"
    PROCEDURE = "procedure"
    TABLE = "table"


class ScopeReason(StrEnum):
    """Why these documents and no others."""

    EXPLICIT = "explicit"
    CHAT = "chat"
    ALL = "all"
    FOLLOWUP = "followup"
    SLOT = "slot"


class AnswerMode(StrEnum):
    """How an answer came about."""

    DOCUMENTS = "documents"
    GENERAL = "general"
    CLARIFY = "clarify"
    DOCUMENT = "document"


class AnswerLabel(StrEnum):
    """What an answer rests on; the one thing that people are told of it.

    DOCUMENTS: what it says is cited and holds. PARTIAL: some of it. INSUFFICIENT: documents were
    asked, and do not say. GENERAL: a model's own knowledge. CONVERSATION: earlier turns.
    PASSAGES: found passages, without a model. TOOLS: what tools of other servers told.
    """

    DOCUMENTS = "documents"
    PARTIAL = "partial"
    INSUFFICIENT = "insufficient"
    GENERAL = "general"
    CONVERSATION = "conversation"
    PASSAGES = "passages"
    TOOLS = "tools"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came of the call of a tool, as the prompt tells it; `succeeded`: it gave an answer."""

    text: str
    succeeded: bool = True


class Topic(StrEnum):
    """What the user says of a question's bond to the conversation; AUTO leaves it to the engine.

    SAME stays within the remembered documents, WIDER follows up over the whole scope, NEW begins
    anew. ALL searches the whole scope too, but whether the question follows is left to the engine.
    """

    AUTO = "auto"
    ALL = "all"
    SAME = "same"
    WIDER = "wider"
    NEW = "new"


class StrategyName(StrEnum):
    """Names of the retrieval strategies; AUTO leaves the choice to the plan."""

    AUTO = "auto"
    SIMILARITY = "similarity"
    MMR = "mmr"
    BM25 = "bm25"
    RRF = "rrf"


@dataclass(frozen=True, slots=True)
class Scope:
    """The documents that a question may read, and why."""

    document_ids: tuple[UUID, ...]
    reason: ScopeReason


@dataclass(frozen=True, slots=True)
class HistoryMessage:
    """One earlier message of the chat, as the model may see it."""

    role: Speaker
    content: str


@dataclass(frozen=True, slots=True)
class TextChunk:
    """A stretch of a document, cut for indexing. `text == document_text[start:end]`.

    `page`/`page_end` count from 1, None where the format has no pages. `section` is the heading
    path ("A > B"). `header` are the header rows of the table that the stretch goes on with: read
    before `text`, but no part of it.
    """

    index: int
    text: str
    start: int
    end: int
    page: int | None
    page_end: int | None
    section: str
    boxes: tuple[Box, ...] = ()
    kind: Kind = Kind.TEXT
    header: str = ""

    @property
    def content(self) -> str:
        """What is read of it: its text below the header of its table."""
        return _add_header(self.header, self.text)


@dataclass(frozen=True, slots=True)
class IndexedChunk:
    """A chunk with its lexical terms and their counts, and its vector (None: not embedded).

    `emphasis` holds what terms of its title, section, table header and first words weigh beside
    their counts; it may name terms that the text does not hold.
    """

    chunk: TextChunk
    terms: Mapping[str, int]
    vector: tuple[float, ...] | None
    emphasis: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk as retrieved, of the `version` of its document. `key` is the store's own id.

    `text == document_text[start:end]`. `title`, `issuer` and `date` are the document's own, as far
    as its metadata tells them.
    """

    key: int
    document_id: UUID
    document_name: str
    index: int
    text: str
    page: int | None
    page_end: int | None
    section: str
    boxes: tuple[Box, ...] = ()
    kind: Kind = Kind.TEXT
    header: str = ""
    version: int = 1
    start: int = 0
    end: int = 0
    title: str = ""
    issuer: str = ""
    date: str = ""

    @property
    def chunk_id(self) -> str:
        """The public id of the chunk."""
        return f"{self.document_id}_{self.index}"

    @property
    def name(self) -> str:
        """The name of its document's file without the ending."""
        return _FILE_ENDING.sub("", self.document_name)

    @property
    def content(self) -> str:
        """What is read of it: its text below the header of its table.

        Offsets, boxes and previews are of `text` alone.
        """
        return _add_header(self.header, self.text)


def _add_header(header: str, text: str) -> str:
    return f"{header}\n{text}" if header else text


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage with the score that ordered it and the scores of every leg that saw it."""

    passage: Passage
    score: float
    scores: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A passage as it stands in the prompt.

    `number` counts passages from 1 in the order shown; a model cites by it. `slot` counts their
    documents. `text` is what is read of the passage's own text, from offset `start` of the
    document on: all of it, or what an earlier passage has not said already. `relevance` is 0..1;
    `weak` says that the passage may not bear on the question.
    """

    number: int
    slot: int
    passage: Passage
    text: str
    start: int
    relevance: float
    weak: bool = False

    @property
    def content(self) -> str:
        """The text below the header of its table."""
        return _add_header(self.passage.header, self.text)

    @property
    def document_id(self) -> UUID:
        """The passage's document."""
        return self.passage.document_id


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a document, `text == document_text[start:end]`, and where it is printed."""

    start: int
    end: int
    text: str
    page: int | None = None
    boxes: tuple[Box, ...] = ()


@dataclass(frozen=True, slots=True)
class Citation:
    """A place in an answer that cites a passage.

    `offset` is that of its marker in the answer's characters as shown, `number` the passage's
    `Evidence.number`. `spans` are the places, among the spans of that passage, of those that bear
    what is said there; empty before that was checked.
    """

    offset: int
    number: int
    spans: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CitedPassage:
    """A citation as a reader follows it: the marker at `offset` stands for the passage `chunk_id`.

    `spans` are places in the `AnswerSource.spans` of that passage.
    """

    offset: int
    slot: int
    chunk_id: str
    spans: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NamedDocument:
    """A document that carries a name; `field` is its metadata key, `value` the name as written."""

    field: str
    value: str
    name: str
    document_id: UUID


@dataclass(frozen=True, slots=True)
class Gate:
    """Whether the documents hold something on the question; `score` is 0..1."""

    score: float
    threshold: float

    @property
    def relevant(self) -> bool:
        """True when the documents should answer."""
        return self.score >= self.threshold


@dataclass(frozen=True, slots=True)
class Plan:
    """How a question is searched."""

    question_type: QuestionType
    strategy: StrategyName
    top_k: int
    needs_multi_doc: bool
    standalone_query: str
    scope: Scope
    depth: int = 0
    """Passages wanted in all where that is more than `top_k`: as many as a prompt may hold."""
    filters: Mapping[str, str] = field(default_factory=dict)
    follows: bool = False
    """Bound to the conversation: the remembered documents come first."""
    context: Mapping[str, float] = field(default_factory=dict)
    """Lexical terms of the conversation and what they weigh beside the question's own."""
    search_terms: Mapping[str, float] = field(default_factory=dict)
    """Lexical terms that documents may have for what is asked, each below 1."""
    own_words: str = ""
    """What is embedded of a question that was completed; empty: `standalone_query`."""
    completed: str = ""
    """The question as it stands alone, for who reads it closely; empty: `standalone_query`."""
    background: str = ""
    """What was said before, embedded beside the question."""
    background_weight: float = 0.0


@dataclass(frozen=True, slots=True)
class Retrieval:
    """What a search found.

    Hits best first (at most `max(plan.top_k, plan.depth)`), the gate's verdict, and time per step
    in ms.
    `dropped_filters` were found in the question and left out again, because they left nothing.
    `plan.scope` is the one that was searched in the end.
    """

    plan: Plan
    hits: tuple[Hit, ...]
    gate: Gate
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    dropped_filters: Mapping[str, str] = field(default_factory=dict)
    named_documents: tuple[UUID, ...] = ()
    """The documents that the question names, where it was searched within those."""
    whole: bool = False
    """It asks for whole documents: the hits are their beginnings."""
    widened: bool = False
    """A follow-up that was found clearly better outside of the remembered documents."""
    error_code: str = ""
    """Code of what went wrong on the way, such as "embedder_failed": only words were searched."""


@dataclass(frozen=True, slots=True)
class AnswerSource:
    """One passage shown: `slot` counts documents from 1 as shown, `similarity` is 0..1.

    `version` is that of the document it was drawn from. `spans` are the sentences that the answer
    rests on, `text` the whole passage as it stood then, below the header of its table: both
    outlive the document. `start` and `end` are the passage's offsets in the document's text.
    """

    slot: int
    document_id: UUID
    document_name: str
    chunk_id: str
    page: int | None
    similarity: float
    content_preview: str
    section: str
    cited: bool
    boxes: tuple[Box, ...]
    version: int = 1
    spans: tuple[Span, ...] = ()
    text: str = ""
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A stretch of a document's text from offset `start`; `total` characters in all."""

    text: str
    start: int
    total: int


class Verdict(StrEnum):
    """What the evidence says of a sentence; PLAIN claims nothing that could be checked."""

    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class CheckedSentence:
    """A sentence of an answer: `start`..`end` in its characters (code points), markers included.

    `slots` are those that it cites. `reasons` say what spoke against it: "number", "name", "date",
    "negation", "overlap".
    """

    start: int
    end: int
    verdict: Verdict
    slots: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()
