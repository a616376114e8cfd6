"""Whether a message asks to forget what the conversation was about.

A question about resetting something is no such wish.
"""

import functools
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from rag.query import laws
from rag.words import phrases

LOOKED_AT = 300
"""Characters at the beginning in which the wish must stand."""

_PARTICLE = "(?:은|는|이|가|을|를|도|의|로|으로|에서|부터|들|들을|들은|한|하고)?"
_BEFORE = re.compile(
    r"(?:자|음|네|예|아니|아냐|아니요|아|이제|이번엔|이번에는|우리|잠깐(?:만)?|일단|그냥|모두|다|전부|싹|됐고|됐어|그만(?:하고)?|"
    r"그럼|그러면|아까|지금까지(?:의)?|그|이|전|얘기(?:한|는)?|이야기(?:한|는)?|말한|말고|내용(?:은|을)?|"
    r"대화(?:를|는|내용)?|채팅(?:을)?|기억(?:을)?|메모리(?:를)?|세션(?:을)?|"
    r"ok(?:ay)?|now|please|well|so|let'?s|can we|could you|i want to|i'd like to|just)"
    r"(?![가-힣a-z])[\s,.!…]*",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"\s*(?:으?로|를|을|은|는|요|야|이야|예요|이에요|이요|입니다|인데요?|이고|하고|부탁해요?|부탁드립니다|부탁합니다|"
    r"할게요?|하겠습니다|하자|합시다|해요?|해줘요?|해주세요|해라|하세요|하기|서|바꿔요?|바꾸자|바꿀게요?|바꾸겠습니다|"
    r"줘요?|주세요|주라|버려요?|시작(?:할게요?|하자|해요?|합시다|하겠습니다|해줘요?|해주세요)?|"
    r"넘어가(?:자|요|죠|줘|겠습니다)?|넘어갈게요?|가자|갑시다|갈게요?|"
    r"질문(?:할게요?|하겠습니다|있어요?|입니다|이야)?|물어볼게요?|얘기(?:하자|할게요?|해요?)|이야기(?:하자|할게요?|해요?)|"
    r"please|now|then|the (?:chat|conversation|context|topic|memory)|everything|"
    r"this (?:chat|conversation)|"
    r"(?:a )?question|from scratch|from (?:the )?(?:start|beginning))(?![가-힣a-z])",
    re.IGNORECASE,
)
_PAUSE = re.compile(r"\s*[,.!;:~…\n—–-]+\s*")
_END = re.compile(r"[\s.!~…ㅋㅎ^)]*$")


@dataclass(frozen=True, slots=True)
class Reset:
    """The wish to begin anew, and the question behind it, if any."""

    rest: str


def find(text: str, words: Sequence[str] = ()) -> Reset | None:
    """The wish in a message; None where there is none. No `words`: those of the list."""
    said = unicodedata.normalize("NFC", text).strip()
    wish = _wish(tuple(words) or phrases("reset"))
    at = 0
    while not (found := wish.match(said, at)):
        before = _BEFORE.match(said, at)
        if before is None or before.end() > LOOKED_AT:
            return None
        at = before.end()
    return _behind(said, found)


def _behind(said: str, found: re.Match[str]) -> Reset | None:
    """What follows the words: nothing, or after a pause another question."""
    at = found.end()
    while after := _AFTER.match(said, at):
        at = after.end()
    if _END.match(said, at):
        return Reset("")
    if pause := _PAUSE.match(said, at):
        return Reset(said[pause.end() :].strip())
    several = any(mark.isspace() for mark in found[0])
    if several and at > found.end() and said[at].isspace() and laws.named(said[at:]):
        return Reset(said[at:].strip())
    return None


@functools.lru_cache(maxsize=8)
def _wish(words: tuple[str, ...]) -> re.Pattern[str]:
    """Any of the phrases: spaces are optional and particles may stand between the words."""
    longest_first = sorted(words, key=len, reverse=True)
    shapes = (
        (_PARTICLE + r"\s*").join(re.escape(word) for word in _parts(phrase))
        for phrase in longest_first
    )
    return re.compile(rf"(?:{'|'.join(shapes)})(?![a-z])", re.IGNORECASE)


def _parts(phrase: str) -> list[str]:
    return unicodedata.normalize("NFC", phrase).split()
