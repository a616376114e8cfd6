"""Fixtures of the engine's tests: the stand-in server and the data shared with other projects."""

from pathlib import Path

import pytest

from tests.rag.analysers import analyser  # noqa: F401
from tests.servers.fixtures import _llm_server, llm_server  # noqa: F401
from tests.support import DATA, NO_DATA


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Question sets and hostile files beside the project."""
    if not DATA.is_dir():
        pytest.skip(NO_DATA)
    return DATA
