"""Citation markers in a streamed answer: models cite passages, readers see slots of documents.

A marker without a passage never reaches the reader.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rag.types import Citation, Evidence

MAX_CODE_CHARACTERS = 400
"""Characters within which code between backticks must end; otherwise they are plain characters."""
MAX_RANGE_PASSAGES = 50
"""Passages in a range such as "[1-9]"."""

_GAP = r"[ \t\u200b-\u200d\u2060\ufeff]{0,3}"
_WORDS = "출처|문서|자료|발췌문|발췌|근거|source|document|doc|excerpt|reference|ref|citation"
_LABEL = rf"(?:(?:{_WORDS}){_GAP}[:#]?{_GAP}|#)?"
_BETWEEN = rf"{_GAP}(?:[,;/·、，~∼–—-]|and|및)?{_GAP}"
_NUMBERS = rf"\d{{1,4}}(?:{_BETWEEN}\d{{1,4}}){{0,11}}"
_FOOTNOTE_SIGN = r"(?:†[^\]】\n]{0,30})?"
_MARKER = re.compile(
    r"(?P<space>[ \t]{0,40})(?P<two>\\?[\[【［〔](?=\\?[\[【［〔]))?\\?[\[【［〔]"
    rf"{_GAP}{_LABEL}{_GAP}(?P<numbers>{_NUMBERS}){_GAP}{_FOOTNOTE_SIGN}"
    r"\\?[\]】］〕](?(two)\\?[\]】］〕])",
    re.IGNORECASE,
)
_LETTERS = r"[\d\s\u200b-\u200d\u2060\ufeff,;/·、，~∼–—#:a-z가-힣-]{0,64}"
_MARKER_START = re.compile(
    rf"[ \t]{{0,40}}(?:\\?[\[【［〔]?){{1,2}}(?:(?<=[\[【［〔]){_LETTERS}{_FOOTNOTE_SIGN}\\?)?\Z"
    rf"|[ \t]{{0,40}}(?:\\?[\[【［〔]){{2}}{_LETTERS}{_FOOTNOTE_SIGN}\\?[\]】］〕]\\?\Z",
    re.IGNORECASE,
)
_OPEN_BRACKET = re.compile(rf"[\[【［〔]{_LETTERS}\Z", re.IGNORECASE)
_MARKER_SEPARATOR = re.compile(r"[ \t]{0,3}[,;·、，]")
"""Separates two markers that belong together: "[1], [2]"."""
_NUMBER_OR_RANGE = re.compile(r"(\d+)(?:\s*[~∼–—-]\s*(\d+))?")
_PLAIN_TEXT = re.compile(r"[^\s\[【［〔\\`]+|\n|[\[【［〔\\]|\s")
_SPECIAL = re.compile(r"[\[【［〔\\`~]|\s\Z")
"""May begin a marker or code; a blank at the end may belong to a marker."""
_LINK_DEFINITION = re.compile(r"(?:^|\n) {0,3}(?:\[\d+\])+\Z")
"""Markers at the beginning of a line, which a colon would make a link definition."""
_BLANKS = re.compile(r"[ \t]+(?=[ \t]{40})")
_TICKS = re.compile(r"`+")
_FENCE = re.compile(r"( {0,3})(`{3,40}(?=[^`\n]*\n)|~{3,40}(?=[^~\n]*\n))[^\n]*\n")
_FENCE_START = re.compile(r" {0,3}(?:`{0,2}|~{0,2}|`{3,40}[^`\n]{0,200}|~{3,40}[^~\n]{0,200})\Z")
_MAX_BEFORE_CHARACTERS = 80


@dataclass(slots=True)
class CitationFilter:
    """A streaming filter: feed pieces, pass on what is returned, flush at the end.

    The input cites passages by `Evidence.number`; the output shows the slot of each, and
    `citations` are the passages cited, with offsets in the output. Numbers without a passage are
    dropped, and adjacent markers of the same slot become one.

    Code (between backticks) is unchanged, and so is "[^1]", a footnote of the answer itself.
    "[1, 2]", "[1-2]" and "【1】【2】" become "[1][2]". A marker never becomes a link: a blank is
    inserted before a bracket that follows it. The output does not depend on how the text is cut
    into pieces.
    """

    evidence: Sequence[Evidence]
    _slots: dict[int, int] = field(init=False)
    _citations: list[Citation] = field(default_factory=list)
    _pending: str = ""
    _fence: str = ""
    _last_output: str = "\n"
    _length: int = 0
    _last_slots: dict[int, int] = field(default_factory=dict)
    """Slots of the latest markers in the output, with their offsets; empty after other text."""

    def __post_init__(self) -> None:
        self._slots = {item.number: item.slot for item in self.evidence}

    @property
    def citations(self) -> tuple[Citation, ...]:
        """The citations so far, each once, in the order of the output."""
        return tuple(dict.fromkeys(self._citations))

    def feed(self, text: str) -> str:
        """Add text and return what may be shown; the start of a possible marker is held back."""
        if not (self._pending or self._fence or self._last_slots or _SPECIAL.search(text)):
            self._record_output(text)
            return text  # most tokens of an answer
        self._pending += text
        return "".join(self._release_ready(final=False))

    def flush(self) -> str:
        """Return the rest at the end of the stream."""
        return "".join(self._release_ready(final=True))

    def _release_ready(self, *, final: bool) -> Iterator[str]:
        text, position = self._pending, 0
        while position < len(text):
            consumed = self._consume_next(text, position, final=final)
            if consumed is None:
                break
            position, output = consumed
            if output:
                self._record_output(output)
                yield output
        self._pending = text[position:]

    def _record_output(self, output: str) -> None:
        self._last_output = (self._last_output + output)[-_MAX_BEFORE_CHARACTERS:]
        self._length += len(output)

    def _consume_next(self, text: str, position: int, *, final: bool) -> tuple[int, str] | None:
        """The end of the next part and its output; None if more text is needed to decide."""
        if self._fence:
            return self._consume_fence_line(text, position, final=final)
        is_line_start = self._last_output.endswith("\n")
        if is_line_start and (match := _FENCE.match(text, position)):
            self._fence = match[2]
            return match.end(), match[0]
        separator = _MARKER_SEPARATOR.match(text, position) if self._last_slots else None
        marker_start = separator.end() if separator else position
        may_go_on = _MARKER_START.match(text, marker_start) or (
            is_line_start and _FENCE_START.match(text, position)
        )
        if may_go_on and not final:
            return None
        if text[position] == "`":
            return self._consume_code(text, position, final=final)
        if match := _MARKER.match(text, marker_start):
            return match.end(), self._rewrite_marker(match, separator[0] if separator else "")
        return self._consume_plain(text, position)

    def _consume_plain(self, text: str, position: int) -> tuple[int, str]:
        match = _BLANKS.match(text, position) or _PLAIN_TEXT.match(text, position)
        output = match[0] if match else text[position]
        end = position + len(output)
        if self._last_slots and (
            output[0] in "([" or (output[0] == ":" and _LINK_DEFINITION.search(self._last_output))
        ):
            output = f" {output}"
        self._last_slots = {}
        return end, output

    def _consume_fence_line(
        self, text: str, position: int, *, final: bool
    ) -> tuple[int, str] | None:
        """A line of a code block, unchanged; the closing line ends the block."""
        end = text.find("\n", position) + 1
        line = text[position : end or len(text)]
        mark = line.strip()
        if self._last_output.endswith("\n") and not mark.strip(self._fence[0]):
            if not end and not final:
                return None  # it may be the closing line
            if len(mark) >= len(self._fence):
                self._fence = ""
        self._last_slots = {}
        return position + len(line), line

    def _consume_code(self, text: str, position: int, *, final: bool) -> tuple[int, str] | None:
        """Code up to as many backticks as it began with; the backticks alone if there are none."""
        ticks = _TICKS.match(text, position)
        opened = min(ticks.end() if ticks else position + 1, position + MAX_CODE_CHARACTERS)
        if opened == position + MAX_CODE_CHARACTERS:
            return opened, text[position:opened]
        if opened == len(text) and not final:
            return None
        line = text.find("\n", opened)
        limit = min(opened + MAX_CODE_CHARACTERS, line if line >= 0 else len(text))
        for match in _TICKS.finditer(text, opened, limit):
            if match.end() == len(text) and not final:
                return None
            if len(match[0]) == opened - position:
                self._last_slots = {}
                return match.end(), text[position : match.end()]
        if limit == len(text) and not final:
            return None
        self._last_slots = {}
        return opened, text[position:opened]

    def _rewrite_marker(self, match: re.Match[str], separator: str) -> str:
        numbers = list(dict.fromkeys(_parse_numbers(match["numbers"])))
        if not separator and self._is_subscript(match, numbers):
            return match[0]
        output = ""
        for number in numbers:
            slot = self._slots.get(number)
            if slot is None:
                continue
            if slot not in self._last_slots:
                output = output or separator + match["space"]
                self._last_slots[slot] = self._length + len(output)
                output += f"[{slot}]"
            self._citations.append(Citation(self._last_slots[slot], number))
        if output or any(number in self._slots for number in numbers):
            return output
        # if it were dropped within other brackets, the rest of these could become a marker
        return f"{separator}({match['numbers']})" if _OPEN_BRACKET.search(self._last_output) else ""

    def _is_subscript(self, match: re.Match[str], numbers: list[int]) -> bool:
        """Whether it is an index such as `items[0]` outside code: no passage has the number 0."""
        before = self._last_output[-1]
        attached = not match["space"] and before.isascii() and (before.isalnum() or before in "_)]")
        return attached and numbers == [0]


def _parse_numbers(text: str) -> Iterator[int]:
    """The numbers of a marker; ranges are expanded."""
    for match in _NUMBER_OR_RANGE.finditer(text):
        first, last = int(match[1]), int(match[2] or match[1])
        if first <= last <= first + MAX_RANGE_PASSAGES:
            yield from range(first, last + 1)
        else:
            yield from (first, last)


def to_numbered(text: str, citations: Sequence[Citation]) -> str:
    """The text with the numbers of passages instead of slots in its markers, for a model."""
    parts: list[str] = []
    position = 0
    numbers_by_offset: dict[int, list[int]] = {}
    for citation in citations:
        numbers_by_offset.setdefault(citation.offset, []).append(citation.number)
    for offset, numbers in sorted(numbers_by_offset.items()):
        end = text.find("]", offset) + 1 or len(text)
        parts += [text[position:offset], *(f"[{number}]" for number in numbers)]
        position = end
    return "".join([*parts, text[position:]])
