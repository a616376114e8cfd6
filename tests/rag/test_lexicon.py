"""Each pattern of the lexicon finds its examples, and nothing of what it refuses."""

import pytest

from rag.lexicon import load_patterns

FILES = (
    "emergency",
    "followup",
    "intents",
    "kinds",
    "names",
    "no_claims",
    "profile",
    "references",
    "references.en",
    "references.ko",
    "sameness",
)
PATTERNS = [(name, pattern) for name in FILES for pattern in load_patterns(name).named]


@pytest.mark.parametrize(("name", "pattern"), PATTERNS)
def test_a_pattern_finds_its_examples_and_nothing_of_what_it_refuses(name, pattern):
    known = load_patterns(name)
    assert known.examples[pattern]
    for example in known.examples[pattern]:
        assert any(found[0] for found in known[pattern].finditer(example)), example
    for other in known.refuses[pattern]:
        assert not any(found[0].strip() for found in known[pattern].finditer(other)), other
