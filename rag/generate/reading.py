"""Reads evidence as units that can be quoted: headings, sentences, list items and table rows.

A unit keeps its position in the document, its heading, what introduces it, and its columns.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import groupby, zip_longest

from rag.lexicon import load_rules, load_words
from rag.tokenize.text import split_sentences, track_code_fences
from rag.types import Evidence

MIN_FULL_SHARE = 0.6
"""A line of at least this share of the text's width was broken at the margin."""
MIN_WIDE_CHARACTERS = 32
"""Characters below which the width of a line means nothing."""
MAX_TEXT_CHARACTERS, MAX_UNIT_CHARACTERS = 60_000, 3_000
"""Of a stretch, and of one of its sentences, headings and cells; the rest is not read."""
MAX_BRACKET_CHARACTERS = 600
"""Text in longer brackets is split into sentences."""
MAX_CELLS = 64
"""Of a row."""
MAX_NEARBY_UNITS = 8
"""Units before a unit, and after it, that count as near."""
MAX_CAPTION_CHARACTERS = 80
"""Length of a line that names a table."""
MAX_DEPTH = 4
"""Nesting depth of list items."""


class UnitKind(Enum):
    """What a unit is."""

    HEADING = "heading"
    SENTENCE = "sentence"
    ROW = "row"


@dataclass(frozen=True, slots=True)
class Unit:
    """The smallest part that can be quoted: `text` as displayed, `start:end` in the source text.

    `mark` precedes an item ("①", "1.", "-"). `heading` and `lead` are indexes of other units: the
    heading above (for a heading: its parent), and the unit that introduces an item, if any. `block`
    is the same for the sentences of a paragraph or item, and for the rows of a table. The `cells`
    of a row are under `columns`; an empty first cell gets the text of the one above, as if merged.
    """

    kind: UnitKind
    text: str
    start: int
    end: int
    block: int
    heading: int | None = None
    lead: int | None = None
    mark: str = ""
    cells: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()

    @property
    def is_bare_date(self) -> bool:
        """Whether its text is a date or a period and says nothing of it."""
        return bool(_BARE_DATE.fullmatch(self.text))

    @property
    def announces_list(self) -> bool:
        """Whether its text introduces a list."""
        return bool(_LIST_ANNOUNCEMENT.search(self.text))


_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?:.*\n)*?---[ \t]*(?:\n|\Z)")
_OPEN_FRONT_MATTER = re.compile(
    r"\A---[ \t]*\n(?:(?:[^\s:#-][^:\n]*:(?:[ \t].*)?|[ \t]+\S.*|- .*)(?:\n|\Z)){8,}\Z"
)
"""Front matter so long that a passage contains only its beginning: keys, values and items."""
_HEADINGS = (
    re.compile(r"[ \t]{0,3}#{1,6}[ \t]+(?=\S)(?P<name>.*[^\s#])[\s#]*$"),
    re.compile(
        r"[ \t]*[<\[【][ \t]*(?P<name>[^<>\[\]【】]{2,60}?)[ \t]*(?:(?<=[ \t])>|\]|】)[ \t]*$"
    ),
    re.compile(r"[ \t]*(?P<name>제\d+조(?:의\d+)?[ \t]?\([^()\n]{1,60}\)|부[ \t]?칙\b.{0,40}$)"),
)
"""Markdown headings, names in brackets, and names of articles, which text may follow."""
_NUMBERED_NAME = re.compile(
    r"[ \t]*(?P<name>(?P<number>\d{1,2}(?:\.\d{1,2})*)\.?[ \t]+[^\W\d][^|]{0,58}?)[ \t]*$"
)
_SUBSECTION_NUMBER = re.compile(r"\d{1,2}\.\d")
_STATEMENT_END = re.compile(r"[.!?。？！…:：;,]$|[다요까함됨음]$")
"""Ends a line that makes a statement and is no name."""
_UNIT_LINE = re.compile(r"\W*(?:단위|units?)\b", re.IGNORECASE)
"""Gives the unit of a table's figures."""
_ITEM_MARK = re.compile(
    r"[ \t]*(?:>[ \t]?)*(?:\*\*)?(?:"
    r"(?P<circle>[①-⑳])(?:\*\*)?|(?P<bullet>[-*+•·∙‣○◦●▪■□◆◇▶▷❍❖➢ㅇ※])(?=[ \t])|"
    r"(?P<number>\(?\d{1,3}(?:의\d+)?\\?[.)])(?=[ \t])|(?P<letter>\(?[가-하]\\?[.)])(?=[ \t])|"
    r"(?P<latin>\(?[a-z]\\?[.)])(?=[ \t])"
    r")[ \t]*"
)
_ROW = re.compile(r"[ \t]*\|.*\|[ \t]*$")
_RULE = re.compile(r"[\s|:]*-[\s|:\-]*$")
_CELL_SEPARATOR = re.compile(r"(?<!\\)\|")
_SENTENCE_STOP = re.compile(r"[.!?。？！…:：;][\"'”’」』)\]]*$")
_CUT_VERB = re.compile(r"\s*\n\s*(?=다\.)")
"""Within a paragraph, where "있다." was broken at the margin."""
_LIST_ANNOUNCEMENT = re.compile(
    r"[:：]\W*$|다음\s?(?:각\s?(?:호|목)|과\s?같|의|사항|항목)|아래(?:와\s?같|의)|"
    r"\bfollowing\b|\bas follows\b",
    re.IGNORECASE,
)
_OPEN_BRACKET = re.compile(r"\([^()]*$")
"""An open bracket, within which no sentence ends."""
_NO_LETTERS = re.compile(r"[\W\d_]*")
"""Matches text without letters: page numbers and rules."""
_DATE = re.compile(r"\d{2,4}\s?[./-]\s?\d{1,2}\s?[./-]\s?\d{1,2}(?!\d)")
_CALENDAR = "|".join(sorted(load_words("calendar.en"), key=len, reverse=True))
_BARE_DATE = re.compile(
    rf"[\W\d_]*(?:(?:년|월|일|시|분|부터|까지|오전|오후|현재|기준|[월화수목금토일]요일|"
    rf"(?<=\()[월화수목금토일](?=\))|(?<![a-z])(?:{_CALENDAR}|st|nd|rd|th|am|pm|to|from|until|at|of)"
    r"(?![a-z]))[\W\d_]*)*",
    re.IGNORECASE,
)
"""Matches a date or a period with nothing else: "2026. 3. 2.(월)부터"."""
_AMENDMENT_NOTE = re.compile(
    r"\s*(?:<(?:개정|신설|시행|본조|전문|타법)[^<>]*>|\[(?:본조|전문|제목)[^\[\]]*\]$)"
)
_EMPHASIS = re.compile(r"(\*\*|__|(?<![\w*])\*)(?=\S)(.+?)(?<=\S)\1(?![A-Za-z\d*])")
_LINK = re.compile(r"!?\[([^\[\]\n]{0,300})\]\((?:[^()\n]|\([^()\n]{0,300}\)){0,2000}\)")
_TAG = re.compile(
    r"<!--.*?-->|</?(?:br|sup|sub|b|i|u|em|strong|span|p|small|kbd)(?:\s[^<>\n]{0,200})?/?>",
    re.IGNORECASE | re.DOTALL,
)
_ESCAPED_SIGN = re.compile(r"\\([!-/:-@\[-`{}~])")
_CODE = re.compile(r"(`+)(.+?)\1")
_COMMAND = re.compile("|".join(load_rules("passages")["command"]), re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Contiguous evidence of one document; the offsets of `units` count from `base` in it.

    `children` are the indexes of the items under a unit, by its index; `captions` the lines
    directly above a table, by its block: what it shows, and its unit ("단위: 억 원").
    """

    items: tuple[Evidence, ...]
    base: int
    units: tuple[Unit, ...]
    children: Mapping[int, list[int]]
    captions: Mapping[int, tuple[str, ...]]

    @property
    def slot(self) -> int:
        """The slot of its document."""
        return self.items[0].slot

    @property
    def title(self) -> str:
        """The name of its document."""
        return self.items[0].passage.name

    def find_evidence(self, unit: Unit) -> Evidence:
        """The piece of evidence that contains most of a unit."""
        start, end = self.base + unit.start, self.base + unit.end
        return max(
            self.items,
            key=lambda item: min(end, item.start + len(item.text)) - max(start, item.start),
        )

    def is_quotable(self, index: int) -> bool:
        """Whether a unit may be quoted: it is no heading, table header or command."""
        unit = self.units[index]
        is_in_text = self.base + unit.start >= self.items[0].start
        return is_in_text and unit.kind is not UnitKind.HEADING and not _COMMAND.search(unit.text)

    def list_neighbours(self, index: int) -> Iterator[int]:
        """The indexes of nearby units under the same heading, the unit itself included."""
        for neighbour in range(
            max(0, index - MAX_NEARBY_UNITS), min(len(self.units), index + MAX_NEARBY_UNITS + 1)
        ):
            if self.units[neighbour].heading == self.units[index].heading:
                yield neighbour

    def list_block(self, index: int) -> list[int]:
        """The indexes of the sentences of the same paragraph, or the rows of the same table."""
        block = self.units[index].block
        indexes = (
            other_index for other_index, unit in enumerate(self.units) if unit.block == block
        )
        return [other_index for other_index in indexes if self.is_quotable(other_index)]

    def is_caption(self, index: int) -> bool:
        """Whether a line names the table under it, or the unit of its figures."""
        return _is_caption(self.units, index)

    def list_children(self, index: int) -> list[int]:
        """The indexes of the items directly under a unit."""
        return self.children.get(index, [])

    def walk_items(self, indexes: Sequence[int], depth: int = 0) -> Iterator[tuple[int, int]]:
        """The indexes of these items and of all items under them, with their depth."""
        for index in indexes:
            yield index, depth
            if depth < MAX_DEPTH:
                yield from self.walk_items(self.list_children(index), depth + 1)

    def find_heading(self, unit: Unit) -> str:
        """The heading above a unit, or the last one of its section."""
        return next(self.list_headings(unit))

    def list_headings(self, unit: Unit) -> Iterator[str]:
        """The headings above a unit, nearest first; its section's if the text has none."""
        heading_index, name = unit.heading, ""
        while heading_index is not None:
            name = self.units[heading_index].text
            yield name
            heading_index = self.units[heading_index].heading
        if not name or _SUBSECTION_NUMBER.match(name):  # 3.1, whose 3. is in an earlier passage
            yield to_visible(self.find_evidence(unit).passage.section.rpartition(" > ")[2])

    def list_texts_above(self, unit: Unit) -> Iterator[str]:
        """The texts above a unit: its columns and caption, its headings, what introduces it."""
        yield " ".join((*self.captions.get(unit.block, ()), *unit.columns))
        yield from self.list_headings(unit)
        for _ in range(2 * MAX_DEPTH):
            if unit.lead is None:
                return
            unit = self.units[unit.lead]
            yield unit.text


def read_stretches(evidence: Sequence[Evidence]) -> list[Stretch]:
    """The evidence in order of document and position; overlapping or adjacent pieces are joined."""
    runs: list[tuple[list[Evidence], str]] = []
    for item in sorted(
        evidence,
        key=lambda evidence_item: (evidence_item.slot, evidence_item.start, evidence_item.number),
    ):
        items, text = runs[-1] if runs else ([], "")
        offset = item.start - items[0].start if items else -1
        if items and items[0].document_id == item.document_id and 0 <= offset <= len(text):
            overlap = text[offset : offset + len(item.text)]
            if item.text.startswith(overlap) and (overlap or not item.passage.header):
                runs[-1] = ([*items, item], text + item.text[len(overlap) :])
                continue
        runs.append(([item], item.text))
    return [_read_stretch(items, text) for items, text in runs]


def _read_stretch(items: Sequence[Evidence], text: str) -> Stretch:
    header = items[0].passage.header
    header_line = f"{header}\n" if header else ""
    units = read_units(header_line + text)
    children: dict[int, list[int]] = {}
    for index, unit in enumerate(units):
        if unit.lead is not None and unit.kind is UnitKind.SENTENCE:
            children.setdefault(unit.lead, []).append(index)
    return Stretch(
        tuple(items),
        items[0].start - len(header_line),
        tuple(units),
        children,
        _list_captions(units),
    )


def _list_captions(units: Sequence[Unit]) -> dict[int, tuple[str, ...]]:
    """The captions of the tables among some units, by block."""
    captions: dict[int, tuple[str, ...]] = {}
    for first, unit in enumerate(units):
        if unit.kind is not UnitKind.ROW or unit.block in captions:
            continue
        lines = [first - 1] if first and _is_caption(units, first - 1) else []
        if lines and first > 1 and _UNIT_LINE.match(units[first - 1].text):
            lines = [first - 2, *lines] if _is_name(units[first - 2]) else lines
        captions[unit.block] = tuple(units[index].text for index in lines)
    return captions


def _is_caption(units: Sequence[Unit], index: int) -> bool:
    following = units[index + 1 : index + 2]
    return bool(following) and following[0].kind is UnitKind.ROW and _is_name(units[index])


def _is_name(unit: Unit) -> bool:
    is_line = unit.kind is UnitKind.SENTENCE and len(unit.text) <= MAX_CAPTION_CHARACTERS
    return is_line and not _STATEMENT_END.search(unit.text)


def read_units(text: str) -> list[Unit]:
    """The units of a text, in order."""
    reader = _UnitReader()
    for run in _group_lines(
        _mark_numbered_headings(list(_split_lines(text[:MAX_TEXT_CHARACTERS])))
    ):
        reader.add_run(run)
    return reader.units


def to_visible(text: str) -> str:
    """The text as rendered Markdown shows it, on one line; a long text is cut."""
    text = _TAG.sub(" ", _LINK.sub(r"\1", text[:MAX_UNIT_CHARACTERS]))
    text = _EMPHASIS.sub(r"\2", _EMPHASIS.sub(r"\2", text))
    text = _ESCAPED_SIGN.sub(r"\1", _CODE.sub(r"\2", text))
    return _AMENDMENT_NOTE.sub("", " ".join(text.split()))


@dataclass(frozen=True, slots=True)
class _Line:
    """A line from offset `start`; `body` is the offset of its text after `mark`.

    `kind` is "heading", "row", "" for prose, or the shape of the mark, which the items of a list
    share.
    """

    raw: str
    start: int
    body: int
    mark: str = ""
    kind: str = ""

    @property
    def content(self) -> str:
        return self.raw[self.body - self.start :].strip()


def _split_lines(text: str) -> Iterator[_Line]:
    """The lines of a text without front matter; lines of code are empty."""
    front_matter = _FRONT_MATTER.match(text) or _OPEN_FRONT_MATTER.match(text)
    offset = front_matter.end() if front_matter else 0
    for raw, fence, _ in track_code_fences(text[offset:].split("\n")):
        if fence:
            yield _Line("", offset, offset)
        else:
            yield from _parse_line(raw, offset)
        offset += len(raw) + 1


def _parse_line(raw: str, offset: int) -> Iterator[_Line]:
    """The line, or two if text follows the name of an article."""
    while match := next(filter(None, (pattern.match(raw) for pattern in _HEADINGS)), None):
        yield _Line(raw[: match.end("name")], offset, offset + match.start("name"), kind="heading")
        raw, offset = raw[match.end() :], offset + match.end()
        if not raw.strip():
            return
    if _ROW.match(raw):
        yield _Line(raw, offset, offset, kind="row")
    elif match := _ITEM_MARK.match(raw):
        kind = str(match.lastgroup)
        mark = match[kind].replace("\\", "")
        shape = {"circle": kind, "bullet": mark}.get(kind, f"{kind}{mark[0] == '('}{mark[-1]}")
        yield _Line(raw, offset, offset + match.end(), mark, shape)
    else:
        yield _Line(raw, offset, offset + len(raw) - len(raw.lstrip()))


def _mark_numbered_headings(lines: Sequence[_Line]) -> Iterator[_Line]:
    """Mark numbered names that are headings of what follows, as in plain text.

    A heading is followed by a subsection (3. by 3.1); by any text, if its own number has parts; or
    else by a sentence or a table. Items of a list are followed by the next item.
    """
    following: _Line | None = None
    marked: list[_Line] = []
    for line in reversed(lines):
        match = None if line.kind in ("heading", "row") else _NUMBERED_NAME.match(line.raw)
        if match and following and _is_heading(match, following):
            start = line.start + match.start("name")
            marked.append(replace(line, body=start, kind="heading"))
        else:
            marked.append(line)
        following = line if line.raw.strip() else following
    return reversed(marked)


def _is_heading(match: re.Match[str], following: _Line) -> bool:
    """Whether a numbered line names what follows it."""
    if _STATEMENT_END.search(match["name"]):
        return False
    next_number = _NUMBERED_NAME.match(following.raw)
    if next_number:
        return next_number["number"].startswith(f"{match['number']}.")
    is_sentence = not following.kind and len(following.content) >= MIN_WIDE_CHARACTERS
    return "." in match["number"] or following.kind == "row" or is_sentence


def _group_lines(lines: Iterator[_Line]) -> Iterator[list[_Line]]:
    """Group lines without blank lines in between: a heading, a table, or prose."""

    def get_form(line: _Line) -> str:
        if line.kind == "heading":
            return str(line.start)
        return line.kind if line.kind == "row" else "prose" if line.raw.strip() else ""

    for kind, run in groupby(lines, get_form):
        if kind:
            yield list(run)


@dataclass(slots=True)
class _UnitReader:
    """Collects units; `open_items` are the kinds and indexes of items that may have sub-items."""

    units: list[Unit] = field(default_factory=list)
    heading: int | None = None
    open_items: list[tuple[str, int]] = field(default_factory=list)
    block_count: int = 0

    def add_run(self, run: Sequence[_Line]) -> None:
        self.block_count += 1
        if run[0].kind == "heading":
            self._add_heading(run[0])
        elif run[0].kind == "row":
            self._add_rows(run)
        else:
            for part in _split_paragraphs(run):
                self._add_sentences(part)

    def _add_heading(self, line: _Line) -> None:
        if text := to_visible(line.content):
            parent = self._find_parent_heading(text)
            self.heading, self.open_items = len(self.units), []
            end = line.start + len(line.raw)
            self.units.append(
                Unit(UnitKind.HEADING, text, line.body, end, self.block_count, parent)
            )

    def _find_parent_heading(self, name: str) -> int | None:
        """The index of the heading whose number this one's begins with: 3. for 3.1."""
        index, match = self.heading, _NUMBERED_NAME.match(name)
        while match and index is not None:
            parent_match = _NUMBERED_NAME.match(self.units[index].text)
            if parent_match and match["number"].startswith(f"{parent_match['number']}."):
                return index
            index = self.units[index].heading
        return None

    def _add_sentences(self, lines: Sequence[_Line]) -> None:
        first, lead, first_index = lines[0], self._find_lead(lines[0]), len(self.units)
        self.block_count += 1
        raw = "\n".join([first.raw[first.body - first.start :], *(line.raw for line in lines[1:])])
        for start, end in _find_sentences(raw):
            text = to_visible(_CUT_VERB.sub("", raw[start:end]))
            if not _NO_LETTERS.fullmatch(text) or _DATE.search(text):
                mark = first.mark if len(self.units) == first_index else ""
                position = (first.body + start, first.body + end, self.block_count, self.heading)
                self.units.append(Unit(UnitKind.SENTENCE, text, *position, lead, mark))
        if first.mark and len(self.units) > first_index:
            self.open_items.append((first.kind, len(self.units) - 1))

    def _find_lead(self, first: _Line) -> int | None:
        """The index of what introduces an item: its parent item, or the text above the list."""
        if not first.mark:
            self.open_items = []
            return None
        kinds = [kind for kind, _ in self.open_items]
        if first.kind in kinds:
            item_index = kinds.index(first.kind)
            sibling = self.units[self.open_items[item_index][1]]
            del self.open_items[item_index:]
            return sibling.lead
        if self.open_items:
            return self.open_items[-1][1]
        last_unit = self.units[-1] if self.units else None
        is_announced = (
            last_unit
            and last_unit.kind is UnitKind.SENTENCE
            and not last_unit.mark
            and last_unit.announces_list
        )
        return len(self.units) - 1 if is_announced else None

    def _add_rows(self, run: Sequence[_Line]) -> None:
        columns: tuple[str, ...] = ()
        name, self.open_items = "", []
        for number, line in enumerate(run):
            cells = _split_cells(line.raw)
            if _RULE.match(line.raw) or not any(cells):
                continue
            if number + 1 < len(run) and _RULE.match(run[number + 1].raw):
                columns = cells
                continue
            is_first = number and _RULE.match(run[number - 1].raw)
            if is_first and _is_second_header(columns, cells):
                columns = _join_headers(columns, cells)
                continue
            name = cells[0] or name  # of merged cells, only the first has the text
            cells = (name, *cells[1:])
            position = (line.start, line.start + len(line.raw), self.block_count, self.heading)
            text = _render_row(columns, cells)
            self.units.append(Unit(UnitKind.ROW, text, *position, cells=cells, columns=columns))


def _is_second_header(columns: Sequence[str], cells: Sequence[str]) -> bool:
    """Whether a table's first row divides the merged columns above it: no name, and no figures."""
    divided = [cell for column, cell in zip(columns[1:], cells[1:], strict=False) if not column]
    has_figures = any(cell and not any(map(str.isalpha, cell)) for cell in cells)
    return bool(divided) and all(divided) and not cells[0] and not has_figures


def _join_headers(columns: Sequence[str], cells: Sequence[str]) -> tuple[str, ...]:
    """Columns named by both rows: a merged cell of the upper one holds for those right of it."""
    names: list[str] = []
    above = ""
    for column, cell in zip_longest(columns, cells, fillvalue=""):
        above = column or above if names else column
        names.append(" ".join(filter(None, (above, cell))) if names else column)
    return tuple(names)


def _split_paragraphs(run: Sequence[_Line]) -> Iterator[list[_Line]]:
    """Group lines into paragraphs: a line broken at the margin continues in the next.

    "다." begins an item if it follows "나."; otherwise it ends the verb of the line above.
    """
    widths = sorted(len(line.raw.strip()) for line in run)
    full_width = widths[round(0.8 * (len(widths) - 1))] if len(widths) > 4 else widths[-1]
    paragraph: list[_Line] = []
    has_letters = False
    for line in run:
        is_cut = (
            line.mark == "다."
            and not has_letters
            and paragraph
            and not _SENTENCE_STOP.search(paragraph[-1].content)
        )
        has_letters = has_letters or line.mark == "나."
        if paragraph and not is_cut and (line.mark or not _is_continued(paragraph[-1], full_width)):
            yield paragraph
            paragraph = []
        paragraph.append(line)
    yield paragraph


def _is_continued(line: _Line, full_width: int) -> bool:
    """Whether a line was broken at the margin; `full_width` is the text's width in characters."""
    is_full = (
        full_width >= MIN_WIDE_CHARACTERS and len(line.raw.strip()) >= full_width * MIN_FULL_SHARE
    )
    return is_full and not _SENTENCE_STOP.search(line.content)


def _find_sentences(raw: str) -> Iterator[tuple[int, int]]:
    """Start and end of each sentence."""
    sentences: list[str] = []
    for sentence in split_sentences(_CUT_VERB.sub("", raw)):
        if sentences and _OPEN_BRACKET.search(
            sentences[-1], len(sentences[-1]) - MAX_BRACKET_CHARACTERS
        ):
            sentences[-1] = f"{sentences[-1]} {sentence}"
        else:
            sentences.append(sentence)
    letters = "".join(raw.split())
    positions = [position for position, sign in enumerate(raw) if not sign.isspace()]
    cursor = 0
    for sentence in sentences:  # white space in a sentence may differ from the text's
        letters_of_sentence = "".join(sentence.split())
        start = letters.find(letters_of_sentence, cursor)
        if letters_of_sentence and start >= 0:
            cursor = start + len(letters_of_sentence)
            yield positions[start], positions[cursor - 1] + 1


def _render_row(columns: Sequence[str], cells: Sequence[str]) -> str:
    """A row as text: its first cell, then the others, each after the name of its column."""
    pairs = zip_longest(columns[: len(cells)], cells, fillvalue="")
    labelled = [f"{name}: {value}" if name else value for name, value in pairs]
    rest = " · ".join(text for text, value in zip(labelled[1:], cells[1:], strict=True) if value)
    return f"{cells[0]} — {rest}" if cells[0] and rest else cells[0] or rest


def _split_cells(line: str) -> tuple[str, ...]:
    inner = _CELL_SEPARATOR.split(line.strip()[1:-1], MAX_CELLS)[:MAX_CELLS]
    return tuple(to_visible(value.replace("\\|", "|")) for value in inner)
