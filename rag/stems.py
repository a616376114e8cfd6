"""Light stemming of English words: plural and verb endings, nothing that joins different words."""

_VOWELS = frozenset("aeiouy")


def stem(word: str) -> str:
    """The stem of a lower-case word.

    "studies" and "study" meet, as do "running", "runs" and "run".
    """
    word = _singular(word)
    for ending in ("ing", "ed"):
        base = word.removesuffix(ending)
        if base != word and len(base) >= 3 and not _VOWELS.isdisjoint(base):
            return _undouble(base)
    if len(word) > 3 and word.endswith("y"):
        return word[:-1] + "i"
    return word.removesuffix("e") if len(word) > 4 else word


def _singular(word: str) -> str:
    if len(word) <= 3 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    return word[:-1]


def _undouble(base: str) -> str:
    if base[-1] == base[-2] and base[-1] not in "lsz":
        return base[:-1]
    if base.endswith("y"):
        return base[:-1] + "i"
    return base.removesuffix("e")
