"""A stand-in for an OpenAI-compatible `/audio/speech` endpoint, over real sockets."""

import io
import json
import threading
import wave
from collections import deque
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

import pytest

from tests.servers.wire import ThreadedServer

RATE = 8000
SAMPLES_A_CHARACTER = 10


def make_wav(samples, *, rate=RATE):
    """A WAV file of silence, 16 bits mono."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(b"\0\0" * samples)
    return out.getvalue()


def remove_length(sound):
    """A WAV file without its length, as streaming servers send it."""
    return sound[:4] + b"\xff" * 4 + sound[8:40] + b"\xff" * 4 + sound[44:]


def count_samples(sound):
    """The number of samples according to the header."""
    with wave.open(io.BytesIO(sound), "rb") as file:
        return file.getnframes()


@dataclass
class Reply:
    """A response; the second half of its body is sent once `hold` is set."""

    status: int = 200
    body: bytes = b""
    headers: dict = field(default_factory=lambda: {"Content-Type": "audio/wav"})
    hold: threading.Event | None = None


class SpeechServer(ThreadedServer):
    """Replies with ten samples per character, unless `replies` has other responses queued.

    `requests` lists the requests as path, headers and JSON.
    """

    def __init__(self):
        self.requests = []
        self.replies = deque()
        super().__init__(self._make_handler())

    @property
    def url(self):
        """The base URL, with /v1."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def inputs(self):
        """The texts of the requests."""
        return [body["input"] for _, _, body in self.requests]

    def reply(self, request):
        """The response to a request."""
        if self.replies:
            return self.replies.popleft()
        if request["response_format"] == "mp3":
            return Reply(body=b"ID3", headers={"Content-Type": "audio/mpeg"})
        return Reply(body=make_wav(SAMPLES_A_CHARACTER * len(request["input"])))

    def _make_handler(self):
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.requests.append((self.path, self.headers, body))
                reply = server.reply(body)
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                half = len(reply.body) // 2
                self.wfile.write(reply.body[:half])
                if reply.hold:
                    reply.hold.wait(30)
                self.wfile.write(reply.body[half:])

            def do_GET(self):
                server.requests.append((self.path, self.headers, {"input": ""}))
                self.send_error(404)

            def log_message(self, *_):
                pass

        return Handler


@pytest.fixture
def speech_server(settings):
    """The endpoint, entered in the settings."""
    server = SpeechServer()
    settings.TTS_BASE_URL, settings.TTS_MODEL = server.url, "tts-1"
    settings.TTS_VOICE, settings.TTS_API_KEY = "alloy", "key-of-the-voice"
    yield server
    server.close()
