"""Events of a run as the page would meet them from an engine that does more than the one here."""

import json
from collections.abc import Callable, Iterator
from typing import Any

from playwright.sync_api import Page, WebSocketRoute

Event = tuple[str, Any]


def rewrite_events(page: Page, change: Callable[[str, Any], Iterator[Event]]) -> None:
    """Let `change(type, data)` give the events that reach the page instead of each one of a run.

    They are numbered anew. Call it before the page is opened.
    """

    def connect(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()
        sent: dict[str, int] = {}

        def pass_on(message: str | bytes) -> None:
            frame = json.loads(message)
            run = frame.get("run_id")
            if not run or not isinstance(frame.get("seq"), int):
                socket.send(message)
                return
            for kind, data in change(frame["type"], frame["data"]):
                sent[run] = sent.get(run, 0) + 1
                socket.send(json.dumps(frame | {"type": kind, "data": data, "seq": sent[run]}))

        server.on_message(pass_on)

    page.route_web_socket("**/ws/chat/", connect)
