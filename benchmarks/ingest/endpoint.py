"""An OpenAI-compatible endpoint of embeddings that costs nearly nothing, in a process of its own.

Run as a program it says its port and serves until its input ends.
"""

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WIDTH = 384
VECTOR = json.dumps([0.5, *[0.001 * number for number in range(1, WIDTH)]])


class _Handler(BaseHTTPRequestHandler):
    """Gives each text the same vector, written before anybody asked."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Read the request, count its texts."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        rows = ",".join(
            f'{{"object":"embedding","index":{number},"embedding":{VECTOR}}}'
            for number in range(len(asked["input"]))
        )
        usage = '"usage":{"prompt_tokens":0,"total_tokens":0}'
        body = f'{{"object":"list","model":"flat","data":[{rows}],{usage}}}'.encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Its address, with /v1."""
    command = [sys.executable, "-m", __spec__.name]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
        process.communicate()


def settings(url: str) -> dict[str, str]:
    """Settings of a product that embeds everything there."""
    return {
        "NURA_EMBEDDING_BASE_URL": url,
        "NURA_EMBEDDING_MODEL": "flat",
        "NURA_EMBEDDING_LANGUAGES": "*",
    }


def main() -> None:
    """Serve until nobody holds the other end of the input."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
