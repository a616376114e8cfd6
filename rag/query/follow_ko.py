"""What the words of a Korean message show of its bond to the conversation."""

import math
import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from rag.morphemes import Morpheme
from rag.query import asking, laws
from rag.query.background import RELATIONAL, Background, content
from rag.query.spoken import Spoken

_NOUNS = frozenset(("NNG", "NNP", "SL", "XR"))
_PREDICATES = frozenset(("VV", "VA", "XSV", "XSA", "VCN"))
_ARTICLE = re.compile(r"제?\s?\d+\s?(?:조|항|호|장|절)(?:의\s?\d+)?")
_LATIN = re.compile(r"[a-z]")
_ASKING_END = re.compile(
    r"(?:면|(?<!야)지|나|냐|니|까|는지|은지|ᆫ지|려나|는가|은가|ᆫ가|나요|가요|죠|"
    r"지요|을까|ᆯ까|ᆯ까요|을까요|래|ᆯ래|을래|습니까|ᆸ니까|는데|ᆫ데)$"
)
_REQUEST = re.compile(
    r"(?:어|아|여|해|려|줘|와|워)\s?(?:줘|주세요|주십시오|주시|줄래|주라|달라|봐)|며칠|궁금|여쭙|여쭤|알고\s?싶|부탁|바랍니다|좀\W*$|만\W*$"
)
MOST_RUN, MOST_SHARED = 4, 3


def signals(said: Spoken, before: Background) -> dict[str, float]:
    """Signals by name; 0 where there is nothing of a kind."""
    found = said.morphemes or ()
    nouns = content(said.text)
    names = laws.named(said.text)
    own = nouns - RELATIONAL
    shared = nouns & before.words
    new = own - before.words
    latin = {noun for noun in nouns if _LATIN.search(noun)}
    asks = _asks(said)
    count = _words_of(said, found, new)
    fragment = not any(item.tag in _PREDICATES for item in found)
    proper = {item.form.lower() for item in found if item.tag == "NNP"} - before.words
    return {
        "empty": float(not nouns),
        "relational": float(bool(nouns) and not own),
        "nouns": math.log1p(len(nouns)),
        "new_none": float(count == 0),
        "new_one": float(count == 1),
        "new_two": float(count == 2),
        "new_more": float(max(0, min(count, 5) - 2)),
        "lone": float(fragment and len(nouns) == 1),
        "shared": float(min(len(shared), MOST_SHARED)),
        "run": float(max(0, min(_longest_run(found), MOST_RUN) - 1)),
        "condition": float(any(item.tag == "EC" and item.form.endswith("면") for item in found)),
        "proper": float(bool(proper)),
        "new_name": float(bool(names - before.names)),
        "old_name": float(bool(names & before.names)),
        "new_latin": float(bool(latin - before.words)),
        "also": float(_also(found)),
        "topic": float(_bare_topic(found)),
        "fragment": float(fragment),
        "article": float(bool(_ARTICLE.search(said.text)) and not names),
        "statement": float(not asks),
        "self": float(asking.talks_of_self(said.text) and not asks),
    }


def _words_of(said: Spoken, found: Sequence[Morpheme], new: AbstractSet[str]) -> int:
    """How many words between white space hold one of these nouns, a compound being one."""
    starts = [item.start for item in found if item.form.lower() in new]
    words_new = {said.text.rfind(" ", 0, start) for start in starts}
    return len(words_new) + sum(bool(_LATIN.search(noun)) for noun in new)


def _longest_run(found: Sequence[Morpheme]) -> int:
    """Nouns in a row, as in "체육 지도자 자격": the longest, without those that name a property."""
    longest = run = 0
    for item in found:
        if item.tag in _NOUNS and item.form not in RELATIONAL:
            run += 1
            longest = max(longest, run)
        elif item.tag not in ("XSN", "XPN", "SN") and item.tag not in _NOUNS:
            run = 0
    return longest


def _also(found: Sequence[Morpheme]) -> bool:
    """현금도, 가족까지: added to what was spoken of."""
    return any(item.tag == "JX" and item.form in ("도", "까지도") for item in found)


def _bare_topic(found: Sequence[Morpheme]) -> bool:
    """One plain noun as the topic in front: "기장은", "이자는"."""
    return len(found) > 1 and found[0].tag == "NNG" and found[1].tag in ("JX", "JKS")


def _asks(said: Spoken) -> bool:
    if said.text.rstrip().endswith("?") or asking.seeks(said.text) or _REQUEST.search(said.text):
        return True
    ends = [item.form for item in said.morphemes or () if item.tag in ("EF", "EC")]
    return bool(ends and _ASKING_END.search(ends[-1]))
