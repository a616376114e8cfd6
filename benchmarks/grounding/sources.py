"""Passages to plant answers on: topics of several passages, with questions where there are some."""

import hashlib
import json
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rag.tokenize.text import split_sentences
from tests.quality import sets

SHORTEST, LONGEST = 150, 1800
"""Characters of a passage."""
SENTENCE = (25, 260)
_MESSY = re.compile(r"https?:|\]\(|\d\\?\.(?:\s|$)|//|^\W*\w+\W*$")
"""Addresses, and numbers of lists that ended up in the sentence before."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its answer; `start` is where that stands in the passage, -1: nowhere."""

    question: str
    answer: str
    start: int = -1


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage of a topic, with its questions and with what people wrote from it."""

    topic: str
    text: str
    asked: tuple[Asked, ...] = ()
    written: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """A hash of the text."""
        return hashlib.sha1(self.text.encode()).hexdigest()

    @property
    def blind(self) -> bool:
        """Whether it belongs to the half that no rule and no threshold was made on."""
        return int(self.key[:8], 16) % 2 == 1

    def sentences(self) -> list[str]:
        """Its sentences of a usual length, each on one line."""
        low, high = SENTENCE
        return [
            text
            for text in split_sentences(self.text)
            if low <= len(text) <= high
            and text[-1:] in ".다"
            and text[0] not in "|`<{["
            and not _MESSY.search(text)
        ]

    def chance(self, purpose: str) -> random.Random:
        """Its own source of chance, the same in every run."""
        return random.Random(f"{self.key} {purpose}")


@dataclass(frozen=True, slots=True)
class Corpus:
    """The passages of a data set by topic."""

    name: str
    language: str
    topics: dict[str, list[Passage]] = field(default_factory=lambda: defaultdict(list))

    @property
    def passages(self) -> list[Passage]:
        """All of them, in order."""
        return [passage for topic in self.topics.values() for passage in topic]

    def add(self, passage: Passage) -> None:
        """Keep it, if it is of a usual length."""
        if SHORTEST <= len(passage.text) <= LONGEST:
            self.topics[passage.topic].append(passage)


def load() -> list[Corpus]:
    """Every set that holds running prose."""
    return [
        _squad("korquad1_dev", "ko", "korquad1_dev/KorQuAD_v1.0_dev.part.json"),
        _squad("xquad_en", "en", "xquad_en/xquad.en.part.json"),
        _clapnq(),
        *(_units(name, tongue) for name, tongue in (("kr_law", "ko"), ("ko_docs", "ko"))),
        _units("mtrag_human", "en"),
    ]


def _squad(name: str, language: str, path: str) -> Corpus:
    corpus = Corpus(name, language)
    for article in json.loads((sets.DATA / path).read_text(encoding="utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            asked = tuple(
                Asked(
                    item["question"], item["answers"][0]["text"], item["answers"][0]["answer_start"]
                )
                for item in paragraph["qas"]
            )
            corpus.add(Passage(article["title"].replace("_", " "), paragraph["context"], asked))
    return corpus


def _clapnq() -> Corpus:
    corpus = Corpus("clapnq_dev", "en")
    for row in sets.rows("clapnq_dev/clapnq_dev_answerable.part.jsonl"):
        for passage in row["passages"]:
            answers = tuple(output["answer"] for output in row["output"])
            corpus.add(Passage(passage["title"], passage["text"], (), answers))
    return corpus


def _units(name: str, language: str) -> Corpus:
    corpus = Corpus(name, language)
    for unit in sets.load(name).units:
        corpus.add(Passage(unit.title, unit.text))
    return corpus


def others(corpus: Corpus, passage: Passage, *, same: bool) -> list[Passage]:
    """Other passages of the same topic, or of other topics, in an order of chance."""
    found: Sequence[Passage] = corpus.topics[passage.topic] if same else corpus.passages
    left = [
        other for other in found if other is not passage and (other.topic == passage.topic) is same
    ]
    chance = passage.chance(f"others {same}")
    return chance.sample(left, min(len(left), 6))


def sentences(passages: Sequence[Passage]) -> Iterator[str]:
    """All their sentences."""
    for passage in passages:
        yield from passage.sentences()
