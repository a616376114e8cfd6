"""Reads evidence as units that can be quoted: headings, sentences, items of lists, rows of tables.

What is read keeps its place in the document, what announces it, and the columns it stands in.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import groupby, zip_longest

from rag.lexicon import load_rules
from rag.tokenize.text import split_sentences, track_code_fences
from rag.types import Evidence

MIN_FULL_SHARE = 0.6
"""A line at least so full, against the widest, was broken by the margin: the next continues it."""
MIN_WIDE_CHARACTERS = 32
"""Characters below which nothing can be told from a line's width."""
MAX_TEXT_CHARACTERS, MAX_UNIT_CHARACTERS = 60_000, 3_000
"""Of one stretch, and of one of its sentences, headings and cells: more is not read."""
MAX_BRACKET_CHARACTERS = 600
"""What stands in longer brackets is cut into sentences."""
MAX_CELLS = 64
"""Of a row."""
MAX_UNITS_BESIDE = 8
"""Units before and after one that stand near it."""
MAX_DEPTH = 4
"""Of items under items."""


class UnitKind(Enum):
    """What a unit is."""

    HEADING = "heading"
    SENTENCE = "sentence"
    ROW = "row"


@dataclass(frozen=True, slots=True)
class Unit:
    """The least that can be quoted: `text` as people read it, `start:end` in the text read.

    `mark` stands before an item ("①", "1.", "-"). `heading` and `lead` are places of other units:
    the heading above (of a heading: the one that it is a part of), and what announces an item
    (None: nothing). `block` is the same for the
    sentences of one paragraph or item, and for the rows of one table. `cells` of a row stand under
    `columns`; without a name it carries that of the row above, as merged cells do.
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
    def announces_list(self) -> bool:
        """Whether it says that a list follows."""
        return bool(_ANNOUNCES.search(self.text))


_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?:.*\n)*?---[ \t]*(?:\n|\Z)")
_OPEN_FRONT_MATTER = re.compile(
    r"\A---[ \t]*\n(?:(?:[^\s:#-][^:\n]*:(?:[ \t].*)?|[ \t]+\S.*|- .*)(?:\n|\Z)){8,}\Z"
)
"""So long that a passage holds only its beginning: nothing but keys, values and items."""
_HEADINGS = (
    re.compile(r"[ \t]{0,3}#{1,6}[ \t]+(?=\S)(?P<name>.*[^\s#])[\s#]*$"),
    re.compile(
        r"[ \t]*[<\[【][ \t]*(?P<name>[^<>\[\]【】]{2,60}?)[ \t]*(?:(?<=[ \t])>|\]|】)[ \t]*$"
    ),
    re.compile(r"[ \t]*(?P<name>제\d+조(?:의\d+)?[ \t]?\([^()\n]{1,60}\)|부[ \t]?칙\b.{0,40}$)"),
)
"""Of Markdown, in a box, and the name of an article, which may go on in its text."""
_NUMBERED = re.compile(
    r"[ \t]*(?P<name>(?P<number>\d{1,2}(?:\.\d{1,2})*)\.?[ \t]+[^\W\d][^|]{0,58}?)[ \t]*$"
)
_PART = re.compile(r"\d{1,2}\.\d")
_SAYS = re.compile(r"[.!?。？！…:：;,]$|[다요까함됨음]$")
"""A line that is no name: it says something."""
_MARK = re.compile(
    r"[ \t]*(?:>[ \t]?)*(?:\*\*)?(?:"
    r"(?P<circle>[①-⑳])(?:\*\*)?|(?P<bullet>[-*+•·∙‣○◦●▪■□◆◇▶▷❍❖➢ㅇ※])(?=[ \t])|"
    r"(?P<number>\(?\d{1,3}(?:의\d+)?\\?[.)])(?=[ \t])|(?P<letter>\(?[가-하]\\?[.)])(?=[ \t])|"
    r"(?P<latin>\(?[a-z]\\?[.)])(?=[ \t])"
    r")[ \t]*"
)
_ROW = re.compile(r"[ \t]*\|.*\|[ \t]*$")
_RULE = re.compile(r"[\s|:]*-[\s|:\-]*$")
_SPLIT = re.compile(r"(?<!\\)\|")
_ENDED = re.compile(r"[.!?。？！…:：;][\"'”’」』)\]]*$")
_CUT_VERB = re.compile(r"\s*\n\s*(?=다\.)")
"""Within a paragraph: the margin cut "있다." in two."""
_ANNOUNCES = re.compile(
    r"[:：]\W*$|다음\s?(?:각\s?(?:호|목)|과\s?같|의|사항|항목)|아래(?:와\s?같|의)|"
    r"\bfollowing\b|\bas follows\b",
    re.IGNORECASE,
)
_OPEN_BRACKET = re.compile(r"\([^()]*$")
"""Where no sentence ends."""
_NOTHING = re.compile(r"[\W\d_]*")
"""Numbers of pages, and rules."""
_AMENDED = re.compile(
    r"\s*(?:<(?:개정|신설|시행|본조|전문|타법)[^<>]*>|\[(?:본조|전문|제목)[^\[\]]*\]$)"
)
_STRESS = re.compile(r"(\*\*|__|(?<![\w*])\*)(?=\S)(.+?)(?<=\S)\1(?![A-Za-z\d*])")
_LINK = re.compile(r"!?\[([^\[\]\n]{0,300})\]\((?:[^()\n]|\([^()\n]{0,300}\)){0,2000}\)")
_TAG = re.compile(
    r"<!--.*?-->|</?(?:br|sup|sub|b|i|u|em|strong|span|p|small|kbd)(?:\s[^<>\n]{0,200})?/?>",
    re.IGNORECASE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{}~])")
_CODE = re.compile(r"(`+)(.+?)\1")
_COMMAND = re.compile("|".join(load_rules("passages")["command"]), re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Stretch:
    """Evidence of one document without a gap; offset `base` of the document is that of `units`."""

    items: tuple[Evidence, ...]
    base: int
    units: tuple[Unit, ...]
    children: Mapping[int, list[int]]

    @property
    def slot(self) -> int:
        """The slot of its document."""
        return self.items[0].slot

    @property
    def title(self) -> str:
        """The name of its document."""
        return self.items[0].passage.name

    def find_evidence(self, unit: Unit) -> Evidence:
        """The piece of evidence that holds most of a unit."""
        start, end = self.base + unit.start, self.base + unit.end
        return max(
            self.items, key=lambda one: min(end, one.start + len(one.text)) - max(start, one.start)
        )

    def is_quotable(self, at: int) -> bool:
        """Whether a unit may be quoted: no heading, no header above the text, no command."""
        unit = self.units[at]
        inside = self.base + unit.start >= self.items[0].start
        return inside and unit.kind is not UnitKind.HEADING and not _COMMAND.search(unit.text)

    def list_neighbours(self, at: int) -> Iterator[int]:
        """The places of the units of the same section that stand near."""
        for place in range(
            max(0, at - MAX_UNITS_BESIDE), min(len(self.units), at + MAX_UNITS_BESIDE + 1)
        ):
            if self.units[place].heading == self.units[at].heading:
                yield place

    def list_block(self, at: int) -> list[int]:
        """The places of the sentences of the same paragraph, or the rows of the same table."""
        block = self.units[at].block
        same = (place for place, unit in enumerate(self.units) if unit.block == block)
        return [place for place in same if self.is_quotable(place)]

    def list_children(self, at: int) -> list[int]:
        """The places of what stands directly under a unit."""
        return self.children.get(at, [])

    def walk_items(self, places: Sequence[int], depth: int = 0) -> Iterator[tuple[int, int]]:
        """Items and what stands under them, with their depth."""
        for at in places:
            yield at, depth
            if depth < MAX_DEPTH:
                yield from self.walk_items(self.list_children(at), depth + 1)

    def find_heading(self, unit: Unit) -> str:
        """The heading above a unit, or the last one of its section."""
        return next(self.list_headings(unit))

    def list_headings(self, unit: Unit) -> Iterator[str]:
        """The headings above a unit, the nearest first; its section's where the text has none."""
        at, name = unit.heading, ""
        while at is not None:
            name = self.units[at].text
            yield name
            at = self.units[at].heading
        if not name or _PART.match(name):  # 3.1 whose 3. stands in a passage before
            yield to_visible(self.find_evidence(unit).passage.section.rpartition(" > ")[2])

    def list_texts_above(self, unit: Unit) -> Iterator[str]:
        """What stands above a unit: the names of its columns, its headings, what announces it."""
        yield " ".join(unit.columns)
        yield from self.list_headings(unit)
        for _ in range(2 * MAX_DEPTH):
            if unit.lead is None:
                return
            unit = self.units[unit.lead]
            yield unit.text


def read_stretches(evidence: Sequence[Evidence]) -> list[Stretch]:
    """The evidence by document and place, pieces that overlap or touch joined."""
    runs: list[tuple[list[Evidence], str]] = []
    for item in sorted(evidence, key=lambda one: (one.slot, one.start, one.number)):
        items, text = runs[-1] if runs else ([], "")
        at = item.start - items[0].start if items else -1
        if items and items[0].document_id == item.document_id and 0 <= at <= len(text):
            shared = text[at : at + len(item.text)]
            if item.text.startswith(shared) and (shared or not item.passage.header):
                runs[-1] = ([*items, item], text + item.text[len(shared) :])
                continue
        runs.append(([item], item.text))
    return [_read_stretch(items, text) for items, text in runs]


def _read_stretch(items: Sequence[Evidence], text: str) -> Stretch:
    header = items[0].passage.header
    above = f"{header}\n" if header else ""
    units = read_units(above + text)
    children: dict[int, list[int]] = {}
    for at, unit in enumerate(units):
        if unit.lead is not None and unit.kind is UnitKind.SENTENCE:
            children.setdefault(unit.lead, []).append(at)
    return Stretch(tuple(items), items[0].start - len(above), tuple(units), children)


def read_units(text: str) -> list[Unit]:
    """The units of a text, in order."""
    reader = _UnitReader()
    for run in _group_lines(_mark_headings(list(_split_lines(text[:MAX_TEXT_CHARACTERS])))):
        reader.add_run(run)
    return reader.units


def to_visible(text: str) -> str:
    """What a reader of the rendered Markdown sees, on one line; of a long text the beginning."""
    text = _TAG.sub(" ", _LINK.sub(r"\1", text[:MAX_UNIT_CHARACTERS]))
    text = _STRESS.sub(r"\2", _STRESS.sub(r"\2", text))
    text = _ESCAPED.sub(r"\1", _CODE.sub(r"\2", text))
    return _AMENDED.sub("", " ".join(text.split()))


@dataclass(frozen=True, slots=True)
class _Line:
    """A line from offset `start`; `body` is where its text begins behind `mark`.

    `kind` is "heading", "row", "" of prose, or the shape of the mark: items of one list share it.
    """

    raw: str
    start: int
    body: int
    mark: str = ""
    kind: str = ""

    @property
    def said(self) -> str:
        return self.raw[self.body - self.start :].strip()


def _split_lines(text: str) -> Iterator[_Line]:
    """The lines of a text but for front matter and code: those are empty."""
    front = _FRONT_MATTER.match(text) or _OPEN_FRONT_MATTER.match(text)
    at = front.end() if front else 0
    for raw, fence, _ in track_code_fences(text[at:].split("\n")):
        if fence:
            yield _Line("", at, at)
        else:
            yield from _parse_line(raw, at)
        at += len(raw) + 1


def _parse_line(raw: str, at: int) -> Iterator[_Line]:
    """The line; an article's name and what follows it are two."""
    while found := next(filter(None, (pattern.match(raw) for pattern in _HEADINGS)), None):
        yield _Line(raw[: found.end("name")], at, at + found.start("name"), kind="heading")
        raw, at = raw[found.end() :], at + found.end()
        if not raw.strip():
            return
    if _ROW.match(raw):
        yield _Line(raw, at, at, kind="row")
    elif found := _MARK.match(raw):
        kind = str(found.lastgroup)
        mark = found[kind].replace("\\", "")
        shape = {"circle": kind, "bullet": mark}.get(kind, f"{kind}{mark[0] == '('}{mark[-1]}")
        yield _Line(raw, at, at + found.end(), mark, shape)
    else:
        yield _Line(raw, at, at + len(raw) - len(raw.lstrip()))


def _mark_headings(lines: Sequence[_Line]) -> Iterator[_Line]:
    """The lines, with the headings of plain text known: numbered names of what follows them.

    A name stands above a number that is one of its own (3. above 3.1), above text where its number
    has parts, else above a sentence: items of a list have the next item behind them.
    """
    following: _Line | None = None
    told: list[_Line] = []
    for line in reversed(lines):
        found = None if line.kind in ("heading", "row") else _NUMBERED.match(line.raw)
        if found and following and _is_heading(found, following):
            start = line.start + found.start("name")
            told.append(replace(line, body=start, kind="heading"))
        else:
            told.append(line)
        following = line if line.raw.strip() else following
    return reversed(told)


def _is_heading(found: re.Match[str], following: _Line) -> bool:
    """Whether a numbered line names what follows it."""
    if _SAYS.search(found["name"]):
        return False
    after = _NUMBERED.match(following.raw)
    if after:
        return after["number"].startswith(f"{found['number']}.")
    is_sentence = not following.kind and len(following.said) >= MIN_WIDE_CHARACTERS
    return "." in found["number"] or following.kind == "row" or is_sentence


def _group_lines(lines: Iterator[_Line]) -> Iterator[list[_Line]]:
    """Lines without a blank one between them: a heading, a table, or prose."""

    def get_form(line: _Line) -> str:
        if line.kind == "heading":
            return str(line.start)
        return line.kind if line.kind == "row" else "prose" if line.raw.strip() else ""

    for kind, run in groupby(lines, get_form):
        if kind:
            yield list(run)


@dataclass(slots=True)
class _UnitReader:
    """Gathers units; `open` are the places and kinds of the items that others may stand under."""

    units: list[Unit] = field(default_factory=list)
    heading: int | None = None
    open: list[tuple[str, int]] = field(default_factory=list)
    blocks: int = 0

    def add_run(self, run: Sequence[_Line]) -> None:
        self.blocks += 1
        if run[0].kind == "heading":
            self._add_heading(run[0])
        elif run[0].kind == "row":
            self._add_rows(run)
        else:
            for part in _split_paragraphs(run):
                self._add_sentences(part)

    def _add_heading(self, line: _Line) -> None:
        if text := to_visible(line.said):
            whole = self._find_parent_heading(text)
            self.heading, self.open = len(self.units), []
            end = line.start + len(line.raw)
            self.units.append(Unit(UnitKind.HEADING, text, line.body, end, self.blocks, whole))

    def _find_parent_heading(self, name: str) -> int | None:
        """The heading whose number the number of this one begins with: 3. of 3.1."""
        at, found = self.heading, _NUMBERED.match(name)
        while found and at is not None:
            before = _NUMBERED.match(self.units[at].text)
            if before and found["number"].startswith(f"{before['number']}."):
                return at
            at = self.units[at].heading
        return None

    def _add_sentences(self, part: Sequence[_Line]) -> None:
        first, lead, at = part[0], self._find_lead(part[0]), len(self.units)
        self.blocks += 1
        raw = "\n".join([first.raw[first.body - first.start :], *(line.raw for line in part[1:])])
        for start, end in _find_sentences(raw):
            text = to_visible(_CUT_VERB.sub("", raw[start:end]))
            if not _NOTHING.fullmatch(text):
                mark = first.mark if len(self.units) == at else ""
                place = (first.body + start, first.body + end, self.blocks, self.heading)
                self.units.append(Unit(UnitKind.SENTENCE, text, *place, lead, mark))
        if first.mark and len(self.units) > at:
            self.open.append((first.kind, len(self.units) - 1))

    def _find_lead(self, first: _Line) -> int | None:
        """What an item stands under: the item above it, or the paragraph that announces a list."""
        if not first.mark:
            self.open = []
            return None
        kinds = [kind for kind, _ in self.open]
        if first.kind in kinds:
            place = kinds.index(first.kind)
            sister = self.units[self.open[place][1]]
            del self.open[place:]
            return sister.lead
        if self.open:
            return self.open[-1][1]
        last = self.units[-1] if self.units else None
        announced = (
            last and last.kind is UnitKind.SENTENCE and not last.mark and last.announces_list
        )
        return len(self.units) - 1 if announced else None

    def _add_rows(self, run: Sequence[_Line]) -> None:
        columns: tuple[str, ...] = ()
        name, self.open = "", []
        for number, line in enumerate(run):
            cells = _split_cells(line.raw)
            if _RULE.match(line.raw) or not any(cells):
                continue
            if number + 1 < len(run) and _RULE.match(run[number + 1].raw):
                columns = cells
                continue
            name = cells[0] or name  # of merged cells the first one holds the name
            cells = (name, *cells[1:])
            place = (line.start, line.start + len(line.raw), self.blocks, self.heading)
            text = _render_row(columns, cells)
            self.units.append(Unit(UnitKind.ROW, text, *place, cells=cells, columns=columns))


def _split_paragraphs(run: Sequence[_Line]) -> Iterator[list[_Line]]:
    """Lines joined where the margin broke them, apart where the author did.

    "다." begins an item behind "나."; else it ends the verb that the line above left open.
    """
    widths = sorted(len(line.raw.strip()) for line in run)
    full = widths[round(0.8 * (len(widths) - 1))] if len(widths) > 4 else widths[-1]
    held: list[_Line] = []
    has_letters = False
    for line in run:
        is_cut = (
            line.mark == "다." and not has_letters and held and not _ENDED.search(held[-1].said)
        )
        has_letters = has_letters or line.mark == "나."
        if held and not is_cut and (line.mark or not _is_continued(held[-1], full)):
            yield held
            held = []
        held.append(line)
    yield held


def _is_continued(line: _Line, full: int) -> bool:
    """Whether a line goes on in the following one; `full` is how wide the text is."""
    wide = full >= MIN_WIDE_CHARACTERS and len(line.raw.strip()) >= full * MIN_FULL_SHARE
    return wide and not _ENDED.search(line.said)


def _find_sentences(raw: str) -> Iterator[tuple[int, int]]:
    """Where the sentences stand."""
    held: list[str] = []
    for part in split_sentences(_CUT_VERB.sub("", raw)):
        if held and _OPEN_BRACKET.search(held[-1], len(held[-1]) - MAX_BRACKET_CHARACTERS):
            held[-1] = f"{held[-1]} {part}"
        else:
            held.append(part)
    letters = "".join(raw.split())
    places = [place for place, sign in enumerate(raw) if not sign.isspace()]
    at = 0
    for part in held:  # blanks may differ between the part and the text
        bare = "".join(part.split())
        found = letters.find(bare, at)
        if bare and found >= 0:
            at = found + len(bare)
            yield places[found], places[at - 1] + 1


def _render_row(columns: Sequence[str], cells: Sequence[str]) -> str:
    """A row in words: its first cell, then every other one behind the name of its column."""
    pairs = zip_longest(columns[: len(cells)], cells, fillvalue="")
    told = [f"{name}: {value}" if name else value for name, value in pairs]
    rest = " · ".join(one for one, value in zip(told[1:], cells[1:], strict=True) if value)
    return f"{cells[0]} — {rest}" if cells[0] and rest else cells[0] or rest


def _split_cells(line: str) -> tuple[str, ...]:
    inner = _SPLIT.split(line.strip()[1:-1], MAX_CELLS)[:MAX_CELLS]
    return tuple(to_visible(value.replace("\\|", "|")) for value in inner)
