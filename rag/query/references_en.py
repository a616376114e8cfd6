"""References to documents in English: "the second one you cited", "doc #3", "the last source"."""

import re

from rag.query.references_found import Mention, Span, first, joined
from rag.query.references_numbers import CARDINALS, ORDINALS, spelled
from rag.words import words

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
    r"what\s+about|how\s+about|in|from|of|on|using|with|within|about|per|for|to|under|by|"
    r"and)\s+(?:(?:only|just)\s+)?)?"
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
    r"send|upload|prepare)\b|(?:must|shall|should)\s+be\b|is\s+required|"
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
_VERBS = words("reference_verbs.en")
"""What follows a number that stands for a document, and no noun that is counted."""
_NEXT_WORD = re.compile(r"\s+([a-z]+)")
_VERB_BEFORE = re.compile(r"\b(?:must|should|I|we|you|they)\s+$", re.IGNORECASE)
_IN_ANSWER = re.compile(
    r"(?:\b(?:in|from|of)\s+)?(?:your|the)\s+(?:last|previous|latest)\s+(?:answer|reply|response)\b,?\s*",
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
_MODIFIER = re.compile(
    r"\b(?:whole|entire|full|original|complete|last|same|cited|relevant)\b", re.IGNORECASE
)
_ANTECEDENT = re.compile(
    r"\b(?:an?|my|his|her|their|any|each|every|some|our)\s+(?:[\w-]+\s+){0,3}"
    r"(?:document|file|form|certificate|contract|application|record|deed|letter|report|pdf|license|licence|permit|source)\b",
    re.IGNORECASE,
)


def find(text: str) -> Mention | None:
    """The reference in English words; None where there is none."""
    found: list[Mention] = []
    session = _SESSION.search(text)
    end = -1
    for item in first((_SEVERAL, _ORDINALS, _NUMBERED), text):
        if item.start() >= end and (mention := _mention(text, item, session)):
            found.append(mention)
            end = item.end()
    sure = [one for one in found if one.noun or one.kind]
    return joined(sure) or joined(found) or _that(text)


def _mention(text: str, item: re.Match[str], session: re.Match[str] | None) -> Mention | None:
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
    if session and session.start() < end and start < session.end():
        session = None
    if not shown and (_USERS.match(text, end) or (_OF.match(text, end) and not session)):
        return None
    before = text[max(0, start - 60) : start]
    lead = _BEFORE.search(before)
    begins = start - len(lead[0]) if lead else start
    if _NOT_THESE.search(before):
        return None
    noun = bool(said["noun"])
    answer = _IN_ANSWER.search(text, max(0, start - 60), start)
    back = bool(shown or answer or _PREVIOUS.search(before))
    if not (noun or back or session) and not _LEAD.fullmatch(text, 0, start):
        return None
    if item.re is _NUMBERED and (_counts(text, item) if noun else _is_label(text, end)):
        return None
    spans: list[Span] = [(begins, shown.end() if shown else end)]
    spans += [found.span() for found in (session, answer) if found]
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
    if _VERB_BEFORE.search(text, 0, item.start()):
        return True
    follows = _NEXT_WORD.match(text, item.end())
    return bool(follows and follows[1].endswith("s") and follows[1] not in _VERBS)


def _is_label(text: str, end: int) -> bool:
    """Whether a bare number heads another noun: "the number 2 rule"."""
    follows = _NEXT_WORD.match(text, end)
    return bool(follows and follows[1] not in _VERBS)


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
        named, shown = _MODIFIER.sub("", found["named"]).strip(), found["shown"]
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
            soft=this or bool(named and not shown),
        )
    return None
