"""A misbehaving server: endless or dripping responses, compression bombs, redirects."""

import contextlib
import functools
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.servers.wire import POLL_SECONDS

MEGABYTE = 2**20


@functools.cache
def pack_bomb(megabytes: int) -> bytes:
    """This many megabytes of blanks, gzipped."""
    packer = zlib.compressobj(9, wbits=31)
    blank = b" " * MEGABYTE
    return b"".join([*(packer.compress(blank) for _ in range(megabytes)), packer.flush()])


class HostileServer:
    """`/endless`, `/drip`, `/slow-head`, `/bomb`, `/redirect`.

    `answers` maps other paths to the name of one of these, to status, headers and body, or to a
    function that returns either. `asked` lists the requests received, as method, path, headers and
    body; `sent` counts the bytes sent.
    """

    def __init__(self):
        self.asked, self.sent, self.over = [], 0, threading.Event()
        self.answers, self.leads_to, self.bomb_megabytes = {}, "http://169.254.169.254/", 100
        self.kind = "application/json"
        hostile = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                path = self.path.partition("?")[0]
                hostile.asked.append((self.command, path, dict(self.headers), body))
                ways = {
                    "endless": hostile._go_on,
                    "drip": hostile._drip,
                    "slow-head": hostile._drip_head,
                    "bomb": hostile._explode,
                    "redirect": hostile._lead_away,
                }
                answer = hostile.answers.get(path, path.rpartition("/")[2])
                if callable(answer):
                    answer = answer()
                with contextlib.suppress(OSError):
                    if isinstance(answer, tuple):
                        hostile._say(self, answer)
                    elif answer in ways:
                        ways[answer](self)
                    else:
                        self.send_error(404)

            do_GET = do_POST = do_HEAD = answer  # noqa: N815

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(
            target=self._server.serve_forever, args=(POLL_SECONDS,), daemon=True
        ).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        self._server.shutdown()
        self._server.server_close()

    def _begin(self, handler, status=200, **headers):
        handler.send_response(status)
        handler.send_header("Content-Type", self.kind)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()

    def _say(self, handler, answer):
        status, headers, body = answer
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def _go_on(self, handler):
        self._begin(handler)
        part = b"{" + b" " * 65_535
        while not self.over.is_set():
            handler.wfile.write(part)
            self.sent += len(part)

    def _drip(self, handler):
        self._begin(handler)
        while not self.over.wait(0.05):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    def _drip_head(self, handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not self.over.wait(0.05):
            handler.wfile.write(b"x")
            handler.wfile.flush()

    def _explode(self, handler):
        packed = pack_bomb(self.bomb_megabytes)
        self._begin(handler, Content_Encoding="gzip", Content_Length=str(len(packed)))
        handler.wfile.write(packed)
        self.sent += len(packed)

    def _lead_away(self, handler):
        self._begin(handler, 307, Location=self.leads_to, Content_Length="0")
