"""Finds references to documents by their place: "이전 1번 문서", "the second one you cited".

One matcher over the named patterns of `rag/lexicon/references*.toml`. A number with a word for
documents ("1번 문서") counts anywhere; a number alone must begin the message or be pointed at, and
the words after it must ask something of a document: "3번 위반하면" and "2번 출구" count other
things.
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
"""Characters at either end of a message that are searched."""
MAX_PLACES = 12
"""Most references in one message; a text with more is not a sentence."""
MAX_LEAD_CHARACTERS = 60
"""Characters before a reference that may belong to it."""

Span = tuple[int, int]
"""Start and end in the text."""


@dataclass(frozen=True, slots=True)
class Mention:
    """Words that may refer to documents by place.

    `places` count from 1, negative ones from the end; empty for "that document". `named` are the
    words between "that" and "document". `spans` are the parts of the text that the reference uses.
    `has_noun`: it has a word for documents or sources, not only a number; `kind`: a kind of
    document instead ("두 번째 법"). `refers_back`: it refers to something earlier ("방금", "you
    cited"). `counts_session`: places count over the whole session; `answer`: in the answer with
    this number, or for -2 in the last but one that had documents. `may_be_unshown` ("이 문서"): it
    may mean a document that was never shown. `others`: all documents but those at the places.
    """

    spans: tuple[Span, ...]
    places: tuple[int, ...] = ()
    named: str = ""
    has_noun: bool = False
    refers_back: bool = False
    counts_session: bool = False
    answer: int | None = None
    kind: str = ""
    may_be_unshown: bool = False
    others: bool = False


def find_mention(text: str) -> Mention | None:
    """The reference to documents at either end of a text; None if there is none."""
    if len(text) <= 2 * MAX_END_CHARACTERS:
        return _find_in_piece(text)
    if head := _find_in_piece(text[:MAX_END_CHARACTERS]):
        return head
    tail, shift = _find_in_piece(text[-MAX_END_CHARACTERS:]), len(text) - MAX_END_CHARACTERS
    return tail and replace(
        tail, spans=tuple((start + shift, end + shift) for start, end in tail.spans)
    )


def remove_spans(text: str, spans: Sequence[Span]) -> str:
    """The text without these spans and without the punctuation that they leave behind."""
    for start, end in sorted(spans, reverse=True):
        text = f"{text[:start]} {text[end:]}"
    return re.sub(r"\s([,.?!:;])", r"\1", " ".join(text.split())).lstrip(" ,.;:·").strip()


def replace_with_pronoun(text: str, spans: Sequence[Span]) -> str:
    """The text with "it" for the first span: "What does document 2 say?"."""
    start, end = min(spans)
    preposition = re.match(r"\s*(in|about|of|from)\b", text[start:end], re.IGNORECASE)
    pronoun = f"{preposition[1]} it" if preposition else "it"
    later = [(first - end, last - end) for first, last in spans if first >= end]
    return f"{text[:start].strip()} {pronoun} {remove_spans(text[end:], later)}".replace(
        " ?", "?"
    ).strip()


def read_places(text: str) -> tuple[int, ...]:
    """The numbers in a text, in order; those counted from the end are negative.

    "2번" is 2, "1~3" 1, 2 and 3, "the last one" -1, "second to last" -2.
    """
    places: list[int] = []
    at = 0
    for span in _ANY["range"].finditer(text):
        first, last = map(_read_digits, span.groups())
        if first <= last:
            places += (*_read_numbers(text, at, span.start()), *range(first, last + 1))
            at = span.end()
    return (*places, *_read_numbers(text, at, len(text)))


def _read_digits(text: str) -> int:
    return int(text) if text.isdigit() else _parse_number_word(text)


def _read_numbers(text: str, start: int, end: int) -> Iterator[int]:
    return map(_read_number, _ANY["number"].finditer(text, start, end))


def _read_number(match: re.Match[str]) -> int:
    if match["digits"]:
        return 0 if match["minus"] else int(match["digits"])
    if match["mark"]:
        return _CIRCLED.index(match["mark"]) + 1
    if match["from_end"]:
        return -abs(_parse_number_word(re.split(r"[\s-]", match["from_end"])[0]))
    return _parse_number_word(match["word"])


def _parse_number_word(word: str) -> int:
    """The number that a word stands for: 세, 열두, 십이, third, last (-1). Raises `KeyError`."""
    word = "".join(word.casefold().split())
    if word in _ANY.numbers:
        return _ANY.numbers[word]
    tens = next((tens for tens in _TENS if word.startswith(tens)), "")
    return _ANY.numbers[tens] + _ANY.numbers[word[len(tens) :]]


def _find_in_piece(text: str) -> Mention | None:
    if _KOREAN.search(text):
        session = _KO["session"].search(text)
        groups = _group_korean_items(text)
        mentions = [
            mention for group in groups if (mention := _to_korean_mention(text, group, session))
        ]
        if korean := _merge_mentions(mentions, mentions[:1]) or _find_korean_that(text):
            return korean
    if not _LATIN.search(text):
        return None
    session = _EN["session"].search(text)
    items = _find_items(text, _EN["several"], _EN["ordinals"], _EN["numbered"])
    mentions = [mention for item in items if (mention := _to_english_mention(text, item, session))]
    return _merge_mentions(mentions, mentions) or _find_english_that(text)


def _merge_mentions(candidates: Sequence[Mention], fallback: Sequence[Mention]) -> Mention | None:
    """The mentions of documents as one, or else the fallback; a flag of one applies to all."""
    mentions = [mention for mention in candidates if mention.has_noun or mention.kind] or fallback
    if not mentions:
        return None
    return Mention(
        spans=tuple(sorted({span for mention in mentions for span in mention.spans})),
        places=tuple(dict.fromkeys(place for mention in mentions for place in mention.places)),
        has_noun=any(mention.has_noun for mention in mentions),
        refers_back=any(mention.refers_back for mention in mentions),
        counts_session=any(mention.counts_session for mention in mentions),
        answer=next((mention.answer for mention in mentions if mention.answer is not None), None),
        kind=next((mention.kind for mention in mentions if mention.kind), ""),
        others=any(mention.others for mention in mentions),
    )


def _find_items(text: str, *shapes: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """The first `MAX_PLACES` matches of each pattern in text order, without overlaps."""
    matches = [match for shape in shapes for match in islice(shape.finditer(text), MAX_PLACES)]
    end = -1
    for match in sorted(matches, key=lambda match: (match.start(), -match.end())):
        if match.start() >= end:
            yield match
            end = match.end()


def _get_parts(item: re.Match[str]) -> Mapping[str, str]:
    """The named parts of a match; empty if its pattern does not have them."""
    return defaultdict(str, {name: part or "" for name, part in item.groupdict().items()})


def _read_item_places(item: re.Match[str], *names: str) -> tuple[int, ...]:
    """The places in the first of these parts that an item has."""
    parts = _get_parts(item)
    if not parts["side"]:
        places = read_places(next(parts[name] for name in names if parts[name]))
        return tuple(-place for place in places) if parts["from_end"] else places
    count = read_places(parts["count"])[0]
    last = read_places(parts["side"]) == (-1,)
    return tuple(range(-count, 0)) if last else tuple(range(1, count + 1))


def _drop_if_overlapping(match: re.Match[str] | None, span: Span) -> re.Match[str] | None:
    """The match; None where it overlaps the span."""
    return match if match and not (match.start() < span[1] and span[0] < match.end()) else None


# In Korean


def _group_korean_items(text: str) -> list[list[re.Match[str]]]:
    """The references to places, grouped if they are joined: "1번과 3번 문서".

    A blank is enough to join those that share a noun: "1번 2번 3번 문서".
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
    """Whether the words between two places join them."""
    between = text[left.end() : right.start()]
    return bool(between.strip() and _KO["join"].fullmatch(between))


def _has_shared_noun(text: str, left: re.Match[str], group: Sequence[re.Match[str]]) -> bool:
    """Whether a place directly precedes a group whose noun applies to it, too."""
    between = text[left.end() : group[0].start()]
    return not (between.strip() or _get_parts(left)["noun"]) and bool(_get_parts(group[-1])["noun"])


def _group_places(text: str, group: Sequence[re.Match[str]]) -> tuple[int, ...]:
    """The places of a group; "첫 번째부터 세 번째" includes those in between."""
    places: list[int] = []
    previous = group[0]
    for item in group:
        item_places = _read_item_places(item, "end", "head", "spelled", "ordinal")
        if places and _KO["through"].fullmatch(text, previous.end(), item.start()):
            places += range(places[-1] + 1, item_places[0])
        places += item_places
        previous = item
    return tuple(places)


def _to_korean_mention(
    text: str, group: Sequence[re.Match[str]], session: re.Match[str] | None
) -> Mention | None:
    parts, (start, end) = _get_parts(group[-1]), (group[0].start(), group[-1].end())
    has_noun, kind = bool(parts["noun"]), parts["kind"]
    if (parts["end"] or parts["head"]) and not (has_noun or kind or parts["form"]):
        return None
    places = _group_places(text, group)
    text_before = text[max(0, start - MAX_LEAD_CHARACTERS) : start]
    if _KO["not_these"].match(text, end):
        rest = text.find("나머지", end)
        span = (start, _find_reference_end(text, rest + len("나머지")))
        return (
            Mention((span,), places, has_noun=has_noun, refers_back=True, others=True)
            if rest >= 0
            else None
        )
    handed_in = (has_noun or parts["form"]) and _KO["handed_in"].match(text, end)
    if handed_in or _KO["of_the_user"].search(text_before):
        return None
    answer, back, other = (_KO[name].search(text_before) for name in ("answer", "back", "other"))
    session = _drop_if_overlapping(session, (start, start + 1))
    is_pointed = bool(session or answer or back)
    if not has_noun:
        if not (is_pointed or other or _KO["lead"].fullmatch(text, 0, start)):
            return None
        if not _is_document_number(text, end, parts, is_pointed=is_pointed, many=len(group) > 1):
            return None
    spans = [(start, _find_reference_end(text, end))]
    spans += [session.span()] if session else []
    spans += [
        (start - len(text_before) + match.start(), start)
        for match in (answer, back, other)
        if match
    ]
    return Mention(
        spans=tuple(spans),
        places=places,
        has_noun=has_noun,
        refers_back=back is not None,
        counts_session=session is not None,
        answer=answer and (-2 if answer["before"] else read_places(answer["number"])[0]),
        kind=kind,
    )


def _is_document_number(
    text: str, end: int, parts: Mapping[str, str], *, is_pointed: bool, many: bool
) -> bool:
    """Whether the words after a number without a noun ask something of a document."""
    if parts["spelled"] and not many:
        return False
    if parts["kind"] or parts["form"]:
        return True
    if not (is_pointed or many) and _KO["times"].match(text, end):
        return False
    compared = many and _KO["compared"].match(text, end)
    if compared and not compared["word"].startswith(tuple(load_words("numbered.ko"))):
        return True
    return bool(_KO["tail"].match(text, end))


def _find_reference_end(text: str, end: int) -> int:
    """The end of a reference including its particle and words that connect it to the rest."""
    match = _KO["cut"].match(text, end)
    return match.end() if match else end


def _find_korean_that(text: str) -> Mention | None:
    """A reference by "that" or by time: "아까 그 문서", "위 문서", "그 상표법 문서"."""
    for match in _KO["that"].finditer(text):
        parts, text_before = _get_parts(match), text[: match.start()]
        named, time, that = parts["named"].strip(), parts["time"], parts["that"].strip()
        if not (time or that) or _KO["antecedent"].search(text_before):
            continue
        if any(_KO[name].match(text, match.end()) for name in ("not_these", "handed_in")):
            continue
        if any(_KO["of_the_user"].search(piece) for piece in (text_before, f"{time} {named} ")):
            continue
        material = parts["noun"].startswith("자료") and not time
        if material and not _KO["read_there"].match(text, match.end()):
            continue
        named = "" if _KO["modifier"].fullmatch(named) else named
        start = match.end() - len(match[0].lstrip())
        is_earlier = bool(time) or that in {"그", "저"}
        return Mention(
            spans=((start, _find_reference_end(text, match.end())),),
            named=named,
            has_noun=True,
            refers_back=is_earlier,
            may_be_unshown=not (_KO["just_now"].match(time) if named else is_earlier),
        )
    return None


# In English

_VERBS = load_words("reference_verbs.en")
"""Words after a number that means a document; any other word is a noun that it belongs to."""


def _to_english_mention(
    text: str, item: re.Match[str], session: re.Match[str] | None
) -> Mention | None:
    parts, (start, end) = _get_parts(item), item.span()
    shown_after = _EN["shown_after"].match(text, end)
    session = _drop_if_overlapping(session, (start, end))
    users_own = _EN["users"].match(text, end) or (_EN["of"].match(text, end) and not session)
    text_before = text[max(0, start - MAX_LEAD_CHARACTERS) : start]
    if (users_own and not shown_after) or _EN["not_these"].search(text_before):
        return None
    lead = _EN["before"].search(text_before)
    has_noun, back = bool(parts["noun"]), bool(shown_after or (lead and lead["answer"]))
    if not (has_noun or back or session or _EN["lead"].fullmatch(text, 0, start)):
        return None
    if item.re is _EN["numbered"] and _is_counting_noun(text, end, counted=has_noun):
        return None
    spans = [(start - len(lead[0]) if lead else start, (shown_after or item).end())]
    spans += [session.span()] if session else []
    return Mention(
        spans=tuple(spans),
        places=_read_item_places(item, "ordinals", "numbers", "numbers_too", "bare", "mark"),
        has_noun=has_noun or bool(parts["mark"] and back),
        refers_back=back,
        counts_session=session is not None,
        kind=parts["kind"].casefold().rstrip("s"),
    )


def _is_counting_noun(text: str, end: int, *, counted: bool) -> bool:
    """Whether a number belongs to a following noun: "the number 2 rule", "file 3 copies"."""
    follows = re.compile(r"\s+([a-z]+)").match(text, end)
    if follows is None or follows[1] in _VERBS:
        return False
    return not counted or follows[1].endswith("s")


def _find_english_that(text: str) -> Mention | None:
    """A reference by "that": "that document", "the lease document you cited"."""
    for match in _EN["that"].finditer(text):
        parts, text_before = _get_parts(match), text[: match.start()]
        if not (parts["that"] or parts["shown"]) or _EN["not_these"].search(text_before):
            continue
        is_users_own = not parts["shown"] and _EN["users"].match(text, match.end())
        if is_users_own or _EN["antecedent"].search(text_before):
            continue
        named = _EN["modifier"].sub("", parts["named"]).strip()
        lead = _EN["before"].search(text_before)
        is_this = parts["that"].casefold() == "this" or bool(named)
        return Mention(
            spans=((lead.start() if lead else match.start(), match.end()),),
            named=named,
            has_noun=True,
            refers_back=bool(parts["shown"]),
            may_be_unshown=is_this and not parts["shown"],
        )
    return None
