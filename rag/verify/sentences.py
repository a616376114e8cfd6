"""The sentences of a text with their places, and whether they claim anything."""

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
"""Markers after a full stop that belong to the sentence before them."""
_ABBREVIATED = re.compile(
    rf"(?:\b(?:{'|'.join(map(re.escape, ABBREVIATIONS))}|[A-Za-z])"
    r"|\d{1,4}\.\s?\d{1,2}\.\s?\d{1,2})\.$"
)
_CONTEXT_CHARACTERS = 24
_STARTS_DIGIT = re.compile(r"[ \t]*\d")
_BARE = re.compile(rf"\s*{_MARKERS}\s*[.,;]?\s*")


class Form(Enum):
    """The kind of a part of an answer."""

    PROSE = "prose"
    ROW = "row"
    TITLE = "title"
    """A heading, or the head of a table: it claims nothing by itself."""
    CODE = "code"


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, or a row, heading or piece of code: `text`, at `start` to `end` of the answer.

    `numbers` are the passages that it cites (`Evidence.number`), each once, in order.
    """

    start: int
    end: int
    text: str
    form: Form
    numbers: tuple[int, ...] = ()


def split_answer(answer: str, *, wrapped: bool = False) -> list[Sentence]:
    """The sentences, list items, rows and titles, in order, with the markers after their full stop.

    Horizontal rules are left out. A line ends a sentence unless the text is `wrapped`.
    """
    sentences: list[Sentence] = []
    for start, end, form in _split_blocks(answer, wrapped=wrapped):
        ranges = _find_sentences(answer, start, end) if form is Form.PROSE else [(start, end)]
        for range_start, range_end in ranges:
            _append_sentence(sentences, _trim_sentence(answer, range_start, range_end, form))
    return sentences


def assign_citations(
    sentences: Sequence[Sentence], citations: Sequence[Citation]
) -> list[Sentence]:
    """The sentences with the passages that are cited within each."""
    offsets = [citation.offset for citation in citations]
    assigned = []
    for sentence in sentences:
        first, end = bisect_left(offsets, sentence.start), bisect_left(offsets, sentence.end)
        numbers = dict.fromkeys(citation.number for citation in citations[first:end])
        assigned.append(replace(sentence, numbers=tuple(numbers)))
    return assigned


def _append_sentence(sentences: list[Sentence], sentence: Sentence | None) -> None:
    """Append a sentence; markers alone are joined to the one before."""
    if sentence is None:
        return
    if sentences and _BARE.fullmatch(sentence.text) and sentences[-1].form is not Form.TITLE:
        last = sentences[-1]
        gap = " " * (sentence.start - last.end)
        sentences[-1] = Sentence(
            last.start, sentence.end, last.text + gap + sentence.text, last.form
        )
    else:
        sentences.append(sentence)


def _trim_sentence(answer: str, start: int, end: int, form: Form) -> Sentence | None:
    if form is Form.PROSE and (bullet := _BULLET.match(answer, start, end)):
        start = bullet.end()
    text = answer[start:end]
    start += len(text) - len(text.lstrip())
    text = text.strip()
    return Sentence(start, start + len(text), text, form) if text else None


def _split_blocks(answer: str, *, wrapped: bool) -> Iterator[tuple[int, int, Form]]:
    """Blocks of one form: paragraphs, items, rows, titles and code."""
    block_start, end = -1, 0
    lines = answer.split("\n")
    for (line, fence, bounds), following in zip(
        track_code_fences(lines), [*lines[1:], ""], strict=True
    ):
        start, end = end, end + len(line) + 1
        if fence:
            if block_start >= 0:
                yield block_start, start, Form.PROSE
            block_start = -1
            if not bounds and line.strip():
                yield start, end, Form.CODE
            continue
        form = _detect_form(line, following)
        if block_start >= 0 and (form is not Form.PROSE or not wrapped or _is_item_start(line)):
            yield block_start, start, Form.PROSE
            block_start = -1
        if form is not Form.PROSE and line.strip() and not _RULE.match(line):
            yield start, end, form
        elif form is Form.PROSE and block_start < 0 and line.strip():
            block_start = start
    if block_start >= 0:
        yield block_start, len(answer), Form.PROSE


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
    """The ranges of the sentences of a paragraph."""
    position = bullet.end() if (bullet := _BULLET.match(answer, start, end)) else start
    sentence_start = start
    while match := _END.search(answer, position, end):
        position = match.end()
        head = answer[max(sentence_start, match.start() - _CONTEXT_CHARACTERS) : match.start() + 1]
        follows_digit = answer[match.start() - 1 : match.start()].isdigit()
        if _ABBREVIATED.search(head) or (
            follows_digit and _STARTS_DIGIT.match(answer, position, end)
        ):
            continue
        if following := _FOLLOWING.match(answer, position, end):
            position = following.end()
        yield sentence_start, position
        sentence_start = position
    yield sentence_start, end


_CLAIMLESS = ("question", "lead_in", "source", "aside")
_LACKS = ("lack_en", "lack_ko")
_NOTES = ("passages_more", "notice_widened", "notice_gone")


def is_without_claim(sentence: Sentence) -> bool:
    """Whether the form or the words show that the sentence says nothing that could be checked."""
    text = MARKER.sub("", sentence.text).strip()
    return (
        sentence.form in (Form.TITLE, Form.CODE)
        or _is_matching_any(_CLAIMLESS, text)
        or text in _load_notes()
        or _is_courtesy(text)
        or admits_lack(text, cites=bool(sentence.numbers))
    )


def admits_lack(text: str, *, cites: bool) -> bool:
    """Whether the sentence says that the documents lack something."""
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
    """Nura's own notices about how an answer was made."""
    return frozenset(get_reply(name, language) for name in _NOTES for language in ("ko", "en"))
