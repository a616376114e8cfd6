"""Which documents a question names, by issuer, project or title.

Every stretch of words of the question is a candidate; the store tells in one look-up which of them
are names. A wrong filter hides the right document, so that names which could be ordinary words of
a question do not filter (`distinct`).
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from uuid import UUID

from rag import particles
from rag.ports import PassageStore
from rag.query.names import FIELDS, normalised
from rag.types import Named
from rag.words import words

ALTERNATIVES = " | "
"""Between several names of one field in `Filter.values`."""

MOST_PIECES = 80
LONGEST_NAME = 24
"""In pieces: runs of one script; "제2차 기본 계획" has five."""

_PIECE = re.compile(r"[가-힣]+|\d+|[^\W\d_가-힣]+")
_HANGUL = re.compile("[가-힣]")
_ENDINGS = (
    *particles.PARTICLES,
    "상",
    "상의",
    "측",
    "측의",
    "측에서",
    "측은",
    "측이",
    "들",
    "들의",
)
_KINDS = tuple(words("document_kinds.ko"))
_NO_KINDS = words("no_document_kinds.ko")
_STOP = words("stop.en") | words("asking.en")
_PERSON = re.compile(
    r"\s*(?:장관|차관|청장|차장|처장|원장|위원장|총장|국장|사장|이사장|대변인|출신)"
)


@dataclass(frozen=True, slots=True)
class Filter:
    """The documents named. `values`: field -> names; `rest`: the question without the names.

    `several`: the names belong to different documents, each of which should be heard. `certain`:
    a document or a project is named, and not merely who issued it.
    """

    values: Mapping[str, str]
    document_ids: frozenset[UUID]
    rest: str
    several: bool
    certain: bool


@dataclass(frozen=True, slots=True)
class _Span:
    """A stretch of the question; `cut` is where the word ends that carries its particle."""

    start: int
    end: int
    cut: int


def find(question: str, store: PassageStore) -> Filter | None:
    """The filter that a question asks for; None where it names nothing that the store knows."""
    text = unicodedata.normalize("NFKC", question)
    spans = _spans(text)
    if not spans:
        return None
    found: dict[str, list[Named]] = defaultdict(list)
    for named in store.named(list(spans)):
        if distinct(named.field, named.value):
            found[named.name].append(named)
    kept = _longest({name: _meant(text, spans[name], found[name]) for name in found})
    rest = _without(text, [span for _, span in kept])
    if not kept or not (_PIECE.search(rest) or _own_name(found[name] for name, _ in kept)):
        return None
    groups = {name: found[name] for name in dict.fromkeys(name for name, _ in kept)}
    documents = _documents(groups.values())
    own = {frozenset(named.document_id for named in group) & documents for group in groups.values()}
    return Filter(
        values=_values(groups.values()),
        document_ids=documents,
        rest=rest,
        several=len(documents) > 1 and len(own) > 1,
        certain=any(named.field != "issuer" for group in groups.values() for named in group),
    )


def distinct(field: str, value: str) -> bool:
    """Whether a name can hardly be meant otherwise.

    An issuer of three syllables; a name of a kind of document ("공탁법", "착수 보고서"); a name of
    several words, or a long Korean one. English names need more letters: they are made of plain
    words, and single ones are identifiers that many documents speak of.
    """
    parts = _PIECE.findall(unicodedata.normalize("NFKC", value).casefold())
    if all(part in _STOP or part in _KINDS or part.isdigit() for part in parts):
        return False
    name, several = "".join(parts), len(value.split()) > 1
    syllables = len(_HANGUL.findall(name))
    if syllables * 2 < len(name):
        letters = sum(len(part) for part in parts if part not in _STOP and not part.isdigit())
        return letters >= 5 if field == "issuer" else several and letters >= 12
    if field == "issuer":
        return syllables >= 3
    return _is_kind(value) or len(name) >= (6 if several else 7)


def _is_kind(value: str) -> bool:
    """True for the name of a law, a report and the like, and not for "사용 방법"."""
    last = value.rsplit(maxsplit=1)[-1].strip("」』)]>\"'")
    if last in _NO_KINDS or (last.endswith("방법") and len(last) > 3):
        return False
    return normalised(value).endswith(_KINDS)


def _spans(text: str) -> dict[str, list[_Span]]:
    """Every name that could stand in the text, normalised, and where."""
    pieces = list(_PIECE.finditer(text))[:MOST_PIECES]
    names = [normalised(piece.group()) for piece in pieces]
    ends = [list(_ends(*pair)) for pair in zip_longest(pieces, pieces[1:])]
    found: dict[str, list[_Span]] = defaultdict(list)
    for first, piece in enumerate(pieces):
        if first and pieces[first - 1].end() == piece.start():
            continue  # a name begins with a word
        before = ""
        for last in range(first, min(first + LONGEST_NAME, len(pieces))):
            for name, end, cut in ends[last]:
                if len(before) + len(name) > 1:
                    found[before + name].append(_Span(piece.start(), end, cut))
            before += names[last]
    return found


def _ends(piece: re.Match[str], after: re.Match[str] | None) -> Iterable[tuple[str, int, int]]:
    """Ways in which a name may end with this piece: its last part, its end, the word's end."""
    text, end = normalised(piece.group()), piece.end()
    glued = after if after is not None and after.start() == end else None
    if glued is None:
        yield text, end, end
    elif glued.group() in _ENDINGS:  # "NASA는"
        yield text, end, glued.end()
    elif glued.group().isdigit() and text.endswith("제"):  # "공탁법제3조"
        yield text[:-1], end - 1, end - 1
    if glued is None and _HANGUL.match(text):
        for ending in _ENDINGS:
            if text.endswith(ending) and len(text) > len(ending):
                yield text[: -len(ending)], end - len(ending), end


def _meant(text: str, spans: Iterable[_Span], group: Sequence[Named]) -> list[_Span]:
    """Where a name is meant: "법무부 장관" is a person, and not the issuer of a document."""
    if any(named.field != "issuer" for named in group):
        return list(spans)
    return [span for span in spans if not _PERSON.match(text, span.end)]


def _own_name(groups: Iterable[Sequence[Named]]) -> bool:
    """False where all are plain titles: one that is all of a question may head another text."""
    return any(
        named.field != "title" or _is_kind(named.value) for group in groups for named in group
    )


def _longest(spans: Mapping[str, Sequence[_Span]]) -> list[tuple[str, _Span]]:
    """The names that stand in no longer one, in the order of the text."""
    places = [(name, span) for name, where in spans.items() for span in where]
    places.sort(key=lambda place: (-len(place[0]), place[1].start))
    kept: list[tuple[str, _Span]] = []
    for name, span in places:
        if all(span.start >= other.end or span.end <= other.start for _, other in kept):
            kept.append((name, span))
    return sorted(kept, key=lambda place: place[1].start)


def _documents(groups: Iterable[Sequence[Named]]) -> frozenset[UUID]:
    """Those of an issuer named and of a project or title named, where there are such; else all."""
    issued: set[UUID] = set()
    called: set[UUID] = set()
    for group in groups:
        issuer = any(named.field == "issuer" for named in group)
        (issued if issuer else called).update(named.document_id for named in group)
    return frozenset(issued & called or issued | called)


def _values(groups: Iterable[Sequence[Named]]) -> dict[str, str]:
    """The names by field, as written; a name that stands in several fields counts in the first."""
    values: dict[str, list[str]] = {field: [] for field in FIELDS}
    for group in groups:
        best = min(group, key=lambda named: (FIELDS.index(named.field), named.value))
        values[best.field].append(best.value)
    return {field: ALTERNATIVES.join(names) for field, names in values.items() if names}


def _without(text: str, spans: Iterable[_Span]) -> str:
    """The text without these stretches and their particles."""
    for span in sorted(spans, key=lambda span: -span.start):
        text = f"{text[: span.start]} {text[span.cut :]}"
    return " ".join(text.split())
