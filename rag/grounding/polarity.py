"""Which words of a sentence stand affirmed and which denied."""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rag import stems
from rag.morphemes import Morpheme
from rag.words import phrases, words


@dataclass(frozen=True, slots=True)
class Signs:
    """The signs that words have in a sentence, and pairs of opposites; and its denials.

    Of a pair, named by its words, the sign is that of the first.
    """

    words: Mapping[str, frozenset[bool]]
    pairs: Mapping[str, frozenset[bool]]
    denials: int = 0


_NOUNS = frozenset(("NNG", "NNP", "XR"))
_EMPTY = words("empty_verbs.ko")
_NEGATORS = words("negators.en")
_STOP = words("stop.en")
_WORD = re.compile(r"[A-Za-z]+(?:['’][A-Za-z]+)?|[.,;:!?()]")
_EXCEPTION = re.compile(r"\b(?:except|unless|other than)\b|제외하|외에는")
_REACH = 4
"""Words behind an English "not" in which the denied one stands."""
_DENYING = frozenset(("않", "못하", "말", "아니하"))
_SHORT = frozenset(("안", "못"))
_PREFIXES = frozenset(("불", "비", "미", "무", "부"))


def korean(found: Sequence[Morpheme]) -> Signs:
    """The signs of nouns, verbs and adjectives in the morphemes of a sentence."""
    signs: list[tuple[str, bool]] = []
    denials = 0
    coming = prefixed = False  # "안", "못" deny the verb to come, "불", "미" the noun
    for place, item in enumerate(found):
        following = found[place + 1].form if place + 1 < len(found) else ""
        if item.tag == "XPN" and item.form in _PREFIXES:
            prefixed = True
        elif item.tag == "MAG" and item.form in _SHORT and following != "되":
            coming, denials = True, denials + 1
        elif _denies(item, found[place - 1] if place else None):
            _deny(signs)
            denials += 1
        elif (word := _content(item)) and not _can(item, found[place - 1] if place else None):
            acts = item.tag in ("VV", "VA")
            signs.append((word, not (prefixed or (coming and acts))))
            prefixed, coming = False, coming and not acts
        elif item.tag in ("XSV", "XSA") and coming:
            _deny(signs)
            coming = False
    return _collected(signs, denials, "ko")


def english(text: str) -> Signs:
    """The signs of the Latin words of a sentence."""
    signs: list[tuple[str, bool]] = []
    reach = denials = 0
    for match in _WORD.finditer(text):
        word = match[0].lower().replace("’", "").replace("'", "")
        if not word.isalpha():
            reach = 0
        elif word in _NEGATORS:
            reach, denials = _REACH, denials + 1
        elif word in _pairs("en") or (word not in _STOP and len(word) > 2):
            signs.append((word, reach == 0))
            reach = 0
        else:
            reach = max(0, reach - 1)
    return _collected(signs, denials, "en")


def turned(mine: Signs, its: Signs) -> bool:
    """Whether a word has a sign in mine which it has not in the other; if not it, its opposite."""
    if any(found - its.words.get(word, found) for word, found in mine.words.items()):
        return True
    return any(
        found - its.pairs.get(pair, found)
        for pair, found in mine.pairs.items()
        if its.words.keys().isdisjoint(
            mine.words.keys() & {stems.stem(word) for word in pair.split()}
        )
    )


def loosened(signs: Signs) -> Signs:
    """The same where every word may stand either way: an exception turns part of a sentence."""
    both = frozenset((True, False))
    return Signs(dict.fromkeys(signs.words, both), dict.fromkeys(signs.pairs, both), signs.denials)


def excepts(text: str) -> bool:
    """Whether a sentence makes an exception."""
    return bool(_EXCEPTION.search(text))


def joined(several: Sequence[Signs]) -> Signs:
    """What several sentences say together."""
    return Signs(
        _union([signs.words for signs in several]),
        _union([signs.pairs for signs in several]),
        sum(signs.denials for signs in several),
    )


def _union(several: Iterable[Mapping[str, frozenset[bool]]]) -> dict[str, frozenset[bool]]:
    together: dict[str, frozenset[bool]] = {}
    for signs in several:
        for word, found in signs.items():
            together[word] = together.get(word, frozenset()) | found
    return together


def _denies(item: Morpheme, before: Morpheme | None) -> bool:
    """A word that turns the one before it: 않, 못하, 아니, and 없 behind 수."""
    if item.tag in ("VX", "VCN"):
        return item.tag == "VCN" or item.form in _DENYING
    if item.form in _SHORT:  # the adverbs; the noun in "14일 안에" denies nothing
        return item.tag == "MAG"
    if item.form == "아니":
        return before is not None and before.form == "지"
    return item.tag == "VA" and item.form == "없" and before is not None and before.form == "수"


def _can(item: Morpheme, before: Morpheme | None) -> bool:
    """있 behind 수: it affirms what stands before."""
    return item.form == "있" and before is not None and before.form == "수"


def _deny(signs: list[tuple[str, bool]]) -> None:
    if signs:
        word, sign = signs[-1]
        signs[-1] = (word, not sign)


def _content(item: Morpheme) -> str:
    if item.tag in _NOUNS:
        return item.form if len(item.form) > 1 or item.form in _pairs("ko") else ""
    if item.tag in ("VV", "VA"):
        known = item.form in _pairs("ko")
        return item.form if known or item.form not in _EMPTY else ""
    return item.form if item.tag in ("MAG", "MM") and item.form in _pairs("ko") else ""


def _collected(signs: Iterable[tuple[str, bool]], denials: int, language: str) -> Signs:
    plain: list[dict[str, frozenset[bool]]] = []
    paired: list[dict[str, frozenset[bool]]] = []
    for word, sign in signs:
        plain.append({stems.stem(word): frozenset([sign])})
        if pair := _pairs(language).get(word):
            paired.append({pair[0]: frozenset([sign is pair[1]])})
    return Signs(_union(plain), _union(paired), denials)


@functools.cache
def _pairs(language: str) -> Mapping[str, tuple[str, bool]]:
    """Each word that has an opposite: the first word of its pair, and whether it is on its side."""
    found: dict[str, tuple[str, bool]] = {}
    for line in phrases(f"opposites.{language}"):
        left, _, right = (side.split() for side in line.partition(" | "))
        name = " ".join(left + right)
        for side, names in ((True, left), (False, right)):
            for word in names:
                found.update((form, (name, side)) for form in _forms(word, language))
    return found


def _forms(word: str, language: str) -> Iterator[str]:
    yield word
    if language == "en":
        base = word.removesuffix("e")
        yield from (f"{word}s", f"{base}ed", f"{base}ing", f"{base}es")
        if word.endswith("y"):
            yield from (f"{word[:-1]}ies", f"{word[:-1]}ied")
        yield f"{word}{word[-1]}ed"
