"""Answers of a model that has been talked into attacking its reader."""

import json

import pytest

from tests.support import DATA, NO_DATA

FILE = DATA / "bad-inputs" / "injection" / "markdown-answers.json"
needs_answers = pytest.mark.skipif(not FILE.exists(), reason=NO_DATA)


def load_answers() -> list[str]:
    """Each as a whole."""
    if not FILE.exists():
        return []
    return [entry["markdown"] for entry in json.loads(FILE.read_text(encoding="utf-8"))]
