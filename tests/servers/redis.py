"""Redis servers beside the product's own, which keep nothing over a restart, and a Sentinel."""

import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from redis import Redis
from redis.exceptions import RedisError

from nura.embedded import spawn
from tests.support import free_port, wait_until


class RedisServer:
    """A server on a port of 127.0.0.1, started at once; a replica if given a primary's port."""

    def __init__(self, folder: Path, primary_port: int = 0) -> None:
        self._options = ["--replicaof", "127.0.0.1", str(primary_port)] if primary_port else []
        self._account = spawn.find_service_account(folder)
        self._folder = folder
        spawn.make_private_folder(folder, self._account)  # replicas and Sentinels write there
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start, and wait until it answers."""
        settings = {"bind": "127.0.0.1", "port": str(self.port), "loglevel": "warning"}
        settings |= {"save": "", "repl-diskless-sync-delay": "0"}
        options = [part for name, value in settings.items() for part in (f"--{name}", value)]
        self._start_program([*options, *self._options])

    def _start_program(self, options: list[str]) -> None:
        program = str(spawn.find_redis(self._account))
        launch = spawn.Launch(
            "redis", [program, *options], self._folder, self._account, death_signal=signal.SIGKILL
        )
        self._process = spawn.start_program(launch, subprocess.DEVNULL)
        wait_until(self._is_answering, 30)

    def execute_command(self, *words: str) -> object:
        """The reply to a command."""
        with Redis.from_url(self.url) as client:
            return client.execute_command(*words)

    def kill(self) -> None:
        """End it at once."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _is_answering(self) -> bool:
        try:
            with Redis.from_url(self.url) as client:
                return bool(client.ping())
        except RedisError:
            return False


class Sentinel(RedisServer):
    """Watches a server, and promotes its replica two seconds after it has gone."""

    SERVICE = "nura"

    def __init__(self, watched_port: int) -> None:
        self._watched_port = watched_port
        # outside the test's folder: Sentinel opens its configuration by path
        super().__init__(Path(tempfile.mkdtemp(prefix="nura-sentinel-")))
        self.url = f"redis+sentinel://127.0.0.1:{self.port}/{self.SERVICE}?db=0"

    def start(self) -> None:
        """Start, and wait until it answers."""
        lines = (
            f"port {self.port}",
            "bind 127.0.0.1",
            f"sentinel monitor {self.SERVICE} 127.0.0.1 {self._watched_port} 1",
            f"sentinel down-after-milliseconds {self.SERVICE} 2000",
            f"sentinel failover-timeout {self.SERVICE} 5000",
        )
        spawn.write_private(self._folder / "sentinel.conf", "\n".join(lines), self._account)
        self._start_program(["sentinel.conf", "--sentinel"])

    def kill(self) -> None:
        """End it at once and delete its folder."""
        super().kill()
        shutil.rmtree(self._folder)
