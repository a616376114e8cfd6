"""For the tests: a data folder of their own, a clean environment, fast password hashes.

pytest-django reads the settings before any `conftest.py`, so the folder is chosen here. The first
process of a test run makes it; the processes it starts (pytest-xdist) inherit its name.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from uuid import uuid4

from nura.embedded import locations

FOLDER = "NURA_TEST_DATA_DIR"


def _make_own_folder() -> str:
    if not os.environ.get(FOLDER):
        os.environ[FOLDER] = str(Path(tempfile.gettempdir()) / f"nura-test-{uuid4().hex[:12]}")
        atexit.register(shutil.rmtree, os.environ[FOLDER], ignore_errors=True)
    return os.environ[FOLDER]


for name in list(os.environ):
    if (
        name.startswith(("NURA_", "MEMORY_", "DATABASE_", "REDIS_URL", "CELERY_"))
        and name != FOLDER
    ):
        del os.environ[name]
os.environ["NURA_DATA_DIR"] = (
    _make_own_folder()
)  # created by whoever starts the services, not by mypy
os.environ["SECRET_KEY"] = "for-tests-only-" + "0123456789abcdef" * 3
os.environ["NURA_DOTENV"] = os.devnull  # a developer's .env must not affect tests

from nura.settings.base import *  # noqa: E402, F403

WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
REDIS_URL = locations.build_redis_url(DATA_DIR, SERVICE_PASSWORD).replace("db=0", f"db={WORKER}")  # noqa: F405
CACHES["default"]["LOCATION"] = REDIS_URL  # noqa: F405
CELERY_BROKER_URL = locations.to_celery_url(REDIS_URL)

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
STORAGES["staticfiles"] = {  # noqa: F405
    "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
}

LIMITS = dict.fromkeys(LIMITS, 0)  # noqa: F405 - tests of limits set their own
