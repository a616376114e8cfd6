"""A WebSocket client with every byte and every pause in our hands: slow, rude, or simply gone."""

import contextlib
import json
import socket
import ssl
import struct
import threading
import time
from urllib.parse import urlsplit

from websockets.client import ClientProtocol
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

from tests.support import wait_until

TERMINAL = frozenset({"run.completed", "run.stopped", "run.error"})


class Socket:
    """One open socket of a user; a thread reads it.

    `heard` are all frames, `received` the bytes on TCP. `pace` in bytes a second may be changed at
    any time; None reads as fast as it comes. `buffer` is the size of the kernel's receive buffer.
    """

    def __init__(self, url, token="", *, cookie="", deflate=False, buffer=0, pace=None):
        self.heard = []
        self.pings = 0
        self.received = 0
        self.pace = pace
        self.closed = threading.Event()
        self._open = threading.Event()
        self._lock = threading.Lock()
        self._gone = threading.Event()
        self._tcp = _connect(url, buffer)
        self._protocol = self._shake_hands(url, token, cookie, deflate)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()
        assert self._open.wait(10), "no handshake"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.vanish()
        self._thread.join(10)

    @staticmethod
    def half_open(url):
        """A TCP connection whose request stays unfinished."""
        tcp = _connect(url, 0)
        tcp.sendall(b"GET /ws/chat/ HTTP/1.1\r\nHost: ")
        return tcp

    @property
    def close_code(self):
        """Why the server closed it; None while it is open, or where it said nothing."""
        close = self._protocol.close_rcvd
        return close and close.code

    def say(self, kind, **fields):
        """Send a frame of the protocol."""
        self.send(json.dumps({"v": 1, "type": kind, **fields}).encode())

    def send(self, data, opcode=Opcode.TEXT):
        """Send any bytes as one frame; OSError when the server does not take them any more."""
        with self._lock:
            self._protocol.send_frame(Frame(opcode, data))
            self._flush()

    def vanish(self):
        """Go without a word: no close frame, the connection is reset."""
        self._gone.set()
        with contextlib.suppress(OSError):
            self._tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._tcp.shutdown(socket.SHUT_RD)
            self._tcp.close()

    def run(self, run_id):
        """The events of a run in the order heard."""
        return [frame for frame in self.heard if frame["run_id"] == run_id]

    def wait_for(self, kind, count=1, timeout=30.0):
        """The frame of this kind that makes the count full."""

        def found():
            frames = [frame for frame in self.heard if frame["type"] == kind]
            return len(frames) >= count and frames[count - 1]

        return wait_until(found, timeout)

    def wait_for_end(self, run_id, timeout=30.0):
        """All events of a run that has ended."""
        wait_until(lambda: any(f["type"] in TERMINAL for f in self.run(run_id)), timeout)
        return self.run(run_id)

    def _shake_hands(self, url, token, cookie, deflate):
        place = urlsplit(url)
        scheme = "wss" if place.scheme == "https" else "ws"
        offered = ["nura.v1", *([f"token.{token}"] if token else [])]
        extensions = [ClientPerMessageDeflateFactory()] if deflate else None
        protocol = ClientProtocol(
            parse_uri(f"{scheme}://{place.netloc}{place.path}/ws/chat/"),
            origin=url if cookie else None,
            extensions=extensions,
            subprotocols=offered,
            max_size=None,
        )
        request = protocol.connect()
        if cookie:
            request.headers["Cookie"] = cookie
        protocol.send_request(request)
        self._tcp.sendall(b"".join(protocol.data_to_send()))
        return protocol

    def _listen(self):
        with contextlib.suppress(OSError):
            while data := self._tcp.recv(65536 if self.pace is None else max(64, self.pace // 4)):
                self.received += len(data)
                with self._lock:
                    self._protocol.receive_data(data)
                    self._flush()
                for event in self._protocol.events_received():
                    self._take(event)
                if self.pace is not None:
                    self._gone.wait(len(data) / self.pace)
        self.closed.set()

    def _take(self, event):
        self._open.set()  # the first event is the answer to the handshake
        match getattr(event, "opcode", None):
            case Opcode.TEXT:
                self.heard.append(json.loads(event.data) | {"at": time.monotonic()})
            case Opcode.PING:
                self.pings += 1
            case Opcode.CLOSE:
                self.closed.set()

    def _flush(self):
        for data in self._protocol.data_to_send():
            if data:
                self._tcp.sendall(data)


def join_deltas(events):
    """What the deltas say; fails when a `seq` is missing, doubled or out of order."""
    first = events[0]["seq"] if events else 1
    assert [event["seq"] for event in events] == list(range(first, first + len(events)))
    return "".join(event["data"]["text"] for event in events if event["type"] == "delta")


def _connect(url, buffer):
    place = urlsplit(url)
    tcp = socket.socket()
    if buffer:
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    tcp.connect((place.hostname, place.port))
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if place.scheme == "https":
        return ssl.create_default_context().wrap_socket(tcp, server_hostname=place.hostname)
    return tcp
