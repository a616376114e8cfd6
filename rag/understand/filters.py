"""Names of documents, and which of them a question holds: by issuer, project or title.

Every stretch of words of the question is a candidate; the store tells in one look-up which of them
are names. A wrong filter hides the right document, so that names which could be ordinary words of
a question do not filter (`is_distinct`).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from uuid import UUID

from rag import tokenize
from rag.lexicon import load_patterns, load_words
from rag.ports import PassageStore
from rag.tokenize.korean import PARTICLES
from rag.tokenize.text import to_letters
from rag.types import NamedDocument

FIELDS = ("issuer", "project_name", "title")
"""Metadata that names a document, in the order in which a filter is told."""
BETWEEN_NAMES = " | "
"""Between several names of one field in `NameFilter.values`."""
MAX_NAME_CHARACTERS = 200
"""Characters of a name; longer ones name nothing that a question could hold."""
MAX_PIECES = 80
MAX_NAME_PIECES = 24
"""In pieces: runs of one script; "제2차 기본 계획" has five."""
MIN_FIRST_WORD_LETTERS = 2
"""Letters that the first word of a law has, by which it is called: 효행법, of "효행 장려 및 …"."""

_IS = load_patterns("names")
_PIECE = re.compile(r"[가-힣]+|\d+|[^\W\d_가-힣]+")
_ENDINGS = PARTICLES | load_words("name_endings.ko")
MAX_ENDING_CHARACTERS = max(map(len, _ENDINGS))
_KINDS = tuple(load_words("document_kinds.ko"))
_NO_KINDS = load_words("no_document_kinds.ko")
_NO_LAWS = load_words("no_law_names.ko")
_STOP = load_words("stop.en") | load_words("asking.en")


# Names as they are compared


def to_name_key(name: str) -> str:
    """A name without spaces, marks and case: "전자 조달 (2세대)" and "전자조달2세대" are one."""
    return to_letters(tokenize.normalise(name))


def list_names(field: str, value: str) -> dict[str, str]:
    """Every normalised name that a value of one of `FIELDS` gives its document -> as shown.

    Issuers may be several ("법무부, 통계청"), and go by without legal form and "한국", too; laws go
    by their short name.
    """
    parts = _IS["between_issuers"].split(value) if field == "issuer" else [value]
    names = [part.strip() for part in parts]
    names_by_key = {to_name_key(name): name for name in names}
    if field == "title" and (law := _IS["long_law"].match(to_name_key(value))):
        names_by_key.setdefault(f"{law[1]}{law[2] or ''}법{law[3]}", names[0])
        first = value.split(maxsplit=1)[0].removesuffix("의")
        if len(first) >= MIN_FIRST_WORD_LETTERS:
            names_by_key.setdefault(f"{to_name_key(first)}법{law[3]}", names[0])
    if field == "issuer":
        for name in names:
            bare = to_name_key(_IS["legal_form"].sub(" ", tokenize.normalise(name)))
            names_by_key.setdefault(bare, name)
            names_by_key.setdefault(_IS["country"].sub("", bare), name)
    return {
        name: text
        for name, text in names_by_key.items()
        if 0 < len(name) <= MAX_NAME_CHARACTERS and len(text) <= MAX_NAME_CHARACTERS
    }


def find_names(text: str) -> set[str]:
    """The names in a text, without spaces: "공탁법", "소음ㆍ진동관리법시행령"."""
    matches = [match[0] for match in _IS["law"].finditer(text)]
    matches += [match[1] for match in _IS["quoted"].finditer(text)]
    bare = {re.sub(r"[\sㆍ·]+", "", name) for name in matches}
    return {name for name in bare - _NO_LAWS if not name.endswith("방법")}


# Names in a question


@dataclass(frozen=True, slots=True)
class NameFilter:
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


def find_filter(question: str, store: PassageStore) -> NameFilter | None:
    """The filter that a question asks for; None where it names nothing that the store knows."""
    text = tokenize.normalise(question)
    spans = _find_spans(text)
    names_by_key: dict[str, list[NamedDocument]] = defaultdict(list)
    for named in store.find_named(list(spans)) if spans else ():
        if is_distinct(named.field, named.value):
            names_by_key[named.name].append(named)
    chosen = _select_longest(
        (name, span)
        for name, group in names_by_key.items()
        for span in spans[name]
        # "법무부 장관" is a person, and not the issuer of a document
        if not (_is_issued(group) and _IS["person"].match(text, span.end))
    )
    groups = [names_by_key[name] for name in dict.fromkeys(name for name, _ in chosen)]
    rest = text
    for _, span in reversed(chosen):
        rest = f"{rest[: span.start]} {rest[span.cut :]}"
    if not groups or not (_PIECE.search(rest) or any(map(_is_own_name, groups))):
        return None
    documents = _combine_documents(groups)
    own = {frozenset(named.document_id for named in group) & documents for group in groups}
    return NameFilter(
        values=_group_values(groups),
        document_ids=documents,
        rest=" ".join(rest.split()),
        several=len(documents) > 1 and len(own) > 1,
        certain=any(named.field != "issuer" for group in groups for named in group),
    )


def is_distinct(field: str, value: str) -> bool:
    """Whether a name can hardly be meant otherwise.

    An issuer of three syllables; a name of a kind of document ("공탁법", "착수 보고서"); a name of
    several words, or a long Korean one. English names need more letters: they are made of plain
    words, and single ones are identifiers that many documents speak of.
    """
    parts = _PIECE.findall(tokenize.normalise(value).casefold())
    if all(part in _STOP or part in _KINDS or part.isdigit() for part in parts):
        return False
    name, several = "".join(parts), len(value.split()) > 1
    syllables = len(re.findall("[가-힣]", name))
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
    return to_name_key(value).endswith(_KINDS)


def _find_spans(text: str) -> dict[str, list[_Span]]:
    """Every name that could stand in the text, normalised, and where."""
    pieces = list(_PIECE.finditer(text))[:MAX_PIECES]
    ends = [list(_list_name_ends(*pair)) for pair in zip_longest(pieces, pieces[1:])]
    spans: dict[str, list[_Span]] = defaultdict(list)
    for first, piece in enumerate(pieces):
        if first and pieces[first - 1].end() == piece.start():
            continue  # a name begins with a word
        before = ""
        for last in range(first, min(first + MAX_NAME_PIECES, len(pieces))):
            for name, end, cut in ends[last]:
                if len(before) + len(name) > 1:
                    spans[before + name].append(_Span(piece.start(), end, cut))
            before += pieces[last].group().casefold()
    return spans


def _list_name_ends(
    piece: re.Match[str], after: re.Match[str] | None
) -> Iterable[tuple[str, int, int]]:
    """Ways in which a name may end with this piece: its last part, its end, the word's end."""
    text, end = piece.group().casefold(), piece.end()
    if after is not None and after.start() == end:
        if after.group() in _ENDINGS:  # "NASA는"
            yield text, end, after.end()
        elif after.group().isdigit() and text.endswith("제"):  # "공탁법제3조"
            yield text[:-1], end - 1, end - 1
        return
    yield text, end, end
    for length in range(1, min(MAX_ENDING_CHARACTERS, len(text) - 1) + 1):
        if text[-length:] in _ENDINGS:
            yield text[:-length], end - length, end


def _select_longest(places: Iterable[tuple[str, _Span]]) -> list[tuple[str, _Span]]:
    """The names that stand in no longer one, in the order of the text."""
    chosen: list[tuple[str, _Span]] = []
    for name, span in sorted(places, key=lambda place: (-len(place[0]), place[1].start)):
        if all(span.start >= other.end or span.end <= other.start for _, other in chosen):
            chosen.append((name, span))
    return sorted(chosen, key=lambda place: place[1].start)


def _is_issued(group: Sequence[NamedDocument]) -> bool:
    """Whether the name is that of an issuer and nothing else."""
    return all(named.field == "issuer" for named in group)


def _is_own_name(group: Sequence[NamedDocument]) -> bool:
    """False for a plain title: one that is all of a question may head another text."""
    return any(named.field != "title" or _is_kind(named.value) for named in group)


def _combine_documents(groups: Iterable[Sequence[NamedDocument]]) -> frozenset[UUID]:
    """Those of an issuer named and of a project or title named, where there are such; else all."""
    issued: set[UUID] = set()
    called: set[UUID] = set()
    for group in groups:
        issuer = any(named.field == "issuer" for named in group)
        (issued if issuer else called).update(named.document_id for named in group)
    return frozenset(issued & called or issued | called)


def _group_values(groups: Iterable[Sequence[NamedDocument]]) -> dict[str, str]:
    """The names by field, as written; a name that stands in several fields counts in the first."""
    values: dict[str, list[str]] = {field: [] for field in FIELDS}
    for group in groups:
        best = min(group, key=lambda named: (FIELDS.index(named.field), named.value))
        values[best.field].append(best.value)
    return {field: BETWEEN_NAMES.join(names) for field, names in values.items() if names}


# Documents of one family: "시행령에서는?" after a law means the decree that belongs to it

_WHOLE = ("모법", "본법")
"""Words for the law itself that a decree belongs to."""
MAX_FAMILY_CHARACTERS = 200
"""Characters of a question in which its kind is looked for."""


def find_siblings(text: str, titles: Iterable[str], store: PassageStore) -> tuple[UUID, ...]:
    """The documents whose title is that of a remembered one's family with the kind that is said.

    Empty where no kind is said, or the store has no such document.
    """
    kinds = {match[1] for match in _IS["family"].finditer(text[:MAX_FAMILY_CHARACTERS])}
    bases = {_IS["member"].sub("", title) for title in titles}
    names = [
        to_name_key(base if kind in _WHOLE else base + kind)
        for base in sorted(bases)
        for kind in sorted(kinds)
        if base
    ]
    documents = store.find_named(names) if names else []
    return tuple(dict.fromkeys(one.document_id for one in documents if one.field == "title"))
