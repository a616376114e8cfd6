"""The engine with its analyser of Korean, and as on a machine that has none."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rag.errors import EngineUnavailable
from rag.tokenize import korean


@contextmanager
def without_kiwi() -> Iterator[None]:
    """As where kiwipiepy cannot be imported."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "kiwipiepy", None)
        patch.setattr(korean, "_ANALYSER", korean.Analyser())
        yield


@pytest.fixture(params=["kiwi", "fallback"])
def analyser(request):
    """Each test with the morphological analyser and without it."""
    if request.param == "kiwi":
        yield
        return
    with without_kiwi():
        with pytest.raises(EngineUnavailable):
            korean.get_analyser()
        yield
