"""Sources in tests: real folders, real web servers on this machine, a real S3 protocol."""

from http.server import BaseHTTPRequestHandler

import pytest

from tests.servers.wire import ThreadedServer


class Site(ThreadedServer):
    """A local web server. `pages` maps paths to responses; `asked` lists the requests."""

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

        super().__init__(Handler)
        self.url = f"http://127.0.0.1:{self.port}"

    def put(self, path, body, status=200, kind="text/html; charset=utf-8", **headers):
        data = body.encode() if isinstance(body, str) else body
        self.pages[path] = (status, {"Content-Type": kind, **headers}, data)

    def paths(self):
        return [path for path, _headers in self.asked]


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
