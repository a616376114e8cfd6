"""What a message says of documents by their place: "이전 1번 문서", "the second one you cited".

One matcher over the named patterns of `rag/lexicon/references*.toml`. A number with a word for
documents says so anywhere ("1번 문서"); a number alone must open the message or be pointed at, and
what follows must ask something of a document: "3번 위반하면" and "2번 출구" count other things.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from rag.lexicon import load_patterns, load_words

_ANY, _KO, _EN = (
    load_patterns("references"),
    load_patterns("references.ko"),
    load_patterns("references.en"),
)
_CIRCLED = _ANY.pieces["circled"]
_TENS = ("스물", "열", "십")
_KOREAN = re.compile(rf"[가-힣{_CIRCLED}]")
_LATIN = re.compile(r"[A-Za-z]{2}|[#\[]\s?\d")

MAX_END_CHARACTERS = 250
"""Characters at either end of a message that are searched for references."""
MAX_PLACES = 12
"""Most references read in one message; more are no sentence."""
MAX_LEAD_CHARACTERS = 60
"""Characters before a place that may belong to it."""

Span = tuple[int, int]
"""Start and end in the text."""


@dataclass(frozen=True, slots=True)
class Mention:
    """Words that may refer to documents by place.

    `places` count from 1, negative ones from the end; none: "that document". `named` are words
    between "that" and "document". `spans` are what the reference takes of the text.
    `noun`: documents or sources are spoken of, and not only a number; `kind`: a kind of them
    instead ("두 번째 법"). `back`: something said earlier is spoken of ("방금", "you cited").
    `session`: counted over the whole session; `answer`: of the answer with this number, -2: of the
    one before the last with documents. `soft` ("이 문서"): may as well be one that was never shown.
    `others`: all but the places.
    """

    spans: tuple[Span, ...]
    places: tuple[int, ...] = ()
    named: str = ""
    noun: bool = False
    back: bool = False
    session: bool = False
    answer: int | None = None
    kind: str = ""
    soft: bool = False
    others: bool = False


def find_mention(text: str) -> Mention | None:
    """The documents that a text names by place at its ends; None where it names none."""
    if len(text) <= 2 * MAX_END_CHARACTERS:
        return _find_in_piece(text)
    if head := _find_in_piece(text[:MAX_END_CHARACTERS]):
        return head
    tail, shift = _find_in_piece(text[-MAX_END_CHARACTERS:]), len(text) - MAX_END_CHARACTERS
    return tail and replace(
        tail, spans=tuple((start + shift, end + shift) for start, end in tail.spans)
    )


def remove_spans(text: str, spans: Sequence[Span]) -> str:
    """The text without these stretches, cleaned of the marks that they leave behind."""
    for start, end in sorted(spans, reverse=True):
        text = f"{text[:start]} {text[end:]}"
    return re.sub(r"\s([,.?!:;])", r"\1", " ".join(text.split())).lstrip(" ,.;:·").strip()


def replace_with_pronoun(text: str, spans: Sequence[Span]) -> str:
    """The text with "it" in place of the first stretch: "What does document 2 say?"."""
    start, end = min(spans)
    preposition = re.match(r"\s*(in|about|of|from)\b", text[start:end], re.IGNORECASE)
    said = f"{preposition[1]} it" if preposition else "it"
    later = [(one - end, other - end) for one, other in spans if one >= end]
    return f"{text[:start].strip()} {said} {remove_spans(text[end:], later)}".replace(
        " ?", "?"
    ).strip()


def read_places(said: str) -> tuple[int, ...]:
    """The numbers in what was said, in order, from the end below 0.

    "2번" is 2, "1~3" 1, 2 and 3, "the last one" -1, "second to last" -2.
    """
    found: list[int] = []
    at = 0
    for span in _ANY["range"].finditer(said):
        first, last = map(_read_digits, span.groups())
        if first <= last:
            found += (*_read_numbers(said, at, span.start()), *range(first, last + 1))
            at = span.end()
    return (*found, *_read_numbers(said, at, len(said)))


def _read_digits(said: str) -> int:
    return int(said) if said.isdigit() else _parse_number_word(said)


def _read_numbers(said: str, start: int, end: int) -> Iterator[int]:
    return map(_read_number, _ANY["number"].finditer(said, start, end))


def _read_number(match: re.Match[str]) -> int:
    if match["digits"]:
        return 0 if match["minus"] else int(match["digits"])
    if match["mark"]:
        return _CIRCLED.index(match["mark"]) + 1
    if match["from_end"]:
        return -abs(_parse_number_word(re.split(r"[\s-]", match["from_end"])[0]))
    return _parse_number_word(match["word"])


def _parse_number_word(word: str) -> int:
    """The number that a word spells: 세, 열두, 십이, third, last (-1). Raises `KeyError`."""
    word = "".join(word.casefold().split())
    if word in _ANY.numbers:
        return _ANY.numbers[word]
    tens = next((tens for tens in _TENS if word.startswith(tens)), "")
    return _ANY.numbers[tens] + _ANY.numbers[word[len(tens) :]]


def _find_in_piece(text: str) -> Mention | None:
    if _KOREAN.search(text):
        session = _KO["session"].search(text)
        groups = _group_korean_items(text)
        found = [one for group in groups if (one := _to_korean_mention(text, group, session))]
        if korean := _merge_mentions(found, found[:1]) or _find_korean_that(text):
            return korean
    if not _LATIN.search(text):
        return None
    session = _EN["session"].search(text)
    items = _find_items(text, _EN["several"], _EN["ordinals"], _EN["numbered"])
    found = [one for item in items if (one := _to_english_mention(text, item, session))]
    return _merge_mentions(found, found) or _find_english_that(text)


def _merge_mentions(found: Sequence[Mention], unsure: Sequence[Mention]) -> Mention | None:
    """Those that speak of documents as one, else the unsure ones; what one says holds for all."""
    mentions = [one for one in found if one.noun or one.kind] or unsure
    if not mentions:
        return None
    return Mention(
        spans=tuple(sorted({span for one in mentions for span in one.spans})),
        places=tuple(dict.fromkeys(place for one in mentions for place in one.places)),
        noun=any(one.noun for one in mentions),
        back=any(one.back for one in mentions),
        session=any(one.session for one in mentions),
        answer=next((one.answer for one in mentions if one.answer is not None), None),
        kind=next((one.kind for one in mentions if one.kind), ""),
        others=any(one.others for one in mentions),
    )


def _find_items(text: str, *shapes: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """The first `MAX_PLACES` matches of each pattern in text order, none within another."""
    found = [match for shape in shapes for match in islice(shape.finditer(text), MAX_PLACES)]
    end = -1
    for match in sorted(found, key=lambda match: (match.start(), -match.end())):
        if match.start() >= end:
            yield match
            end = match.end()


def _get_parts(item: re.Match[str]) -> Mapping[str, str]:
    """The named parts of a match; those are empty that its pattern does not know."""
    return defaultdict(str, {name: said or "" for name, said in item.groupdict().items()})


def _read_item_places(item: re.Match[str], *names: str) -> tuple[int, ...]:
    """The places that an item names in the first of these parts."""
    said = _get_parts(item)
    if not said["side"]:
        found = read_places(next(said[name] for name in names if said[name]))
        return tuple(-place for place in found) if said["from_end"] else found
    count = read_places(said["count"])[0]
    last = read_places(said["side"]) == (-1,)
    return tuple(range(-count, 0)) if last else tuple(range(1, count + 1))


def _drop_if_overlapping(found: re.Match[str] | None, span: Span) -> re.Match[str] | None:
    """The match; None where it overlaps the span."""
    return found if found and not (found.start() < span[1] and span[0] < found.end()) else None


# In Korean


def _group_korean_items(text: str) -> list[list[re.Match[str]]]:
    """The places named, those together that are joined: "1번과 3번 문서".

    A mere blank joins what one noun is said of: "1번 2번 3번 문서".
    """
    groups: list[list[re.Match[str]]] = []
    for item in _find_items(text, _KO["several"], _KO["numbered"], _KO["item"]):
        if groups and _are_joined(text, groups[-1][-1], item):
            groups[-1].append(item)
        else:
            groups.append([item])
    joined: list[list[re.Match[str]]] = []
    for group in reversed(groups):
        if joined and _has_shared_noun(text, group[-1], joined[-1]):
            joined[-1][:0] = group
        else:
            joined.append(group)
    return joined[::-1]


def _are_joined(text: str, left: re.Match[str], right: re.Match[str]) -> bool:
    """Whether words between two places name them together."""
    between = text[left.end() : right.start()]
    return bool(between.strip() and _KO["join"].fullmatch(between))


def _has_shared_noun(text: str, left: re.Match[str], group: Sequence[re.Match[str]]) -> bool:
    """Whether a place directly precedes a group whose noun applies to it, too."""
    between = text[left.end() : group[0].start()]
    return not (between.strip() or _get_parts(left)["noun"]) and bool(_get_parts(group[-1])["noun"])


def _group_places(text: str, group: Sequence[re.Match[str]]) -> tuple[int, ...]:
    """The places of a group; "첫 번째부터 세 번째" names what lies between them as well."""
    places: list[int] = []
    before = group[0]
    for item in group:
        found = _read_item_places(item, "end", "head", "spelled", "ordinal")
        if places and _KO["through"].fullmatch(text, before.end(), item.start()):
            places += range(places[-1] + 1, found[0])
        places += found
        before = item
    return tuple(places)


def _to_korean_mention(
    text: str, group: Sequence[re.Match[str]], session: re.Match[str] | None
) -> Mention | None:
    said, (start, end) = _get_parts(group[-1]), (group[0].start(), group[-1].end())
    noun, kind = bool(said["noun"]), said["kind"]
    if (said["end"] or said["head"]) and not (noun or kind or said["form"]):
        return None
    places = _group_places(text, group)
    before = text[max(0, start - MAX_LEAD_CHARACTERS) : start]
    if _KO["not_these"].match(text, end):
        rest = text.find("나머지", end)
        span = (start, _find_reference_end(text, rest + len("나머지")))
        return Mention((span,), places, noun=noun, back=True, others=True) if rest >= 0 else None
    handed_in = (noun or said["form"]) and _KO["handed_in"].match(text, end)
    if handed_in or _KO["of_the_user"].search(before):
        return None
    answer, back, other = (_KO[name].search(before) for name in ("answer", "back", "other"))
    session = _drop_if_overlapping(session, (start, start + 1))
    pointed = bool(session or answer or back)
    if not noun:
        if not (pointed or other or _KO["lead"].fullmatch(text, 0, start)):
            return None
        if not _is_document_number(text, end, said, pointed=pointed, many=len(group) > 1):
            return None
    spans = [(start, _find_reference_end(text, end))]
    spans += [session.span()] if session else []
    spans += [(start - len(before) + one.start(), start) for one in (answer, back, other) if one]
    return Mention(
        spans=tuple(spans),
        places=places,
        noun=noun,
        back=back is not None,
        session=session is not None,
        answer=answer and (-2 if answer["before"] else read_places(answer["number"])[0]),
        kind=kind,
    )


def _is_document_number(
    text: str, end: int, said: Mapping[str, str], *, pointed: bool, many: bool
) -> bool:
    """Whether a number without a noun that ends here is followed by what is asked of a document."""
    if said["spelled"] and not many:
        return False
    if said["kind"] or said["form"]:
        return True
    if not (pointed or many) and _KO["times"].match(text, end):
        return False
    compared = many and _KO["compared"].match(text, end)
    if compared and not compared["word"].startswith(tuple(load_words("numbered.ko"))):
        return True
    return bool(_KO["tail"].match(text, end))


def _find_reference_end(text: str, end: int) -> int:
    """Where a reference ends that ends here, with its particle and what ties it to the rest."""
    found = _KO["cut"].match(text, end)
    return found.end() if found else end


def _find_korean_that(text: str) -> Mention | None:
    """The reference by "that" or by when it was: "아까 그 문서", "위 문서", "그 상표법 문서"."""
    for found in _KO["that"].finditer(text):
        said, before = _get_parts(found), text[: found.start()]
        named, time, that = said["named"].strip(), said["time"], said["that"].strip()
        if not (time or that) or _KO["antecedent"].search(before):
            continue
        if any(_KO[name].match(text, found.end()) for name in ("not_these", "handed_in")):
            continue
        if any(_KO["of_the_user"].search(one) for one in (before, f"{time} {named} ")):
            continue
        material = said["noun"].startswith("자료") and not time
        if material and not _KO["read_there"].match(text, found.end()):
            continue
        named = "" if _KO["modifier"].fullmatch(named) else named
        start = found.end() - len(found[0].lstrip())
        spoken_of = bool(time) or that in {"그", "저"}
        return Mention(
            spans=((start, _find_reference_end(text, found.end())),),
            named=named,
            noun=True,
            back=spoken_of,
            soft=not (_KO["just_now"].match(time) if named else spoken_of),
        )
    return None


# In English

_VERBS = load_words("reference_verbs.en")
"""What follows a number that stands for a document, and no noun that is counted."""


def _to_english_mention(
    text: str, item: re.Match[str], session: re.Match[str] | None
) -> Mention | None:
    said, (start, end) = _get_parts(item), item.span()
    shown = _EN["shown_after"].match(text, end)
    session = _drop_if_overlapping(session, (start, end))
    users = _EN["users"].match(text, end) or (_EN["of"].match(text, end) and not session)
    before = text[max(0, start - MAX_LEAD_CHARACTERS) : start]
    if (users and not shown) or _EN["not_these"].search(before):
        return None
    lead = _EN["before"].search(before)
    noun, back = bool(said["noun"]), bool(shown or (lead and lead["answer"]))
    if not (noun or back or session or _EN["lead"].fullmatch(text, 0, start)):
        return None
    if item.re is _EN["numbered"] and _is_counting_noun(text, end, counted=noun):
        return None
    spans = [(start - len(lead[0]) if lead else start, (shown or item).end())]
    spans += [session.span()] if session else []
    return Mention(
        spans=tuple(spans),
        places=_read_item_places(item, "ordinals", "numbers", "numbers_too", "bare", "mark"),
        noun=noun or bool(said["mark"] and back),
        back=back,
        session=session is not None,
        kind=said["kind"].casefold().rstrip("s"),
    )


def _is_counting_noun(text: str, end: int, *, counted: bool) -> bool:
    """Whether a number heads a noun: "the number 2 rule", or counts it: "file 3 copies"."""
    follows = re.compile(r"\s+([a-z]+)").match(text, end)
    if follows is None or follows[1] in _VERBS:
        return False
    return not counted or follows[1].endswith("s")


def _find_english_that(text: str) -> Mention | None:
    """The reference by "that": "that document", "the lease document you cited"."""
    for found in _EN["that"].finditer(text):
        said, before = _get_parts(found), text[: found.start()]
        if not (said["that"] or said["shown"]) or _EN["not_these"].search(before):
            continue
        users = not said["shown"] and _EN["users"].match(text, found.end())
        if users or _EN["antecedent"].search(before):
            continue
        named = _EN["modifier"].sub("", said["named"]).strip()
        lead = _EN["before"].search(before)
        this = said["that"].casefold() == "this" or bool(named)
        return Mention(
            spans=((lead.start() if lead else found.start(), found.end()),),
            named=named,
            noun=True,
            back=bool(said["shown"]),
            soft=this and not said["shown"],
        )
    return None
