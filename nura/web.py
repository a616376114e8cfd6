"""One web process: `python -m nura.web`. Under `up` it inherits the listening socket."""

import os
import socket
import sys

import uvicorn

from nura.heads import BoundedHeads

SOCKET_FD = "NURA_SOCKET_FD"
MESSAGE_LIMIT = 1_500_000
"""Bytes of one WebSocket message. Far more than a question may have, so that the application can
answer a too long one with a sentence instead of a closed socket."""
SWITCH_SECONDS = 0.0005
"""So long a page that is made in a thread computes on while words of an answer wait."""


def listen(host: str, port: int) -> socket.socket:
    """A bound socket. Raises `OSError` when the port is taken or the address is not ours."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.listen(2048)
    return listener


def config() -> uvicorn.Config:
    """How a web process serves."""
    from django.conf import settings

    return uvicorn.Config(
        "nura.asgi:application",
        log_config=None,
        access_log=False,  # the middleware counts requests by route; paths hold ids
        server_header=False,
        lifespan="off",
        http=BoundedHeads,
        proxy_headers=settings.TRUSTED_PROXIES > 0,
        forwarded_allow_ips="*" if settings.TRUSTED_PROXIES > 0 else None,
        ws="websockets-sansio",
        ws_max_size=MESSAGE_LIMIT,
        ws_ping_interval=20,
        ws_ping_timeout=20,
        timeout_graceful_shutdown=3,
    )


def main() -> None:
    """Serve until told to stop."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "nura.settings.prod")
    from django.conf import settings

    inherited = os.environ.get(SOCKET_FD)
    listener = (
        socket.socket(fileno=int(inherited)) if inherited else listen(settings.HOST, settings.PORT)
    )
    sys.setswitchinterval(SWITCH_SECONDS)
    uvicorn.Server(config()).run(sockets=[listener])


if __name__ == "__main__":
    main()
