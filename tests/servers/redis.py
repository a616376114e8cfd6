"""A server of Redis beside the product's own, which keeps nothing over a restart."""

import signal
import subprocess
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from nura.embedded import spawn
from tests.support import free_port, wait_until


class RedisServer:
    """One server on a port of 127.0.0.1, running from its beginning."""

    def __init__(self, folder: Path) -> None:
        self._account = spawn.find_service_account(folder)
        self._folder = folder
        spawn.open_data_folder(folder, self._account)
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start, and wait until it answers."""
        program = str(spawn.find_redis(self._account))
        settings = {"bind": "127.0.0.1", "port": str(self.port), "save": "", "loglevel": "warning"}
        options = [part for name, value in settings.items() for part in (f"--{name}", value)]
        launch = spawn.Launch(
            "redis", [program, *options], self._folder, self._account, death_signal=signal.SIGKILL
        )
        self._process = spawn.start_program(launch, subprocess.DEVNULL)
        wait_until(self._answers, 30)

    def kill(self) -> None:
        """End it at once."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        try:
            with Redis.from_url(self.url) as client:
                return bool(client.ping())
        except RedisError:
            return False
