"""Exit status 0 while the process of this container works; for the HEALTHCHECK of the image.

Without an argument that is web, where `/readyz` answers 200; `answers`, `documents` and `beat` have
told of themselves in Redis within the last 15 seconds.
"""

import os
import socket
import sys
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def check_web() -> None:
    """Raises `OSError` when it is not ready."""
    host = os.environ.get("ALLOWED_HOSTS", "localhost").split(",")[0].lstrip(".*") or "localhost"
    port = os.environ.get("NURA_PORT", "8000")
    request = urllib.request.Request(f"http://127.0.0.1:{port}/readyz", headers={"Host": host})
    urllib.request.urlopen(request, timeout=8).close()  # noqa: S310 - an address of our making


def check_process(kind: str) -> None:
    """Raises `OSError` or `RedisError` when it has not told of itself (`nura.health`)."""
    import redis

    from jobs.connections import open_client

    with open_client(redis, os.environ["REDIS_URL"], socket_timeout=5) as client:
        key, (now, _) = f"nura:processes:{kind}", client.time()
        living = client.zrangebyscore(key, f"({now}", "+inf")
    if not any(sign.decode().startswith(f"{socket.gethostname()}:") for sign in living):
        raise OSError(f"{kind} has told nothing of itself")


try:
    check_process(sys.argv[1]) if sys.argv[1:] else check_web()
except Exception as error:  # noqa: BLE001 - whatever it is, the process does not work
    sys.exit(str(error))
