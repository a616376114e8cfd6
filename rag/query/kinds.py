"""What kind of question it is by its words: small talk, a comparison, several documents, or one."""

import re
from collections.abc import Sequence

from rag.config import MemoryRules
from rag.query.spoken import Spoken
from rag.types import QuestionType
from rag.words import phrases, words

_SMALLTALK = re.compile(
    r"^\W*(?:안녕(?:하세요|하십니까|히\s?\w+)?|반가워요?|반갑습니다|고마워요?|고맙습니다|감사(?:합니다|해요|해)?|"
    r"잘\s?가요?|수고\w*|하이|헬로우?|좋은\s?(?:아침|저녁|하루)\w*|넌?\s?누구(?:야|니|세요|예요)?|너는?\s?누구(?:야|니)?|"
    r"도와\s?줘요?|도움말|뭘?\s?할\s?수\s?있(?:어|니|나요)|무엇을\s?할\s?수\s?있(?:어|니|나요)|"
    r"hi|hello|hey|thanks?(?:\s?you)?|good\s?(?:morning|evening|night|bye)|bye|who\s?are\s?you|help|"
    r"what\s?can\s?you\s?do|how\s?are\s?you)(?:\W+(?:there|nura|요|so much|a lot|you))?\W*$",
    re.IGNORECASE,
)
_WORDS_OF_CONTRAST = "대비"
_PREPARED = re.compile(
    r"\s?(?:하|해|한|할|함|합|했|되|된|될|책|태세|훈련|계획|시설|물자|업무|교육|요령|매뉴얼|에|를|을|가|는)"
)
_DANGER = words("danger.ko")
_BODY = "기관"
_SEVERAL_BODIES = re.compile(r"(?:각|여러|모든|전|전체)\s?[가-힣]{0,4}기관|기관(?:별|마다|들)")
_COUNTED = re.compile(r"(?:모두|전부|총)\s?(?:합쳐|합해|다)?\s?(?:몇|얼마)")
_EACH = re.compile(
    r"문서\s?별|(?:모든|모두|전부)(?![가-힣]*\s?개정)|\beach\b|\bevery\b|\ball (?:the |of )?\w+",
    re.IGNORECASE,
)


def kind(said: Spoken, rules: MemoryRules) -> QuestionType:
    """The kind, whatever was said before."""
    if is_smalltalk(said.text):
        return QuestionType.SMALLTALK
    if compares(said, rules.compare_words):
        return QuestionType.COMPARE
    if asks_of_several(said, rules.multi_words):
        return QuestionType.MULTI
    return QuestionType.SINGLE


def is_smalltalk(text: str) -> bool:
    """True for a greeting, thanks, or a question about the assistant itself, and nothing else."""
    return bool(_SMALLTALK.match(text.strip()))


def compares(said: Spoken, words: Sequence[str] = ()) -> bool:
    """True when a word of comparison is meant as one. No `words`: those of the list."""
    for word in words or phrases("compare"):
        for start, end in said.places(word):
            if word == _WORDS_OF_CONTRAST and not _contrasts(said, start, end):
                continue
            if not _adverb(said, end):
                return True
    return False


def asks_of_several(said: Spoken, words: Sequence[str] = ()) -> bool:
    """True when several documents or bodies are asked about. No `words`: those of the list."""
    text = _COUNTED.sub(" ", said.text)
    if not words and _EACH.search(text):
        return True
    for word in words or phrases("multi"):
        for start, _end in said.places(word):
            if word == _BODY and not _SEVERAL_BODIES.search(text):
                continue
            if not _COUNTED.match(said.text, start):
                return True
    return False


def _contrasts(said: Spoken, start: int, end: int) -> bool:
    """전년 대비 sets against something; 재난에 대비하여 and 비상대비 prepare for it."""
    if _PREPARED.match(said.text, end):
        return False
    before = said.before(start)
    return before is not None and before.form not in _DANGER


def _adverb(said: Spoken, end: int) -> bool:
    """비교적: rather."""
    return said.text.startswith("적", end)
