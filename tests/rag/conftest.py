"""Fixtures of the engine's tests: the stand-in server and the data shared with other projects."""

from pathlib import Path

import pytest

from tests.rag import worlds
from tests.rag.analysers import analyser  # noqa: F401
from tests.servers.fixtures import _llm_server, llm_server  # noqa: F401
from tests.support import DATA, NO_DATA


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Question sets and hostile files beside the project."""
    if not DATA.is_dir():
        pytest.skip(NO_DATA)
    return DATA


@pytest.fixture
def library() -> worlds.Library:
    """Two Korean regulations and two English manuals, indexed."""
    made = worlds.Library(worlds.make_engine())
    made.add("여비 규정.md", worlds.TRAVEL_RULES)
    made.add("보안 규정.md", worlds.SECURITY_RULES)
    made.add("deploy.md", worlds.DEPLOYMENT)
    made.add("backup.md", worlds.BACKUPS)
    return made
