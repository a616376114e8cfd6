"""Words that point back to what was said: "그거", "위에서 말한", "둘 다", "it", "the former"."""

import itertools
import re
from collections.abc import Sequence

from rag.morphemes import Morpheme
from rag.query.spoken import Spoken
from rag.words import phrases, words

_PRONOUNS = words("references.ko")
_POINTING = frozenset(("그", "이", "저", "해당", "그런", "이런", "위", "상기"))
_TOLD = (
    r"(?:말|언급|설명|얘기|이야기|나온|나왔|알려|본\s|답변|답한|소개|제시|쓴\s|든\s|준\s|인용|물어)"
)
_KO = re.compile(
    r"(?<![가-힣])(?:"
    rf"(?:위에서?|앞에서?|아까|방금|앞서|좀\s?전에?|이전에|먼저|네가|당신이)\s?(?:전에\s?)?{_TOLD}|"
    r"아까|방금|앞의|위의|위\s(?:내용|문서|답변|조항|경우|표|규정|법|기준|사업)|직전|전자[는가의를와]|후자[는가의를와]|"
    r"이전\s(?:문서|답변|질문|내용|대화)|그\s?(?:외|밖|중|둘|때|후|뒤|다음|전|경우|점|가운데)|"
    r"이\s(?:외|밖|중|둘|때|경우|점|가운데)|"
    r"둘\s?(?:다|중|의|은|이|을|사이|간)|두\s?(?:개|가지|문서|법|규정|규칙|기관|곳|경우|사람|제도|자료|회사|나라|조항|방법|기준)|"
    r"양쪽|양자[는가의를]|나머지|(?:그|이)렇게|(?:그|이)러한|(?:그|이)런\s|그래서|(?:그|이)(?:게|걸|건|거|것)(?![가-힣]{2})|"
    r"첫\s?번째\s?(?:거|것|문서)|두\s?번째\s?(?:거|것|문서)|각각(?:의|은|을)?)"
)
_EN = re.compile(
    r"\b(?:it|its|they|them|their|theirs|these|those|this|he|she|him|his|her|hers|there(?! (?:is|"
    r"are|was|were|any|a)\b)|"
    r"the (?:former|latter|same|other one|first one|second one|above|previous|two)|"
    r"both(?! \w+ and\b)|either(?! \w+ or\b)|"
    r"(?<!so )(?<!such )that(?=\W*$| (?:one|case|document|law|rule|section|mean|also|still|"
    r"compare|work|apply|happen)|'s)|"
    r"(?:does|is|was|did|do|about|for|after|before|by|to|of|with|like|from|than|when|why|"
    r"how) that(?! \w+ (?:is|are|was|were)\b)|"
    r"you (?:said|mentioned|listed|cited|described)|(?:mentioned|described|listed) (?:above|"
    r"earlier|before)|"
    r"the above|each of|one(?=\W*$)|ones)\b"
)
_CONNECTIVES_KO = re.compile(
    r"^\W*(?:그럼|그러면|그렇다면|그런데|근데|그리고|또|또한|추가로|그래서|그래도|하지만|그러나|그러니까|그치만|"
    r"더|이어서|반대로|아니면|그\s?외에|그\s?밖에|다음으로|마찬가지로|만약|만일|혹시|이번엔|이번에는)(?![가-힣])"
)
_CONNECTIVES_EN = re.compile(
    r"^\W*(?:and|but|so|then|or|also|what about|how about|ok(?:ay)?,? (?:and|so|but)|in that case|"
    r"what if|why not|what else|anything else|any other|same for|tell me more|more)\b"
)
_NAME_EN = re.compile(r"(?<=[a-z,] )[A-Z][A-Za-z]+")


def points_back(said: Spoken) -> float:
    """1: it points back; half: to something that may stand in the question itself; 0: not."""
    place = _korean(said) if said.korean else _english(said)
    if place is None:
        return 0.0
    before = said.text[:place]
    named = (
        _nouns_before(said, place) > 1 if said.korean else bool(_NAME_EN.search(said.raw[:place]))
    )
    return 0.5 if before.strip() and named else 1.0


def connects(said: Spoken, followup_words: Sequence[str] = ()) -> bool:
    """True when it begins as the continuation of something."""
    shape = _CONNECTIVES_KO if said.korean else _CONNECTIVES_EN
    if shape.match(said.text):
        return True
    start = len(said.text) - len(said.text.lstrip(" \"'([“‘"))
    cues = followup_words or phrases("followup")
    return any(place[0] == start for word in cues for place in said.places(word))


def _korean(said: Spoken) -> int | None:
    found = said.morphemes or ()
    places = [
        item.start
        for item, after in itertools.pairwise(found)
        if (item.tag == "NP" and item.form in _PRONOUNS)
        or (item.tag in ("MM", "NNG") and item.form in _POINTING and _noun_behind(item, after))
    ]
    if match := _KO.search(said.text):
        places.append(match.start())
    return min(places, default=None)


def _noun_behind(item: Morpheme, after: Morpheme) -> bool:
    """이 법, 해당 기관; not 위에, and no part of a word."""
    return after.tag.startswith("N") and after.start > item.end


def _english(said: Spoken) -> int | None:
    match = _EN.search(said.text)
    return match.start() if match else None


def _nouns_before(said: Spoken, place: int) -> int:
    return sum(item.end <= place and item.tag in ("NNG", "NNP") for item in said.morphemes or ())
