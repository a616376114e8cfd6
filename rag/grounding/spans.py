"""The sentences of an answer with their places in it, Markdown and markers included."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

MARKER = re.compile(r"\[(\d{1,4})\]")
_LINE = re.compile(r"[^\n]*\n?")
_FENCE = re.compile(r"[ \t]*(```|~~~)")
_HEADING = re.compile(
    r"[ \t]{0,3}#{1,6}\s|[ \t]*(?:\*\*|__)[^*_\n]{1,80}(?:\*\*|__)[ \t]*:?[ \t]*$"
)
_RULE = re.compile(r"[ \t]*\|?[ \t:|-]*-{2,}[ \t:|-]*$|[ \t]*(?:[*_=][ \t]*){3,}$")
_ROW = re.compile(r"[ \t]*\|.*\|[ \t]*(?:\[\d{1,4}\])*[ \t]*$")
_BULLET = re.compile(
    r"[ \t>]*(?:[-*•·○●□■–▪▶][ \t]+|\(?(?:\d{1,3}|[가-하]|[a-z])[.)][ \t]+|[①-⑳][ \t]*)?"
)
_MARKERS = r"(?:[ \t]*\[\d{1,4}\])*"
_END = re.compile(
    rf"(?:[.!?。？！…]+[\"'”’」』)\]*_]{{0,4}}{_MARKERS}(?=\s|$)(?!\s+[a-z])"
    rf"|(?<=[다요죠음함임])[.!?]{_MARKERS}(?=[가-힣A-Z\"“'*]))"
)
_ABBREVIATED = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|Mr|Mrs|Ms|Dr|No|Fig|St|Inc|Ltd|Jr|Co|Corp|Gen|Gov|Prof|Rev|Sr|approx|ca|cf)"
    r"|\b[A-Za-z]|\d{1,4}\.\s?\d{1,2}\.\s?\d{1,2})\.$"
)
_BEFORE = 24
_STARTS_DIGIT = re.compile(r"[ \t]*\d")
_BARE = re.compile(rf"\s*{_MARKERS}\s*[.,;]?\s*")


class Form(Enum):
    """What a stretch of an answer is."""

    PROSE = "prose"
    ROW = "row"
    TITLE = "title"
    """A heading, or the head of a table: it claims nothing by itself."""
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Span:
    """`start`..`end` in the answer's characters; `text` is what stands there."""

    start: int
    end: int
    text: str
    form: Form

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots of its markers, each once, in order."""
        return tuple(dict.fromkeys(int(number) for number in MARKER.findall(self.text)))


def split(answer: str, *, wrapped: bool = False) -> list[Span]:
    """The sentences, list items, rows and titles, in order; a marker behind the full stop is in.

    Rules between them are left out. A line ends a sentence unless the text is `wrapped`.
    """
    found: list[Span] = []
    for start, end, form in _stretches(answer, wrapped=wrapped):
        cuts = _sentences(answer[:end], start) if form is Form.PROSE else [(start, end)]
        for first, last in cuts:
            _add(found, _trimmed(answer, first, last, form))
    return found


def _add(found: list[Span], span: Span | None) -> None:
    """Keep a span; markers alone belong to what stands before them."""
    if span is None:
        return
    if found and _BARE.fullmatch(span.text) and found[-1].form is not Form.TITLE:
        last = found[-1]
        gap = " " * (span.start - last.end)
        found[-1] = Span(last.start, span.end, last.text + gap + span.text, last.form)
    else:
        found.append(span)


def _trimmed(answer: str, start: int, end: int, form: Form) -> Span | None:
    if form is Form.PROSE and (bullet := _BULLET.match(answer, start, end)):
        start = bullet.end()
    text = answer[start:end]
    start += len(text) - len(text.lstrip())
    text = text.strip()
    return Span(start, start + len(text), text, form) if text else None


def _stretches(answer: str, *, wrapped: bool) -> Iterator[tuple[int, int, Form]]:
    """Blocks of one form: paragraphs, items, rows, titles and code."""
    begun, fence = -1, ""
    lines = [(line.start(), line.end(), line[0].rstrip("\n")) for line in _LINE.finditer(answer)]
    for place, (start, end, line) in enumerate(lines):
        mark = _FENCE.match(line)
        if fence or mark:
            if begun >= 0:
                yield begun, start, Form.PROSE
            begun = -1
            if not mark and line.strip():
                yield start, end, Form.CODE
            fence = "" if mark and mark[1] == fence else fence or (mark[1] if mark else "")
            continue
        form = _form(line, lines[place + 1][2] if place + 1 < len(lines) else "")
        if begun >= 0 and (form is not Form.PROSE or not wrapped or _begins(line)):
            yield begun, start, Form.PROSE
            begun = -1
        if form is not Form.PROSE and line.strip() and not _RULE.match(line):
            yield start, end, form
        elif form is Form.PROSE and begun < 0 and line.strip():
            begun = start
    if begun >= 0:
        yield begun, len(answer), Form.PROSE


def _form(line: str, following: str) -> Form:
    if not line.strip() or _RULE.match(line) or _HEADING.match(line):
        return Form.TITLE
    if _ROW.match(line):
        return Form.TITLE if _RULE.match(following) and "|" in following else Form.ROW
    return Form.PROSE


def _begins(line: str) -> bool:
    """Whether a line begins an item of a list."""
    bullet = _BULLET.match(line)
    return bool(bullet and bullet[0].strip())


def _sentences(answer: str, start: int) -> Iterator[tuple[int, int]]:
    """The sentences of a paragraph that ends with `answer`; its lines end those that are over."""
    position = bullet.end() if (bullet := _BULLET.match(answer, start)) else start
    begun = start
    while match := _END.search(answer, position):
        position = match.end()
        head = answer[max(begun, match.start() - _BEFORE) : match.start() + 1]
        dated = answer[match.start() - 1 : match.start()].isdigit()
        if _ABBREVIATED.search(head) or (dated and _STARTS_DIGIT.match(answer, position)):
            continue
        position = _behind(answer, position)
        yield begun, position
        begun = position
    yield begun, len(answer)


_FOLLOWING = re.compile(
    r"\s*((?:[ \t]*\[\d{1,4}\])+)(?=\s*$|\s+(?![a-z은는이가을를의에와과도로])|[.,;])"
)


def _behind(answer: str, position: int) -> int:
    """Behind the markers that follow a full stop and begin no sentence of their own."""
    following = _FOLLOWING.match(answer, position)
    return following.end() if following else position
