"""Words that point back to what was said: "그거", "위에서 말한", "둘 다", "it", "the former"."""

import itertools
import re
from collections.abc import Sequence

from rag import surface
from rag.query.spoken import Spoken
from rag.words import phrases, words

_PRONOUNS = words("references.ko")
_POINTING = frozenset(
    ("그", "이", "저", "해당", "그런", "이런", "그러하", "이러하", "위", "상기", "같")
)
_BACK_KO = re.compile(
    r"(?:(?:위|앞)에서?|아까|방금|앞서|좀\s?전에?|이전에|먼저|네가|당신이)\s?(?:전에\s?)?"
    r"(?:말|언급|설명|얘기|이야기|나온|나왔|알려|본|답|소개|언급|제시|쓴|든|준|인용)|"
    r"(?:위|앞)의|위\s?(?:내용|문서|답변|조항|경우|표|규정|법|기준)|직전|전자|후자|(?:그|이)\s?(?:외|밖|중|둘|때|후|뒤|다음|전|경우|점|가운데)|"
    r"둘\s?(?:다|중|의|은|이|을|사이|간)|두\s?(?:개|가지|문서|법|규정|규칙|기관|곳|경우|사람|제도|자료|회사|나라|조항|방법|시행령|기준)|"
    r"양쪽|양자|나머지|그렇게|이렇게|그러한|이러한|그런|이런|그래서|그게|이게|그걸|이걸|그건|이건"
)
_BACK_EN = re.compile(
    r"\b(?:it|its|they|them|their|theirs|these|those|this|he|she|him|his|her|hers|"
    r"the (?:former|latter|same|other one|first one|second one|above|previous)|both|either|neither|"
    r"that(?! (?:is|are|was|were|has|have|can|will|would|the|a|an|i|you|he|she|it|we|they)\b)|"
    r"you (?:said|mentioned|listed|cited|described)|"
    r"(?:mentioned|described|listed) (?:above|earlier|before)|the above)\b"
)
_CONNECTIVES_KO = re.compile(
    r"^\W*(?:그럼|그러면|그렇다면|그런데|근데|그리고|또|또한|추가로|그래서|그래도|하지만|그러나|그러니까|그치만|"
    r"더|이어서|반대로|아니면|그 외에|그 밖에|그외|그밖에|다음으로|마찬가지로)(?![가-힣])"
)
_CONNECTIVES_EN = re.compile(
    r"^\W*(?:and|but|so|then|or|also|what about|how about|"
    r"ok(?:ay)?,? (?:and|so|but)|in that case|what if|why not|what else|anything else)\b"
)


def strength(said: Spoken, new: int) -> float:
    """1: it points back; less where what it points to may stand in the question itself; 0: not."""
    place = _first(said)
    if place is None:
        return 0.0
    return 1.0 if new == 0 or place <= 4 else 0.5


def connects(said: Spoken, followup_words: Sequence[str] = ()) -> bool:
    """True when it begins as the continuation of something."""
    if _CONNECTIVES_KO.match(said.text) or _CONNECTIVES_EN.match(said.text):
        return True
    start = len(said.text) - len(said.text.lstrip(" \"'([“‘"))
    cues = followup_words or phrases("followup")
    return any(place[0] == start for word in cues for place in said.places(word))


def _first(said: Spoken) -> int | None:
    places = [match.start() for match in (_BACK_EN.search(said.text),) if match]
    if surface.HANGUL.search(said.text):
        for match in _BACK_KO.finditer(said.text):
            if not re.match(r"[가-힣]", said.text[match.start() - 1 : match.start()]):
                places.append(match.start())
                break
        found = said.morphemes or ()
        for item, after in itertools.pairwise(found):
            if (item.tag == "NP" and item.form in _PRONOUNS) or (
                item.tag == "MM" and item.form in _POINTING and after.tag.startswith("N")
            ):
                places.append(item.start)
    return min(places, default=None)
