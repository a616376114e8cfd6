"""A misbehaving server: endless or dripping responses, compression bombs, redirects."""

import contextlib
import functools
import threading
import zlib
from http.server import BaseHTTPRequestHandler

from tests.servers.wire import ThreadedServer

MEGABYTE = 2**20


@functools.cache
def pack_bomb(megabytes: int) -> bytes:
    """This many megabytes of spaces, gzipped."""
    packer = zlib.compressobj(9, wbits=31)
    blank = b" " * MEGABYTE
    return b"".join([*(packer.compress(blank) for _ in range(megabytes)), packer.flush()])


class HostileServer(ThreadedServer):
    """`/endless`, `/drip`, `/slow-head`, `/bomb`, `/redirect`.

    `answers` maps other paths to the name of one of these, to status, headers and body, or to a
    function that returns either. `requests` lists those received, as method, path, headers and
    body; `sent_bytes` counts the bytes sent.
    """

    def __init__(self):
        self.requests, self.sent_bytes, self._closed = [], 0, threading.Event()
        self.answers, self.redirect_url, self.bomb_megabytes = {}, "http://169.254.169.254/", 100
        self.content_type = "application/json"
        hostile = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                path = self.path.partition("?")[0]
                hostile.requests.append((self.command, path, dict(self.headers), body))
                behaviours = {
                    "endless": hostile._send_endlessly,
                    "drip": hostile._drip,
                    "slow-head": hostile._drip_head,
                    "bomb": hostile._send_bomb,
                    "redirect": hostile._redirect,
                }
                answer = hostile.answers.get(path, path.rpartition("/")[2])
                if callable(answer):
                    answer = answer()
                with contextlib.suppress(OSError):
                    if isinstance(answer, tuple):
                        hostile._send_answer(self, answer)
                    elif answer in behaviours:
                        behaviours[answer](self)
                    else:
                        self.send_error(404)

            do_GET = do_POST = do_HEAD = answer  # noqa: N815

            def log_message(self, *_):
                pass

        super().__init__(Handler)
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._closed.set()
        self.close()

    def _send_head(self, handler, status=200, **headers):
        handler.send_response(status)
        handler.send_header("Content-Type", self.content_type)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()

    def _send_answer(self, handler, answer):
        status, headers, body = answer
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def _send_endlessly(self, handler):
        self._send_head(handler)
        part = b"{" + b" " * 65_535
        while not self._closed.is_set():
            handler.wfile.write(part)
            self.sent_bytes += len(part)

    def _drip(self, handler):
        self._send_head(handler)
        while not self._closed.wait(0.05):
            handler.wfile.write(b" ")
            handler.wfile.flush()

    def _drip_head(self, handler):
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not self._closed.wait(0.05):
            handler.wfile.write(b"x")
            handler.wfile.flush()

    def _send_bomb(self, handler):
        packed = pack_bomb(self.bomb_megabytes)
        self._send_head(handler, Content_Encoding="gzip", Content_Length=str(len(packed)))
        handler.wfile.write(packed)
        self.sent_bytes += len(packed)

    def _redirect(self, handler):
        self._send_head(handler, 307, Location=self.redirect_url, Content_Length="0")
