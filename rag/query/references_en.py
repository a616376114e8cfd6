"""References to documents in English: "the second one you cited", "doc #3", "the last source"."""

import re

from rag.query.references_found import Mention, Span, joined
from rag.query.references_numbers import CARDINALS, ORDINALS, places, spelled

_NOUN = r"(?:documents?|docs?|sources?|pdfs?|citations?|files?|references?)"
_FORM = r"ones?|results?"
_KIND = r"laws?|acts?|statutes?|reports?|regulations?|manuals?|guides?|papers?|contracts?"
_NOUN_ALONE = r"(?:documents?|docs?|sources?|pdfs?|citations?|files?|references?)"
_SHOWN_BY = (
    r"(?:that\s+|which\s+)?(?:you(?:'ve|\s+have)?\s+(?:just\s+|already\s+)?"
    r"(?:cited|showed|shown|mentioned|quoted|used|found|listed|gave|named|referred\s+to|"
    r"referenced|answered\s+from)"
    r"(?:\s+me)?|we\s+(?:just\s+)?(?:looked\s+at|saw|discussed|talked\s+about)|cited\b|listed\b|"
    r"shown\b|mentioned\b|above\b|"
    r"(?:in|from|of)\s+(?:your|the)\s+(?:last\s+|previous\s+|latest\s+)?(?:answer|reply|response|"
    r"list))"
    r"(?:\s+(?:above|earlier|before|just\s+now|a\s+moment\s+ago))?"
)
_ORDINAL = rf"(?:{ORDINALS}|last|final)"
_ORDINALS = re.compile(
    rf"\b(?P<ordinals>{_ORDINAL}(?:\s*(?:,|and|&)\s*(?:the\s+)?{_ORDINAL}){{0,5}})\s+"
    rf"(?:(?:cited|shown|listed|mentioned|relevant|found|retrieved)\s+)?"
    rf"(?:(?P<noun>{_NOUN})|(?P<form>{_FORM})|(?P<kind>{_KIND}))\b",
    re.IGNORECASE,
)
_NUMBER = rf"(?:\d{{1,4}}|{CARDINALS})"
_NUMBERED = re.compile(
    rf"\b(?P<noun>{_NOUN_ALONE})\s*(?:number\s*|no\.?\s*|nr\.?\s*|\#\s*)?"
    rf"(?P<numbers>{_NUMBER}(?:\s*(?:,|and|&|"
    rf"/)\s*(?:and\s+)?(?:{_NOUN_ALONE}\s+)?(?:\#\s*)?{_NUMBER}){{0,5}}|"
    rf"\[\d{{1,3}}\])(?![\w-])(?!\.\d)"
    r"|(?P<numbers_too>\#\s?\d{1,3}(?:\s*(?:,|and|&)\s*\#\s?\d{1,3}){0,5})\b"
    r"|\bnumber\s+(?P<bare>\d{1,2}|one|two|three|four|five)\b"
    rf"|(?P<mark>\[\d{{1,3}}\](?:\s*(?:,|and|&)\s*\[\d{{1,3}}\]){{0,5}})",
    re.IGNORECASE,
)
_SEVERAL = re.compile(
    rf"\b(?P<side>first|last|top|final)\s+(?P<count>two|three|four|five|"
    rf"[2-5])\s+(?:of\s+the\s+)?(?:(?:cited|shown)\s+)?"
    rf"(?:(?P<noun>{_NOUN})|(?P<form>{_FORM}))\b",
    re.IGNORECASE,
)
_SESSION = re.compile(
    r"(?:,\s*)?(?:\b(?:of|in|from|over|across|throughout|for|counting|counted\s+over)\s+)?"
    r"(?:(?:the|this|our)\s+)?(?:(?:whole|entire|full|complete)\s+(?:conversation|session|chat)|"
    r"(?:conversation|session|chat)\s+as\s+a\s+whole|(?:all\s+of\s+)?(?:this|"
    r"our)\s+(?:conversation|session|chat)\s+so\s+far|"
    r"all\s+(?:your\s+|the\s+)?answers)\b,?|"
    r"\bsession[- ]wide\b,?|\boverall\b,?(?=\s*(?:$|[?.!,]|the\b))",
    re.IGNORECASE,
)
_BEFORE = re.compile(
    r"(?:\b(?:according\s+to|based\s+on|with\s+reference\s+to|referring\s+to|looking\s+at|"
    r"with\s+respect\s+to|as\s+for|"
    r"what\s+about|how\s+about|in|from|of|on|using|with|within|about|per|see|for|to|under|by|"
    r"and)\s+)?"
    r"(?:\b(?:the|your|our|that|this|those|these|my)\s+)?(?:\b(?:previous|earlier|same|very|above)\s+)?$",
    re.IGNORECASE,
)
_PREVIOUS = re.compile(r"\b(?:previous|earlier|above|your)\s+$", re.IGNORECASE)
_SHOWN_AFTER = re.compile(rf"\s*,?\s*{_SHOWN_BY},?", re.IGNORECASE)
_USERS = re.compile(
    r"\s+(?:that\s+|which\s+)?(?:(?:I|we|one|they|you|he|she|applicants?)\s+(?:(?:have|"
    r"had)\s+)?(?:just\s+)?(?:need|must|should|have|has|"
    r"uploaded|attached|added|sent|submit\w*|file|filed|want\s+to\s+file|signed)\b|"
    r"to\s+(?:submit|file|sign|be|provide|present|attach|"
    r"send|upload|prepare)\b|(?:must|shall|should|needs?|has|have)\b|is\s+required|"
    r"are\s+required|required|needed|uploaded|attached|"
    r"copies|code|types?|formats?|numbers?|names?|size|extension|upload\w*)",
    re.IGNORECASE,
)
_OF = re.compile(
    r"\s+of\s+(?!(?:your|those|these|them|this\s+(?:conversation|chat|session))\b)", re.IGNORECASE
)
_NOT_THESE = re.compile(
    r"\b(?:not|except(?:\s+for)?|other\s+than|besides|apart\s+from|without|instead\s+of|ignor\w+|excluding|but)\s+(?:in\s+)?(?:the\s+)?$",
    re.IGNORECASE,
)
_LEAD = re.compile(
    r"\W*(?:(?:and|so|then|ok|okay|now|but|please|well|hmm|what|how|is|does|do|did|about|of|the|"
    r"in|on|from|for|with|"
    r"can|could|would|you|show|open|tell|explain|summari[sz]e|read|give|compare|display|"
    r"translate|quote|me|us|more|again|again|just|"
    r"say|says|according|to|use|using|based|look|at|check|see|describe|let's|let|back|go|was|"
    r"were|which|whole|entire|full|text|"
    r"i|want|need|d|like|know|it|that)\b\W*){0,10}",
    re.IGNORECASE,
)
_THAT = re.compile(
    rf"\b(?:(?P<that>that|this|the\s+same|the\s+previous|the\s+earlier|the\s+above|"
    rf"the\s+preceding|the\s+last-mentioned)|(?P<the>the))\s+"
    rf"(?P<named>(?:(?!(?:that|this|the|to|of|in|is|are|and|or|which|from|for|on|at|by|with|i|"
    rf"you|it|was|be|as)\b)[\w'()-]{{1,30}}\s+){{0,6}}?)"
    rf"(?P<noun>document|doc|source|file|pdf)\b(?!\s+(?:type|name|format|code|size|extension|"
    rf"number|upload)\w*)"
    rf"(?P<shown>\s*,?\s*{_SHOWN_BY}|\s+(?:from\s+)?(?:before|earlier|above)\b)?",
    re.IGNORECASE,
)
_ANTECEDENT = re.compile(
    r"\b(?:an?|my|his|her|their|any|each|every|some|our)\s+(?:[\w-]+\s+){0,3}"
    r"(?:document|file|form|certificate|contract|application|record|deed|letter|report|pdf|license|licence|permit|source)\b",
    re.IGNORECASE,
)


def find(text: str) -> Mention | None:
    """The reference in English words; None where there is none."""
    items = [*_SEVERAL.finditer(text), *_ORDINALS.finditer(text), *_NUMBERED.finditer(text)]
    items.sort(key=lambda item: (item.start(), -item.end()))
    found: list[Mention] = []
    end = -1
    for item in items:
        if item.start() >= end and (mention := _mention(text, item)):
            found.append(mention)
            end = item.end()
    sure = [one for one in found if one.noun or one.kind]
    return joined(sure) or joined(found) or _that(text)


def _mention(text: str, item: re.Match[str]) -> Mention | None:
    said = {
        "noun": None,
        "form": None,
        "kind": None,
        "bare": None,
        "mark": None,
        **item.groupdict(),
    }
    start, end = item.span()
    shown = _SHOWN_AFTER.match(text, end)
    session = _SESSION.search(text)
    if session and session.start() < end and start < session.end():
        session = None
    if not shown and (_USERS.match(text, end) or (_OF.match(text, end) and not session)):
        return None
    before = text[max(0, start - 60) : start]
    lead = _BEFORE.search(before)
    first = start - len(lead[0]) if lead else start
    if _NOT_THESE.search(before):
        return None
    noun = bool(said["noun"])
    back = bool(shown or _PREVIOUS.search(before))
    if not (noun or back or session) and not _LEAD.fullmatch(text, 0, start):
        return None
    if noun and item.re is _NUMBERED and _counts(text, item):
        return None
    spans: list[Span] = [(first, shown.end() if shown else end)]
    spans += [session.span()] if session else []
    return Mention(
        spans=tuple(spans),
        places=_places(item),
        noun=noun or (said["mark"] is not None and back),
        back=back,
        session=session is not None,
        kind=(said["kind"] or "").casefold().rstrip("s"),
    )


def _counts(text: str, item: re.Match[str]) -> bool:
    """A verb and how many: "file 3 copies", "source 2 volunteers"."""
    singular = not item["noun"].casefold().endswith("s")
    many = len(places(item["numbers"])) > 1 if item["numbers"][0].isdigit() else False
    if item["noun"].casefold() not in {"file", "files", "source", "sources", "document"}:
        return False
    follows = re.match(r"\s+([a-z]+)", text[item.end() : item.end() + 40])
    if follows is None or (singular and follows[1] in _AFTER_NUMBER) or many:
        return False
    return follows[1] not in _AFTER_NUMBER


_AFTER_NUMBER = frozenset(
    [
        "say",
        "says",
        "said",
        "about",
        "in",
        "on",
        "and",
        "or",
        "with",
        "for",
        "of",
        "please",
        "again",
        "as",
        "is",
        "was",
        "does",
        "do",
        "did",
        "mention",
        "mentions",
        "contain",
        "contains",
        "only",
        "instead",
        "too",
        "also",
        "from",
        "to",
        "at",
        "regarding,",
        "concerning",
        "mean",
        "means",
        "define",
        "defines",
        "state",
        "states",
        "cover",
        "covers",
        "tell",
        "tells",
        "give",
        "gives",
        "have",
        "has",
        "part",
        "page",
        "list",
        "lists",
        "fully",
        "whole",
        "whether",
        "how",
        "what",
        "when",
        "who",
        "the",
        "that",
        "which",
        "you",
        "we",
        "i",
        "it",
        "but",
        "then",
        "now",
        "against",
        "versus",
        "vs",
    ]
)


def _places(item: re.Match[str]) -> tuple[int, ...]:
    said = {"side": None, "ordinals": None, **item.groupdict()}
    if said["side"]:
        count = int(item["count"]) if item["count"].isdigit() else spelled(item["count"])
        last = said["side"].casefold() in {"last", "final"}
        return tuple(range(-count, 0)) if last else tuple(range(1, count + 1))
    words = (
        said["ordinals"] or said["numbers"] or said["numbers_too"] or said["bare"] or said["mark"]
    )
    pattern = rf"\d{{1,4}}|\b(?:{ORDINALS}|{CARDINALS}|last|final)\b"
    found = re.findall(pattern, str(words), re.IGNORECASE)
    return tuple(int(word) if word.isdigit() else _spelled(word) for word in found)


def _spelled(word: str) -> int:
    digits = re.match(r"\d+", word)
    return int(digits[0]) if digits else spelled(word)


def _that(text: str) -> Mention | None:
    for found in _THAT.finditer(text):
        before = text[: found.start()]
        named, shown = found["named"].strip(), found["shown"]
        if not (found["that"] or shown) or _NOT_THESE.search(before + "the "[:0]):
            continue
        if _ANTECEDENT.search(before) or (not shown and _USERS.match(text, found.end())):
            continue
        lead = _BEFORE.search(before)
        start = found.start() - len(lead[0]) if lead else found.start()
        this = (found["that"] or "").casefold() == "this" and not shown
        return Mention(
            spans=((start, found.end()),),
            named=named,
            noun=True,
            back=bool(shown),
            soft=this,
        )
    return None
