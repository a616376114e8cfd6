"""Which language to answer in, and how far an embedder of certain languages knows a text."""

import re
from collections.abc import Set as AbstractSet

_HANGUL = re.compile("[가-힣ㄱ-ㅎㅏ-ㅣ]")
_LATIN = re.compile("[A-Za-zÀ-ɏ]")
_OTHER = re.compile("[\u0370-\u10ff\u1200-\u1fff\u3040-\u30ff\u3400-\u9fff]")
LETTERS_PER_SYLLABLE = 2.5
"""A Hangul syllable says about as much as this many Latin letters."""
ALL = "*"


def measure_scripts(text: str) -> dict[str, float]:
    """The shares of Korean ("ko"), Latin ("en") and other writing in a text.

    All 0 where there are no letters.
    """
    weights = {
        "ko": len(_HANGUL.findall(text)) * LETTERS_PER_SYLLABLE,
        "en": float(len(_LATIN.findall(text))),
        "other": len(_OTHER.findall(text)) * LETTERS_PER_SYLLABLE,
    }
    total = sum(weights.values())
    return {name: weight / total if total else 0.0 for name, weight in weights.items()}


def choose_reply_language(text: str) -> str:
    """The language to answer in, "ko" or "en": Korean as soon as the question holds some."""
    return "ko" if measure_scripts(text)["ko"] > 0.15 else "en"


def estimate_dense_weight(text: str, languages: AbstractSet[str]) -> float:
    """How far an embedder that knows `languages` knows this text, 0..1.

    Proportional to the share of known writing, but nothing below a half: an English model reads a
    Korean sentence with one English word as noise, and noise costs more than it brings
    (docs/notes/retrieval.md).
    """
    if ALL in languages:
        return 1.0
    known = sum(share for name, share in measure_scripts(text).items() if name in languages)
    return max(0.0, 2 * known - 1)
