"""Starts the models process and asks for its state; see `nura/models_server.py`."""

import http.client
import json
import os
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nura.embedded import spawn
from nura.embedded.spawn import find_service_account, make_private_folder, prepare_data_folder

HEALTH_SECONDS = 2.0
ENVIRONMENT = {
    "PYTHONUNBUFFERED": "1",
    "TQDM_DISABLE": "1",
    # Otherwise threads that load models keep memory in many arenas. A tokenizer has a thread per
    # core, and threads sharing an arena wait for each other.
    "MALLOC_ARENA_MAX": str(max(2, os.cpu_count() or 2)),
}


def prepare_launch(data_dir: Path, path: str, environment: Mapping[str, str]) -> spawn.Launch:
    """Create the socket's folder; returns how to start the process.

    The process takes the socket over from any other that listens there.
    """
    account = find_service_account(data_dir)
    if Path(path).is_relative_to(data_dir):
        prepare_data_folder(data_dir, account)
    make_private_folder(Path(path).parent, account)
    return spawn.Launch(
        name="models",
        command=(sys.executable, "-m", "nura.models_server", "--socket", path),
        folder=Path(__file__).resolve().parents[2],
        environment={**ENVIRONMENT, **environment},
    )


def wait_ready(path: str, alive: Callable[[], bool], timeout: float = 60.0) -> None:
    """Wait until it responds; its models may still be loading. Raises `RuntimeError`."""
    if not spawn.wait_until(lambda: not alive() or is_answering(path), timeout) or not alive():
        raise RuntimeError("The models process did not start; its last lines above say why")


def is_answering(path: str) -> bool:
    """Whether it takes requests now."""
    return read_health(path) is not None


def read_health(path: str) -> Mapping[str, Any] | None:
    """Its status, with the state of each model in `models`; None if it does not respond."""
    if not os.path.exists(path):  # noqa: PTH110 - asked often, and never of a folder
        return None
    connection = _SocketConnection(path)
    try:
        connection.request("GET", "/health")
        health: Mapping[str, Any] = json.load(connection.getresponse())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    else:
        return health
    finally:
        connection.close()


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=HEALTH_SECONDS)
        self._path = path

    def connect(self) -> None:
        """Open the socket instead of a port."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(HEALTH_SECONDS)
        self.sock.connect(self._path)
