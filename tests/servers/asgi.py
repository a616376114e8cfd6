"""The product's web process in a thread of the test: real HTTP and real sockets on a free port."""

import contextlib
import socket
import threading
import time

from nura import web


class WebServer:
    """`url` and `ws_url` of a running application: `nura.asgi:application`, or another one."""

    def __init__(self, application=None):
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.host}"
        self.ws_url = f"ws://{self.host}/ws/chat/"
        config = web.build_server_config()
        config.app = application or config.app
        self._server = web.WebServer(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))

    def start(self):
        self._thread.start()
        deadline = threading.Event()
        while not self._server.started:
            deadline.wait(0.02)

    def pause(self, seconds):
        """Block the event loop, so that connections are accepted but not served."""
        loop = self._server.servers[0].get_loop()
        loop.call_soon_threadsafe(time.sleep, seconds)

    def request_stop(self):
        self._server.should_exit = True

    def stop(self):
        self.request_stop()
        self._thread.join(20)
        assert not self._thread.is_alive(), "the web server does not end"
        self._socket.close()


@contextlib.contextmanager
def run_server():
    server = WebServer()
    server.start()
    try:
        yield server
    finally:
        server.stop()
