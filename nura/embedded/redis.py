"""The embedded Redis: broker, run log and notices in the data folder, reached by a socket only.

Only our user has any rights there, with a password, and without the commands that change the server
or inspect others. pip brings Redis 6.2.14; this shuts off the vulnerabilities found in it since:
HyperLogLog (CVE-2025-32023), scripts (CVE-2024-31449, CVE-2024-46981, CVE-2025-46817 to -46819,
CVE-2025-49844) and long patterns (CVE-2024-31228) need a user, and unauthenticated connections
(CVE-2025-21605, CVE-2025-48367) need the socket, which nobody else can open.
"""

import hashlib
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from redis import Redis
from redis.exceptions import BusyLoadingError
from redis.exceptions import ConnectionError as RedisConnectionError

from nura.embedded import spawn
from nura.embedded.locations import ROLE, build_redis_url, find_socket_dir, read_password
from nura.embedded.spawn import (
    find_service_account,
    make_private_folder,
    prepare_data_folder,
    write_private,
)

SOCKET = "redis.sock"
DATABASES = 64
"""More than the default 16, so that every test process gets its own."""

USERS = "users.acl"
RIGHTS = (
    *("~*", "&*", "+@all", "-@dangerous", "+info", "+config|get"),
    *("+client|setname", "+client|setinfo", "+client|id"),
    *("-script", "+script|load", "+script|exists", "-pfadd", "-pfcount", "-pfmerge"),
)
FOR_TESTS = ("~*", "&*", "+@all")
"""For tests, which flush their database."""


def prepare_launch(data_dir: Path, durable: bool = True) -> spawn.Launch:
    """Clean up after a crash; returns how to start Redis. The caller holds the folder's lock."""
    account = find_service_account(data_dir)
    folder = data_dir / "redis"
    sockets = find_socket_dir(data_dir)
    prepare_data_folder(data_dir, account)
    for private in (folder, sockets):
        make_private_folder(private, account)
    write_private(folder / USERS, _describe_users(RIGHTS if durable else FOR_TESTS), account)
    socket_path = "../run" if sockets == data_dir / "run" else str(sockets)
    settings = {
        "port": "0",
        "unixsocket": f"{socket_path}/{SOCKET}",
        "unixsocketperm": "700",
        "databases": str(DATABASES),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "maxmemory-policy": "noeviction",
        "loglevel": "warning",
        "aclfile": USERS,
    }
    options = [part for name, value in settings.items() for part in (f"--{name}", value)]
    options += ["--client-output-buffer-limit", "pubsub", "64mb", "32mb", "60"]
    command = [str(spawn.find_redis(account)), *options]
    launch = spawn.Launch("redis", command, folder, account, death_signal=signal.SIGTERM)
    spawn.clear_leftovers(launch, "redis-server")
    (sockets / SOCKET).unlink(missing_ok=True)
    return launch


def wait_ready(data_dir: Path, alive: Callable[[], bool], timeout: float = 60.0) -> None:
    """Wait until it responds; a long append-only file takes time. Raises `RuntimeError`."""
    if not spawn.wait_until(lambda: not alive() or is_answering(data_dir), timeout) or not alive():
        raise RuntimeError("Redis did not start; its last lines above say why")


def is_answering(data_dir: Path) -> bool:
    """Whether it takes commands now."""
    client = Redis.from_url(build_redis_url(data_dir))
    try:
        return bool(client.ping())
    except (RedisConnectionError, BusyLoadingError):
        return False
    finally:
        client.close()


def _describe_users(rights: Sequence[str]) -> str:
    digest = hashlib.sha256(read_password().encode()).hexdigest()
    own_user = " ".join(("user", ROLE, "on", f"#{digest}", *rights))
    return f"user default off resetpass resetkeys resetchannels -@all\n{own_user}\n"
