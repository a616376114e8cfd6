"""The answer to a question back: "2번이요", "공탁법", "the first one", "둘 다"."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rag.conversation import DocRef
from rag.query.names import normalised
from rag.query.references_numbers import CARDINALS, CIRCLED, COUNTING, ORDINALS, SINO, places

LONGEST = 120
"""Characters of a choice; a longer message is a question of its own."""

_ONE = (
    rf"(?:\[?\d{{1,3}}\]?(?:\s?번(?:\s?째)?)?|[{CIRCLED}](?:\s?번)?|(?:{COUNTING})\s?번\s?[째쨰]|"
    rf"(?:첫|둘|셋|넷)\s?째|"
    rf"(?:{SINO})\s?번|(?:맨\s?)?(?:마지막|끝|처음|위|앞)|(?:the\s+)?(?:{ORDINALS}|last)|"
    rf"(?:number\s+|"
    rf"no\.?\s*|\#\s?)?(?:\d{{1,3}}|{CARDINALS}))"
)
_NOUN = (
    r"(?:\s?(?:문서|출처|자료|파일|법|거|것|걸|건|게)|\s+(?:ones?|documents?|docs?|sources?|"
    r"files?))"
)
_TAIL = (
    r"(?:\s?(?:이요|요|입니다|이에요|예요|이야|야|이다|로\s?할게요?|로\s?해\s?줘요?|"
    r"로\s?해\s?주세요|으로\s?(?:해\s?줘요?|해\s?주세요|할게요?|부탁해요?|부탁드려요)|"
    r"로\s?(?:부탁해요?|부탁드려요|부탁드립니다)|로요?|으로요?|말이에요|말이야|말입니다|"
    r"말한\s?거(?:예요|야|에요)?|말하는\s?거(?:예요|야|에요)?|"
    r"선택|(?:을|를)?\s?(?:말한|말하는)\s?거(?:예요|야|에요)|부탁해요?|부탁드려요|please|에서요?|"
    r"에서|을|를|은|는|이|가)|,?\s*please)?"
)
_LEAD = (
    r"\W*(?:(?:아니요?|아|네|예|응|음|그럼|그냥|저는|나는|i\s+mean|i\s+meant|yes|the|ok|"
    r"okay)[\s,.]+){0,3}"
)
_CHOSEN = re.compile(
    rf"{_LEAD}(?P<said>{_ONE}{_NOUN}?(?:\s?(?:과|와|이랑|랑|하고|및|그리고|,|and|&)\s*{_ONE}{_NOUN}?){{0,8}})(?:\s(?:둘\s?다|셋\s?다|모두|다))?{_TAIL}\W*",
    re.IGNORECASE,
)
_EVERY = re.compile(
    rf"{_LEAD}(?:둘\s?다|두\s?개\s?다|셋\s?다|모두|전부(?:\s?다)?|다|전체|both(?:\s+of\s+them)?|all(?:\s+of\s+(?:them|those))?){_TAIL}\W*",
    re.IGNORECASE,
)
_AND = re.compile(r"(?:하고|이랑|랑|과|와)\s|\s?(?:,|및|그리고|\band\b)\s?", re.IGNORECASE)
_NUMBER = re.compile(
    rf"\d{{1,3}}|[{CIRCLED}]|(?:{COUNTING})(?=\s?번\s?[째쨰]|\s?째)|(?:{SINO})(?=\s?번)|마지막|끝|처음|위|앞|\b(?:{ORDINALS}|{CARDINALS}|last)\b",
    re.IGNORECASE,
)
_ORDINAL_ONE = re.compile(rf"\b({ORDINALS}|last)\s+ones?\b", re.IGNORECASE)
_NAME = re.compile(
    rf"{_LEAD}(?P<name>.{{2,{LONGEST}}}?)(?:\s(?:문서|파일|자료|document|doc|file|one)|문서)?{_TAIL}\W*",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Choice:
    """The candidates chosen; none: a number that no candidate has.

    `sure`: all of them are meant, and not one of them.
    """

    documents: tuple[DocRef, ...]
    sure: bool = True


def chosen(text: str, candidates: Sequence[DocRef]) -> Choice | None:
    """What a short message chooses; None where it chooses nothing."""
    text = text.strip()
    if len(text) > LONGEST or not candidates:
        return None
    if _EVERY.fullmatch(text):
        return Choice(tuple(candidates))
    if found := _CHOSEN.fullmatch(text):
        return Choice(_numbered(found["said"], candidates))
    named = _NAME.fullmatch(text)
    return _named(named["name"], candidates) if named else None


def _named(name: str, candidates: Sequence[DocRef]) -> Choice | None:
    if refs := called(name, candidates):
        return Choice(refs, sure=len(refs) == 1)
    parts = [called(part, candidates) for part in _AND.split(name)]
    if all(len(refs) == 1 for refs in parts):
        return Choice(tuple(dict.fromkeys(refs[0] for refs in parts)))
    return None


def called(name: str, documents: Sequence[DocRef]) -> tuple[DocRef, ...]:
    """The documents whose title the words name or are a part of; an exact title outranks others."""
    words = [bare for word in name.split() if (bare := normalised(_without_particle(word)))]
    whole = "".join(words)
    if len(whole) < 2:
        return ()
    exact = tuple(ref for ref in documents if whole in {normalised(line) for line in _titles(ref)})
    if exact:
        return exact
    return tuple(ref for ref in documents if any(_holds(line, words) for line in _titles(ref)))


def _titles(ref: DocRef) -> list[str]:
    return [line for line in (*ref.title.splitlines(), ref.source) if line]


def _holds(title: str, words: Sequence[str]) -> bool:
    known = normalised(title)
    return "".join(words) in known or all(word in known for word in words)


def _without_particle(word: str) -> str:
    return re.sub(
        r"(?<=[가-힣]{2})(?:에\s?관한|에\s?대한|의|에서|에)$|^관련$|^관한$|^대한$", "", word
    )


def _numbered(said: str, candidates: Sequence[DocRef]) -> tuple[DocRef, ...]:
    said = _ORDINAL_ONE.sub(r"\1", said)
    by_slot = {ref.slot: ref for ref in candidates}
    found: list[DocRef] = []
    for match in _NUMBER.finditer(said):
        word = match[0]
        place = _edge(word.casefold(), by_slot) or places(word)[0]
        if place not in by_slot:
            return ()
        found.append(by_slot[place])
    return tuple(dict.fromkeys(found))


def _edge(word: str, slots: Iterable[int]) -> int:
    if word in {"마지막", "끝", "last"}:
        return max(slots)
    return min(slots) if word in {"처음", "위", "앞"} else 0
