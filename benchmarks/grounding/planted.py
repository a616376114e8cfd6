"""The planted set: answers of one sentence with a marker, of which we know whether it holds."""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID, uuid5

from benchmarks.grounding import true, wrong
from benchmarks.grounding.sources import Asked, Corpus, Passage, others
from benchmarks.grounding.sources import sentences as sentences_of
from rag.types import Evidence
from tests.quality.hand import as_evidence

SHOWN = 4
"""Passages of an answer."""
ALL_BUT = 0.9
_SPACE = UUID(int=5)


@dataclass(frozen=True, slots=True)
class Case:
    """An answer with its evidence.

    `right`: the evidence bears it out. `kind` is how it was made.
    """

    corpus: str
    kind: str
    right: bool
    blind: bool
    answer: str
    evidence: tuple[Evidence, ...]


def cases(corpus: Corpus) -> Iterator[Case]:
    """Every case that the rules can make of a corpus; one sentence a passage."""
    for passage in corpus.passages:
        found = passage.sentences()
        if not found:
            continue
        sentence = passage.chance("sentence").choice(found)
        same = others(corpus, passage, same=True)
        far = others(corpus, passage, same=False)
        made = _Made(corpus, passage, sentence, same, far)
        yield from made.true()
        yield from made.wrong_markers()
        yield from made.wrong_words()


@dataclass(frozen=True, slots=True)
class _Made:
    corpus: Corpus
    passage: Passage
    sentence: str
    same: list[Passage]
    far: list[Passage]

    def true(self) -> Iterator[Case]:
        tongue, chance = self.corpus.language, self.passage.chance("true")
        yield self._case("verbatim", self.sentence)
        for name in ("reworded", "shortened", "reordered", "refigured"):
            if new := getattr(true, name)(self.sentence, tongue, chance):
                yield self._case(name, new)
        found = self.passage.sentences()
        if len(found) > 1:
            yield self._case("joined", _joined(chance.sample(found, 2), tongue))
        for asked in self.passage.asked[:2]:
            if new := true.answered(asked.question, asked.answer, tongue):
                yield self._case("answered", new)
        for written in self.passage.written[:1]:
            yield self._case("written", " ".join(written.split()))

    def wrong_markers(self) -> Iterator[Case]:
        for kind, others_ in (("marker_near", self.same), ("marker_far", self.far)):
            pool = [other for other in others_ if not _says(other, self.sentence)]
            if pool:
                yield self._case(kind, self.sentence, cited=pool[0])
        shown = (self.passage, *self.same[:2], *self.far)
        unseen = [
            text
            for text in sentences_of(self.same[2:])
            if not any(_says(item, text) for item in shown)
        ]
        if unseen:
            yield self._case("invented", self.passage.chance("unseen").choice(unseen), wrong=True)

    def wrong_words(self) -> Iterator[Case]:
        tongue, text = self.corpus.language, self.passage.text
        for name in ("number", "swapped_number", "date"):
            if new := getattr(wrong, name)(self.sentence, text, self.passage.chance(name)):
                yield self._case(name, new, wrong=True)
        for name in ("denied", "turned"):
            if new := getattr(wrong, name)(self.sentence, tongue, self.passage.chance(name)):
                yield self._case(name, new, wrong=True)
        yield from self._wrong_names()

    def _wrong_names(self) -> Iterator[Case]:
        """The sentence around an answer with another answer of the topic in its place."""
        spans = [asked for asked in self.passage.asked if _is_name(asked)]
        chance = self.passage.chance("name")
        for asked in chance.sample(spans, len(spans)):
            sentence = next((text for text in self.passage.sentences() if asked.answer in text), "")
            topic = [other for passage in self.same for other in passage.asked if _is_name(other)]
            strange = [other.answer for other in topic if other.answer not in self.passage.text]
            if sentence and strange:
                new = sentence.replace(asked.answer, chance.choice(strange), 1)
                yield self._case("name", new, wrong=True)
                known = [o.answer for o in spans if o.answer not in sentence]
                if known:
                    new = sentence.replace(asked.answer, chance.choice(known), 1)
                    yield self._case("swapped_name", new, wrong=True)
                return

    def _case(
        self, kind: str, sentence: str, *, cited: Passage | None = None, wrong: bool = False
    ) -> Case:
        shown = [self.passage, *self.same[:2], *self.far]
        shown = (
            shown[:SHOWN]
            if cited is None or cited in shown[:SHOWN]
            else [*shown[: SHOWN - 1], cited]
        )
        self.passage.chance(kind).shuffle(shown)
        slot = shown.index(cited or self.passage) + 1
        return Case(
            self.corpus.name,
            kind,
            cited is None and not wrong,
            self.passage.blind,
            f"{sentence} [{slot}]",
            tuple(evidence(place, item) for place, item in enumerate(shown, 1)),
        )


def _says(passage: Passage, sentence: str) -> bool:
    """Whether a passage has nearly all words of a sentence: then its marker would not be wrong."""
    words = set(sentence.split())
    return len(words & set(passage.text.split())) >= ALL_BUT * len(words)


def _is_name(asked: Asked) -> bool:
    return 2 <= len(asked.answer) <= 25 and not any(letter.isdigit() for letter in asked.answer)


def _joined(pair: list[str], language: str) -> str:
    first, second = pair
    if language == "en":
        return f"{first.rstrip('. ')}, and {second[:1]}{second[1:]}"
    return f"{first.rstrip('. ')}, 그리고 {second}"


def evidence(slot: int, passage: Passage) -> Evidence:
    """The passage as an answerer sees it."""
    name = uuid5(_SPACE, passage.key)
    return as_evidence(slot, passage.text, document_id=name, name=passage.topic)
