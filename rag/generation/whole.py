"""A document itself instead of an answer: part by part, in the version that was shown.

Where that version is gone, what was shown of it then stands in its place, and that is said.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from rag import prompts
from rag.conversation import DocRef, View
from rag.generation import plain
from rag.ports import PassageStore
from rag.query.references_wish import LAST
from rag.types import Excerpt

MARKDOWN = (".md", ".markdown")
PART = 3000
"""Characters of a part."""
MOST = 5
"""Further documents that are named where several were asked for."""
LOOK = 600
"""Characters beyond `PART` in which a part may look for its end."""

Stretch = Callable[[int, int], Excerpt | None]
"""Text from an offset, of a length in characters."""

_ENDS = (
    re.compile(r"\n[ \t]*\n\s*"),
    re.compile(r"\n\s*"),
    re.compile(r"[.!?。](?:[\"'”’」』)\]])*\s+"),
    re.compile(r"\s+"),
)
_BETWEEN = "\n\n…\n\n"
"""Stands between two passages of a snapshot."""


@dataclass(frozen=True, slots=True)
class Whole:
    """A part of a document to be shown.

    `text` is Markdown. `ref` is the document in the version shown. `gone`: it cannot be read any
    more. `newer`: it has another version now than the one that was spoken of.
    """

    text: str
    view: View
    ref: DocRef
    gone: bool = False
    newer: bool = False


@dataclass(frozen=True, slots=True)
class _Part:
    text: str
    number: int
    parts: int


def show(  # noqa: PLR0913 - one request, by name
    ref: DocRef,
    readable: Mapping[UUID, int],
    part: int,
    store: PassageStore,
    language: str,
    *,
    present: bool = False,
    others: Sequence[DocRef] = (),
) -> Whole:
    """Part `part` of a document, the last one where there are fewer.

    `readable` tells the present version of every document that may be read. `present`: as it is
    now, whatever was shown then. `others` were asked for as well: that their turn comes later is
    said. Raises what the store raises.
    """
    found = _shown(ref, readable, part, store, language, present=present)
    if not others:
        return found
    titles = ", ".join(f"『{plain.title(one.title or one.source)}』" for one in others[:MOST])
    later = prompts.fill("whole_others", language, titles=titles)
    return replace(found, text=f"{found.text}\n\n{later}")


def _shown(  # noqa: PLR0913 - one request, by name
    ref: DocRef,
    readable: Mapping[UUID, int],
    part: int,
    store: PassageStore,
    language: str,
    *,
    present: bool,
) -> Whole:
    version = readable.get(ref.document_id)
    whole = None if version is None else _part(_of_store(ref.document_id, store), part)
    if version is None or whole is None:
        return _made(
            ref, _snapshot(ref, part), part, language, note=_gone(ref, language), gone=True
        )
    now = replace(ref, version=version)
    if present or version == ref.version:
        return _made(now, whole, part, language)
    versions = {"then": str(ref.version), "now": str(version)}
    kept = _snapshot(ref, part)
    if not kept.text:
        note = prompts.fill("whole_present", language, **versions)
        return _made(now, whole, part, language, note=note, newer=True)
    note = prompts.fill("whole_newer", language, **versions)
    return _made(ref, kept, part, language, note=note, newer=True)


def _gone(ref: DocRef, language: str) -> str:
    name = "whole_gone" if _kept(ref) else "whole_lost"
    return prompts.text(name, language)


def _made(  # noqa: PLR0913 - its parts, by name
    ref: DocRef,
    found: _Part,
    asked: int,
    language: str,
    *,
    note: str = "",
    gone: bool = False,
    newer: bool = False,
) -> Whole:
    name = plain.title(ref.title or ref.source)
    heading = f"**『{name}』 (v{ref.version}) {found.number}/{found.parts}**"
    beyond = found.parts < asked < LAST
    said = prompts.fill("whole_beyond", language, part=str(asked)) if beyond else ""
    own = ref.source.casefold().endswith(MARKDOWN)
    text = plain.markdown(found.text) if own else plain.plain(found.text)
    pieces = (heading, note, said, text, _end(found, language))
    return Whole(
        text="\n\n".join(piece for piece in pieces if piece),
        view=View(ref.document_id, found.number, found.parts),
        ref=ref,
        gone=gone,
        newer=newer,
    )


def _end(found: _Part, language: str) -> str:
    if found.number < found.parts:
        return f"---\n\n{prompts.text('whole_next', language)}"
    return f"---\n\n{prompts.text('whole_end', language)}" if found.parts > 1 else ""


def _kept(ref: DocRef) -> str:
    """What was shown of the document then."""
    return _BETWEEN.join(ref.passages) or ref.snippet


def _snapshot(ref: DocRef, part: int) -> _Part:
    text = _kept(ref)

    def stretch(start: int, length: int) -> Excerpt:
        return Excerpt(text[start : start + length], start, len(text))

    return _part(stretch, part) or _Part("", 1, 1)


def _of_store(document_id: UUID, store: PassageStore) -> Stretch:
    return lambda start, length: store.read(document_id, start, length)


def _part(stretch: Stretch, part: int) -> _Part | None:
    """The part with this number, or the last one; None where nothing can be read.

    Part n ends at the first end of a paragraph after n * `PART` characters, so that parts do not
    depend on which one was read before.
    """
    start = max(0, part - 1) * PART
    found = stretch(start, PART + LOOK)
    if found is None:
        return None
    parts = 1 + max(0, found.total - LOOK - 1) // PART
    number = min(max(1, part), parts)
    if number != max(1, part):
        start = (number - 1) * PART
        found = stretch(start, PART + LOOK)
        if found is None:
            return None
    text = found.text
    first = _edge(text[:LOOK]) if number > 1 else 0
    last = PART + _edge(text[PART : PART + LOOK]) if number < parts else len(text)
    return _Part(text[first:last].strip("\n"), number, parts)


def _edge(text: str) -> int:
    """Where a part ends within the text: the end of a paragraph, a line, a sentence, a word."""
    found = next((match for pattern in _ENDS if (match := pattern.search(text))), None)
    return found.end() if found else 0
