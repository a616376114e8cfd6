"""Nouns with and without a particle: a question in one form must find the passage in the other."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rag.tokenize.korean import analyse_texts
from tests.quality.sets import Asked, QuestionSet, Unit

PAIRS = 200
READ = 800
"""Texts, drawn at random, in which nouns are counted."""

PARTICLES = (
    *(("은", "는"), ("이", "가"), ("을", "를"), ("과", "와"), ("으로", "로"), ("이나", "나")),
    *(("의", "의"), ("에", "에"), ("에서", "에서"), ("도", "도"), ("만", "만")),
    *(("에서는", "에서는"), ("에는", "에는"), ("까지", "까지"), ("부터", "부터"), ("보다", "보다")),
)
"""After a consonant, after a vowel."""

WITH = ("여기에는 {} 다룬 글이 있다.", "{} 적어 둔 쪽이다.", "아래에 {} 나온다.")
BARE = ("글의 제목: {}. 아래를 보라.", "{}, 여기에 적어 둔다.", "표 이름 ({}) 쪽이다.")

_WORD = re.compile("[가-힣]+")
_FINAL_CONSONANTS = 28
_RIEUL = 8


@dataclass(frozen=True, slots=True)
class Pair:
    """A noun and the same with a particle."""

    noun: str
    carried: str


def pairs(texts: Sequence[str]) -> list[Pair]:
    """The most frequent nouns of the texts, each with one of the particles in turn.

    A noun that some other noun chosen holds, or that the frames hold, would be found in the wrong
    passage for a good reason: it is left out. So is what never stands alone between blanks.
    """
    read = random.Random(0).sample(list(texts), min(READ, len(texts)))
    words = {word for text in read for word in text.split()}
    counts: Counter[str] = Counter()
    for found in analyse_texts(read):
        nouns = (item.form for item in found if item.tag in {"NNG", "NNP"})
        counts.update(noun for noun in nouns if noun in words)
    frames = " ".join((*WITH, *BARE))
    kept: list[str] = []
    for noun, _ in counts.most_common():
        known = noun in frames or any(noun in other or other in noun for other in kept)
        if not known and _WORD.fullmatch(noun):
            kept.append(noun)
        if len(kept) == PAIRS:
            break
    return [Pair(noun, noun + _particle(noun, at)) for at, noun in enumerate(kept)]


def libraries(made: Sequence[Pair]) -> tuple[QuestionSet, QuestionSet]:
    """Passages with particles for bare questions, and bare passages for questions with them."""
    return (
        _library("bare question", [(pair.noun, pair.carried) for pair in made], WITH),
        _library("question with a particle", [(pair.carried, pair.noun) for pair in made], BARE),
    )


def _library(name: str, asked: Sequence[tuple[str, str]], frames: Sequence[str]) -> QuestionSet:
    units = tuple(
        Unit("", "", "", frames[at % len(frames)].format(held))
        for at, (_, held) in enumerate(asked)
    )
    questions = tuple(Asked(text, frozenset([at])) for at, (text, _) in enumerate(asked))
    return QuestionSet(name, units, questions)


def _particle(noun: str, at: int) -> str:
    consonant, vowel = PARTICLES[at % len(PARTICLES)]
    final = (ord(noun[-1]) - ord("가")) % _FINAL_CONSONANTS
    if consonant == "으로" and final == _RIEUL:
        return vowel
    return consonant if final else vowel
