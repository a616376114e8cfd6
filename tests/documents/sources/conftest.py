"""Sources in tests: real folders, real web servers on this machine, a real S3 protocol."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.servers.wire import POLL_SECONDS


class Site:
    """A web server of this machine. `pages` maps a path to its answer; `asked` is what came."""

    def __init__(self):
        self.pages, self.asked = {}, []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                site.asked.append((self.path, dict(self.headers)))
                answer = site.pages.get(self.path, (404, {}, b"gone"))
                status, headers, body = answer(self) if callable(answer) else answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(
            target=self._server.serve_forever, args=(POLL_SECONDS,), daemon=True
        ).start()

    def put(self, path, body, status=200, kind="text/html; charset=utf-8", **headers):
        data = body.encode() if isinstance(body, str) else body
        self.pages[path] = (status, {"Content-Type": kind, **headers}, data)

    def paths(self):
        return [path for path, _headers in self.asked]

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def site(settings):
    """A site inside, which the administrator allows by name."""
    one = Site()
    settings.INTERNAL_HOSTS = (f"127.0.0.1:{one.port}",)
    yield one
    one.close()


@pytest.fixture
def other_site():
    """Another site inside, which nobody allows."""
    one = Site()
    yield one
    one.close()
