"""100,000 chunks of real sentences: the question sets' texts, cut up and joined anew.

Every text is cut into halves of about 200 characters. A chunk is two halves of one language: at
first those that stand together, then halves joined by chance, with the terms of both.

Embedding that many chunks takes hours on two cores, so 3,000 English halves are embedded, and the
vector of a chunk is a mixture of two of those with noise: as near to one another as real ones, but
not the vector of its own text. The same goes for Korean questions; English ones are embedded.
"""

import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import report
from benchmarks.local_models import with_local_models
from rag import tokenize
from rag.factory import Engine
from rag.tokenize.text import split_sentences
from tests.quality import sets

SETS = {
    "ko": ("korquad1_dev", "ko_docs", "kr_law"),
    "en": ("xquad_en", "clapnq_dev"),
}
ASKED = {"ko": ("korquad1_dev", "ko_strategyqa"), "en": ("xquad_en", "clapnq_dev")}
HALF_CHARACTERS = 200
HALVES = report.choose_size(12_000, quick=1_000)
"""Of each language."""
EMBEDDED = report.choose_size(3_000, quick=300)
NOISE = 0.25
"""Length of what is added to the mixture of two unit vectors."""
CHUNKS_A_DOCUMENT = 31
QUESTIONS = report.choose_size(250, quick=30)
"""Of each language."""


Vector = np.ndarray[tuple[int], np.dtype[np.float32]]
Vectors = np.ndarray[tuple[int, int], np.dtype[np.float32]]


@dataclass(frozen=True, slots=True)
class Halves:
    """Texts with their terms."""

    texts: list[str]
    terms: list[dict[str, int]]


@dataclass(frozen=True, slots=True)
class Sized:
    """One chunk: text, terms and unit vector."""

    text: str
    terms: dict[str, int]
    vector: Vector


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its vector, and what embedding it cost where it was embedded."""

    text: str
    language: str
    vector: tuple[float, ...]
    embed_ms: float | None


@dataclass(frozen=True, slots=True)
class Corpus:
    """The halves of both languages, real vectors, and the questions."""

    halves: dict[str, Halves]
    vectors: Vectors
    questions: list[Question]

    def documents(self, chunks: int) -> Iterator[list[Sized]]:
        """Documents of one language each, the languages by turns, that many chunks together."""
        streams = {name: self._chunks(name) for name in self.halves}
        left = chunks
        for name in itertools.cycle(streams):
            if left <= 0:
                return
            yield list(itertools.islice(streams[name], min(left, CHUNKS_A_DOCUMENT)))
            left -= CHUNKS_A_DOCUMENT

    def _chunks(self, name: str) -> Iterator[Sized]:
        """Neighbours first, then halves joined by chance, for ever."""
        halves, chance = self.halves[name], np.random.default_rng(len(name) + ord(name[0]))
        count = len(halves.texts)
        neighbours = ((at, at + 1) for at in range(0, count - 1, 2))
        strangers = (chance.integers(count, size=2).tolist() for _ in itertools.count())
        for one, two in itertools.chain(neighbours, strangers):
            terms = Counter(halves.terms[one])
            terms.update(halves.terms[two])
            vector = _mixture(self.vectors, chance)
            yield Sized(f"{halves.texts[one]} {halves.texts[two]}", dict(terms), vector)


def load(folder: Path) -> Corpus:
    """The corpus; its vectors from the folder where an earlier run left them."""
    engine = Engine(with_local_models())
    texts = {name: _texts(name) for name in SETS}
    vectors = _vectors(texts["en"], folder, engine)
    halves = {
        name: Halves(found, list(tokenize.count_terms_per_text(found)))
        for name, found in texts.items()
    }
    return Corpus(halves, vectors, _questions(engine, vectors))


def _mixture(vectors: Vectors, chance: np.random.Generator) -> Vector:
    one, two = chance.integers(len(vectors), size=2)
    share = chance.uniform(0.3, 0.9)
    noise = chance.standard_normal(vectors.shape[1]) * (NOISE / vectors.shape[1] ** 0.5)
    mixed = share * vectors[one] + (1 - share) * vectors[two] + noise
    return (mixed / np.linalg.norm(mixed)).astype(np.float32)


def _vectors(texts: Sequence[str], folder: Path, engine: Engine) -> Vectors:
    kept = folder / f"vectors-{EMBEDDED}.npy"
    if not kept.exists():
        chosen = random.Random(1).sample(list(texts), EMBEDDED)
        np.save(kept, np.asarray(engine.embedder.embed_passages(chosen), dtype=np.float32))
    return np.load(kept)


def _texts(name: str) -> list[str]:
    """Halves of about 200 characters, in the order of the texts, an even number."""
    found: list[str] = []
    for text in _sources(name):
        found += _packed(split_sentences(text))
    chance = random.Random(name)
    pairs = [found[at : at + 2] for at in range(0, len(found) - 1, 2)]
    if len(pairs) > HALVES // 2:
        chosen = sorted(chance.sample(range(len(pairs)), HALVES // 2))
        pairs = [pairs[at] for at in chosen]
    return [text for pair in pairs for text in pair]


def _sources(name: str) -> list[str]:
    texts = [unit.text for one in SETS[name] for unit in sets.load(one).units]
    if name == "en":
        lines = (sets.DATA / "mtrag/corpus.jsonl").read_text(encoding="utf-8").splitlines()
        texts += [json.loads(line)["text"] for line in lines if line]
    return texts


def _packed(parts: Sequence[str]) -> list[str]:
    """Sentences joined up to the length of a half; longer ones cut."""
    found: list[str] = []
    held = ""
    for part in parts:
        if held and len(held) + len(part) > HALF_CHARACTERS:
            found.append(held)
            held = ""
        held = f"{held} {part}".strip()[: 2 * HALF_CHARACTERS]
    return [*found, held] if held else found


def _questions(engine: Engine, vectors: Vectors) -> list[Question]:
    found, chance = [], np.random.default_rng(3)
    for name, asked in ASKED.items():
        texts = sorted({item.text for one in asked for item in sets.load(one).questions})
        for text in random.Random(name).sample(texts, QUESTIONS):
            begun = time.perf_counter()
            vector = (
                engine.embedder.embed_query(text) if name == "en" else _mixture(vectors, chance)
            )
            took = (time.perf_counter() - begun) * 1000 if name == "en" else None
            found.append(Question(text, name, tuple(map(float, vector)), took))
    random.Random(0).shuffle(found)
    return found
