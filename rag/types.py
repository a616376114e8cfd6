"""The values passed between the steps of a question: frozen, with read-only properties.

Those of a parsed document's pages come first.
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
    """A vision model's description of a picture on the page."""
    RECOGNISED = "recognised"
    """Text recognised (OCR) on a page without a text layer."""


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
    """The position of a line of a page's text, in page fractions.

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

    `header_end` is where the header rows of a table end, 0 if it has none. `box` is the position of
    a picture on the page; all other text has its `Line`s.
    """

    start: int
    end: int
    kind: Kind
    header_end: int = 0
    box: Box | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A page as parsed. `number` counts from 1; None if the format has no pages.

    `margins` are its running header and footer, which are not part of `text`.
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
    """The kind of a question; it decides the retrieval plan."""

    SINGLE = "single"
    MULTI = "multi"
    COMPARE = "compare"
    FOLLOWUP = "followup"
    RESET = "reset"
    SMALLTALK = "smalltalk"


class Intent(StrEnum):
    """The form of the answer that a question asks for, which also decides how it is searched for.

    `QuestionType` says what a question is about and whether it is a follow-up; this says what to do
    with the documents found.
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
    """What an answer rests on, as shown to people.

    DOCUMENTS: the cited documents support all of it. PARTIAL: they support some of it.
    INSUFFICIENT: the documents that were searched have no answer. GENERAL: a model's own knowledge.
    CONVERSATION: earlier turns. PASSAGES: passages, without a model. TOOLS: results of other
    servers' tools.
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
    """The result of a tool call as the prompt gives it; `succeeded`: the tool answered."""

    text: str
    succeeded: bool = True


class Topic(StrEnum):
    """The user's choice of how a question relates to the conversation; AUTO lets the engine decide.

    SAME stays within the remembered documents, WIDER follows up on the whole scope, NEW starts
    over. ALL also searches the whole scope, but the engine decides whether it is a follow-up.
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

    `page`/`page_end` count from 1, None if the format has no pages. `section` is the heading path
    ("A > B"). `header` are the header rows of the table that the stretch continues: read before
    `text`, but not part of it.
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
        """Its text below the header of its table."""
        return _add_header(self.header, self.text)


@dataclass(frozen=True, slots=True)
class IndexedChunk:
    """A chunk with its lexical terms and their counts, and its vector (None: not embedded).

    `emphasis` are extra weights, on top of the counts, of terms in its title, section, table header
    and first words; it may include terms that the text does not contain.
    """

    chunk: TextChunk
    terms: Mapping[str, int]
    vector: tuple[float, ...] | None
    emphasis: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk as retrieved, of the `version` of its document. `key` is the store's own id.

    `text == document_text[start:end]`. `title`, `issuer` and `date` are the document's, if its
    metadata has them.
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
        """Its text below the header of its table.

        Offsets, boxes and previews refer to `text` alone.
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
    """A passage as the prompt gives it.

    `number` counts passages from 1 in the order shown, and a model cites by it. `slot` counts their
    documents. `text` is the passage's text from offset `start` of the document: all of it, or
    without what an earlier passage includes already. `relevance` is 0..1; `weak`: it may not be
    relevant to the question.
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
    `Evidence.number`. `spans` are the indices, among the spans of that passage, of those that
    support the sentence; empty until it has been checked.
    """

    offset: int
    number: int
    spans: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CitedPassage:
    """A citation as a reader follows it: the marker at `offset` stands for the passage `chunk_id`.

    `spans` are indices into the `AnswerSource.spans` of that passage.
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
    """Whether the documents have anything on the question; `score` is 0..1."""

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
    """Passages wanted in all if more than `top_k`: as many as a prompt has room for."""
    filters: Mapping[str, str] = field(default_factory=dict)
    follows: bool = False
    """It is a follow-up: the remembered documents come first."""
    context: Mapping[str, float] = field(default_factory=dict)
    """Lexical terms of the conversation with their weights, added to the question's own."""
    search_terms: Mapping[str, float] = field(default_factory=dict)
    """Other terms that documents may use for what is asked, with weights below 1."""
    own_words: str = ""
    """The words to embed of a completed question; empty: `standalone_query`."""
    completed: str = ""
    """The standalone question, for models that read it closely; empty: `standalone_query`."""
    background: str = ""
    """Earlier words, embedded in addition to the question."""
    background_weight: float = 0.0


@dataclass(frozen=True, slots=True)
class Retrieval:
    """The result of a search.

    Hits best first (at most `max(plan.top_k, plan.depth)`), the gate's verdict, and time per step
    in ms. `dropped_filters` were found in the question but dropped, because nothing matched them.
    `plan.scope` is the one that was finally searched.
    """

    plan: Plan
    hits: tuple[Hit, ...]
    gate: Gate
    timings_ms: Mapping[str, float] = field(default_factory=dict)
    dropped_filters: Mapping[str, str] = field(default_factory=dict)
    named_documents: tuple[UUID, ...] = ()
    """The documents that the question names, if only those were searched."""
    whole: bool = False
    """The question is about whole documents: the hits are their beginnings."""
    widened: bool = False
    """A follow-up with clearly better hits outside the remembered documents."""
    error_code: str = ""
    """Code of a partial failure, such as "embedder_failed": only terms were searched."""


@dataclass(frozen=True, slots=True)
class AnswerSource:
    """One passage shown: `slot` counts documents from 1 as shown, `similarity` is 0..1.

    `version` is that of its document at the time. `spans` are the sentences that the answer rests
    on and `text` is the whole passage as it was then, below the header of its table: both outlive
    the document. `start` and `end` are the passage's offsets in the document's text.
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
    """Whether the evidence supports a sentence; PLAIN: it claims nothing that could be checked."""

    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"
    PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class CheckedSentence:
    """A sentence of an answer: `start`..`end` in its characters (code points), markers included.

    `slots` are those that it cites. `reasons` are those to doubt it: "number", "name", "date",
    "negation", "overlap".
    """

    start: int
    end: int
    verdict: Verdict
    slots: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()
