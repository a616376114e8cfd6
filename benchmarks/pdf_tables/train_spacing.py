"""Makes `documents/parsers/pdf/spacing.json` from Korean statutes.

`python -m benchmarks.pdf_tables.train_spacing`.

Their texts are no protected works (Korean Copyright Act, article 7). Three quarters of the laws are
learnt from; how the weights do on the others, and on texts of other kinds, is printed.
"""

import json
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.pdf_tables.truth import DATA
from documents.parsers.pdf.lines import MIN_ODDS, WEIGHTS, extract_features

SAMPLES, TEST_SAMPLES = 150_000, 20_000
LEAST_WEIGHT = 0.05
Sample = tuple[list[str], bool]
"""Features, and whether the word goes on."""
_MARKUP = re.compile(r"[*<>#|`\\_]")


def main() -> None:
    """Learn, show, write."""
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegression

    chance = random.Random(7)
    laws = sorted((DATA / "kr_law" / "kr").rglob("*.md"))
    chance.shuffle(laws)
    learnt, held = laws[: len(laws) * 3 // 4], laws[len(laws) * 3 // 4 :]
    samples = draw_samples(learnt, SAMPLES, chance)
    vectors = DictVectorizer()
    matrix = vectors.fit_transform(dict.fromkeys(features, 1) for features, _ in samples)
    matrix.indices, matrix.indptr = matrix.indices.astype("int32"), matrix.indptr.astype("int32")
    model = LogisticRegression(l1_ratio=1, C=0.3, solver="liblinear")
    model.fit(matrix, [goes_on for _, goes_on in samples])
    names = zip(vectors.get_feature_names_out(), model.coef_[0], strict=True)
    weights = {name: round(float(value), 2) for name, value in names if abs(value) > LEAST_WEIGHT}
    weights["_"] = round(float(model.intercept_[0]), 2)
    for name, paths in (("laws", held), ("technical", (DATA / "ko_docs").rglob("*.md"))):
        print(name, _errors(weights, draw_samples(sorted(paths), TEST_SAMPLES, chance)))
    WEIGHTS.write_text(json.dumps(weights, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


def draw_samples(paths: Iterable[Path], count: int, chance: random.Random) -> list[Sample]:
    """Places in paragraphs between two syllables of Hangul, as if a line ended there."""
    found: list[Sample] = []
    paragraphs = [text for path in paths for text in _paragraphs(path)]
    chance.shuffle(paragraphs)
    for text in paragraphs:
        for _ in range(len(text) // 6):
            at = chance.randrange(8, len(text) - 6)
            goes_on = text[at] != " "
            line, following = text[:at], text[at:].lstrip()
            if _is_hangul(line[-1]) and _is_hangul(following[0]):
                found.append((extract_features(line[-12:], following[:12]), goes_on))
        if len(found) >= count:
            break
    return found


def _paragraphs(path: Path) -> Iterator[str]:
    for line in path.read_text(encoding="utf-8").splitlines():
        text = " ".join(_MARKUP.sub("", line).split())
        if len(text) > 40 and sum(map(_is_hangul, text)) > len(text) / 2:
            yield text


def _errors(weights: dict[str, float], samples: list[Sample]) -> dict[str, Any]:
    """Shares of words cut and of words run together, by the weights alone."""
    guesses = [
        (weights["_"] + sum(weights.get(name, 0) for name in features) >= MIN_ODDS, goes_on)
        for features, goes_on in samples
    ]
    broken = [guess for guess, goes_on in guesses if goes_on]
    whole = [guess for guess, goes_on in guesses if not goes_on]
    return {
        "words cut": round(1 - sum(broken) / len(broken), 3),
        "words run together": round(sum(whole) / len(whole), 3),
    }


def _is_hangul(character: str) -> bool:
    return "가" <= character <= "힣"


if __name__ == "__main__":
    main()
