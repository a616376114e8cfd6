"""The sentences of a text: where they stand, and which of them claim nothing."""

import functools
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from rag.lexicon import load_patterns, load_phrases
from rag.prompts import get_reply
from rag.tokenize.text import ABBREVIATIONS, track_code_fences
from rag.types import Citation

MARKER = re.compile(r"\[(\d{1,4})\]")
_HEADING = re.compile(
    r"[ \t]{0,3}#{1,6}\s|[ \t]*(?:\*\*|__)[^*_\n]{1,80}(?:\*\*|__)[ \t]*:?[ \t]*$"
)
_RULE = re.compile(r"(?=.*--)[ \t:|-]+$|[ \t]*(?:[*_=][ \t]*){3,}$")
_ROW = re.compile(r"[ \t]*\|.*\|[ \t]*(?:\[\d{1,4}\])*[ \t]*$")
_BULLET = re.compile(
    r"[ \t>]*(?:[-*•·○●□■–▪▶][ \t]+|\(?(?:\d{1,3}|[가-하]|[a-z])[.)][ \t]+|[①-⑳][ \t]*)?"
)
_MARKERS = r"(?:[ \t]*\[\d{1,4}\])*"
_END = re.compile(
    rf"(?:(?<![.!?。？！…])[.!?。？！…]+[\"'”’」』)\]*_]{{0,4}}{_MARKERS}(?=\s|$)(?!\s+[a-z])"
    rf"|(?<=[다요죠음함임])[.!?]{_MARKERS}(?=[가-힣A-Z\"“'*]))"
)
_FOLLOWING = re.compile(
    r"\s*((?:[ \t]*\[\d{1,4}\])+)(?=\s*$|\s+(?![a-z은는이가을를의에와과도로])|[.,;])"
)
"""Markers behind a full stop that begin no sentence of their own."""
_ABBREVIATED = re.compile(
    rf"(?:\b(?:{'|'.join(map(re.escape, ABBREVIATIONS))}|[A-Za-z])"
    r"|\d{1,4}\.\s?\d{1,2}\.\s?\d{1,2})\.$"
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
class Sentence:
    """`start`..`end` in the characters of its text, of which `text` stands there.

    `numbers` are those of the passages that it cites (`Evidence.number`), each once, in order.
    """

    start: int
    end: int
    text: str
    form: Form
    numbers: tuple[int, ...] = ()


def split_answer(answer: str, *, wrapped: bool = False) -> list[Sentence]:
    """The sentences, list items, rows and titles, in order; a marker behind the full stop is in.

    Rules between them are left out. A line ends a sentence unless the text is `wrapped`.
    """
    found: list[Sentence] = []
    for start, end, form in _split_blocks(answer, wrapped=wrapped):
        cuts = _find_sentences(answer, start, end) if form is Form.PROSE else [(start, end)]
        for first, last in cuts:
            _append_sentence(found, _trim_sentence(answer, first, last, form))
    return found


def tie_citations(found: Sequence[Sentence], citations: Sequence[Citation]) -> list[Sentence]:
    """The sentences with the passages that are cited within each."""
    offsets = [citation.offset for citation in citations]
    tied = []
    for one in found:
        first, behind = bisect_left(offsets, one.start), bisect_left(offsets, one.end)
        numbers = dict.fromkeys(citation.number for citation in citations[first:behind])
        tied.append(replace(one, numbers=tuple(numbers)))
    return tied


def _append_sentence(found: list[Sentence], span: Sentence | None) -> None:
    """Keep a span; markers alone belong to what stands before them."""
    if span is None:
        return
    if found and _BARE.fullmatch(span.text) and found[-1].form is not Form.TITLE:
        last = found[-1]
        gap = " " * (span.start - last.end)
        found[-1] = Sentence(last.start, span.end, last.text + gap + span.text, last.form)
    else:
        found.append(span)


def _trim_sentence(answer: str, start: int, end: int, form: Form) -> Sentence | None:
    if form is Form.PROSE and (bullet := _BULLET.match(answer, start, end)):
        start = bullet.end()
    text = answer[start:end]
    start += len(text) - len(text.lstrip())
    text = text.strip()
    return Sentence(start, start + len(text), text, form) if text else None


def _split_blocks(answer: str, *, wrapped: bool) -> Iterator[tuple[int, int, Form]]:
    """Blocks of one form: paragraphs, items, rows, titles and code."""
    begun, end = -1, 0
    lines = answer.split("\n")
    for (line, fence, bounds), following in zip(
        track_code_fences(lines), [*lines[1:], ""], strict=True
    ):
        start, end = end, end + len(line) + 1
        if fence:
            if begun >= 0:
                yield begun, start, Form.PROSE
            begun = -1
            if not bounds and line.strip():
                yield start, end, Form.CODE
            continue
        form = _detect_form(line, following)
        if begun >= 0 and (form is not Form.PROSE or not wrapped or _is_item_start(line)):
            yield begun, start, Form.PROSE
            begun = -1
        if form is not Form.PROSE and line.strip() and not _RULE.match(line):
            yield start, end, form
        elif form is Form.PROSE and begun < 0 and line.strip():
            begun = start
    if begun >= 0:
        yield begun, len(answer), Form.PROSE


def _detect_form(line: str, following: str) -> Form:
    if not line.strip() or _RULE.match(line) or _HEADING.match(line):
        return Form.TITLE
    if _ROW.match(line):
        return Form.TITLE if _RULE.match(following) and "|" in following else Form.ROW
    return Form.PROSE


def _is_item_start(line: str) -> bool:
    """Whether a line begins an item of a list."""
    bullet = _BULLET.match(line)
    return bool(bullet and bullet[0].strip())


def _find_sentences(answer: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The sentences of a paragraph; its lines end those that are over."""
    position = bullet.end() if (bullet := _BULLET.match(answer, start, end)) else start
    begun = start
    while match := _END.search(answer, position, end):
        position = match.end()
        head = answer[max(begun, match.start() - _BEFORE) : match.start() + 1]
        dated = answer[match.start() - 1 : match.start()].isdigit()
        if _ABBREVIATED.search(head) or (dated and _STARTS_DIGIT.match(answer, position, end)):
            continue
        if following := _FOLLOWING.match(answer, position, end):
            position = following.end()
        yield begun, position
        begun = position
    yield begun, end


_ALWAYS = ("question", "lead_in", "source", "aside")
_LACKS = ("lack_en", "lack_ko")
_NOTES = ("passages_more", "notice_widened", "notice_gone")


def is_without_claim(sentence: Sentence) -> bool:
    """Whether the sentence by its form or words says nothing that could be checked."""
    text = MARKER.sub("", sentence.text).strip()
    return (
        sentence.form in (Form.TITLE, Form.CODE)
        or _is_matching_any(_ALWAYS, text)
        or text in _load_notes()
        or _is_courtesy(text)
        or is_lack(text, cites=bool(sentence.numbers))
    )


def is_lack(text: str, *, cites: bool) -> bool:
    """Whether the sentence says that the documents do not tell something."""
    return _is_matching_any(_LACKS if cites else (*_LACKS, "lack_uncited_ko"), text)


def _is_matching_any(names: Iterable[str], text: str) -> bool:
    return any(load_patterns("no_claims")[name].search(text) for name in names)


def _is_courtesy(text: str) -> bool:
    small = text.casefold().replace("’", "'")
    return any(
        phrase in small
        for name in ("ko", "en")
        for phrase in load_phrases(f"plain_sentences.{name}")
    )


@functools.cache
def _load_notes() -> frozenset[str]:
    """What we say ourselves of how an answer came about."""
    return frozenset(get_reply(name, tongue) for name in _NOTES for tongue in ("ko", "en"))
