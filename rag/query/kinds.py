"""What kind of question it is by its words: small talk, a comparison, several documents, or one."""

import re
from collections.abc import Sequence

from rag.config import MemoryRules
from rag.query.spoken import Spoken
from rag.types import QuestionType
from rag.words import phrases, words

_SMALLTALK = re.compile(
    r"^\W*(?:안녕(?:하세요|하십니까|히\s?\w+)?|반가워요?|반갑습니다|고마워요?|고맙습니다|고맙다|감사(?:합니다|해요|해|드립니다)?|"
    r"땡큐|잘\s?가요?|잘\s?자요?|수고\w*|하이|헬로우?|좋은\s?(?:아침|저녁|하루|밤)\w*|넌?\s?누구(?:야|니|세요|예요)?|너는?\s?누구(?:야|"
    r"니)?|"
    r"도와\s?줘요?|도움말|뭘?\s?할\s?수\s?있(?:어|니|나요)|무엇을\s?할\s?수\s?있(?:어|니|나요)|"
    r"hi|hello|hey|thanks?(?:\s?you)?|good\s?(?:morning|evening|night|bye)|bye|who\s?are\s?you|"
    r"help|"
    r"what\s?can\s?you\s?do|how\s?are\s?you)(?:\W+(?:there|nura|요|so much|a lot|you))?\W*$",
    re.IGNORECASE,
)
_ECHO = re.compile(
    r"\W*(?:네+|넵|넹|예|응|음|아하?|오+|와우?|우와|[ㄱ-ㅎㅏ-ㅣᄀ-ᇿ]+|ㅇㅋ|ㄳ|ㄱㅅ|오케이|오키|굿|좋아요?|좋네요?|좋습니다|좋군요?|"
    r"그렇(?:구나|군요?|네요?|습니까)|그랬(?:구나|군요?)|알겠(?:습니다|어요?|네요?)|알았(?:어요?|습니다)|"
    r"이해(?:했어요?|했습니다|됐어요?|됐습니다|가\s?(?:되|됐)\w{0,3})|다행이(?:다|네요?|에요)|대단(?:하네요?|해요?|하다)|"
    r"맞아요?|맞습니다|진짜|정말|많이|너무|대박|최고(?:예요|야|네요)?|됐어요?|됐습니다|완벽(?:해요?|합니다)|"
    r"덕분에|도움이|많은|큰|되었(?:어요?|습니다)|됐(?:어요?|네요?)|잘|확인(?:했습니다|했어요?)|"
    r"안녕(?:하세요|히\s?계세요)?|반가워요?|반갑습니다|고마워요?|고맙습니다|고맙다|감사(?:합니다|해요|해|드립니다)?|땡큐|수고(?:하셨\w{1,4}|하세요|"
    r"했어요?)|"
    r"hi|hello|hey|ok(?:ay)?|thanks?(?: you)?|thx|ty|great|cool|nice|good|perfect|awesome|wow|"
    r"yes|yep|yeah|no|sure|alright|all right|"
    r"got it|i see|i understand|understood|makes sense|so much|a lot|very much|very helpful|"
    r"helpful|that'?s|for (?:the|your) help|lol|haha|bye|again|you|very|much)"
    r"(?![a-z가-힣])\W*",
    re.IGNORECASE,
)
LONGEST_ECHO = 60
"""Characters of a message that only thanks or agrees."""
_WORDS_OF_CONTRAST = "대비"
_PREPARED = re.compile(
    r"\s?(?:하|해|한|할|함|합|했|되|된|될|책|태세|훈련|계획|시설|물자|업무|교육|요령|매뉴얼|에|를|을|가|는)"
)
_DANGER = words("danger.ko")
_BODY = "기관"
_SEVERAL_BODIES = re.compile(r"(?:각|여러|모든|전|전체)\s?[가-힣]{0,4}기관|기관(?:별|마다|들)")
_COUNTED = re.compile(r"(?:모두|전부|총)\s?(?:합쳐|합해|다)?\s?(?:몇|얼마)")
_EACH = re.compile(
    r"문서\s?별|(?:문서|파일|자료|규정|법률?|규칙|기관|공고|조항|부서)(?:들)?(?:을|를|에서|은|는|의)?\s(?:모두|전부)(?!\s?개정)|"
    r"(?:모두|전부)\s?(?:찾|정리|나열|보여|알려|모아|뽑|열거|적어|비교)|"
    r"\beach\b|\bevery\b|\ball (?:the |of )?\w+",
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
    said = text.strip()
    return bool(_SMALLTALK.match(said)) or _echoes(said)


def _echoes(said: str) -> bool:
    """True for thanks and agreement, word by word: "네 감사합니다", "ㅋㅋ 그렇구나"."""
    if not said or len(said) > LONGEST_ECHO or said.endswith("?"):
        return False
    at = 0
    while match := _ECHO.match(said, at):
        at = match.end()
        if at == len(said):
            return True
    return False


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
