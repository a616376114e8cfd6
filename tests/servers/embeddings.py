"""A stand-in for an OpenAI-compatible `/embeddings` endpoint that serves any model name."""

import hashlib
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler

import pytest

from tests.servers.wire import ThreadedServer


class EmbeddingServer(ThreadedServer):
    """Serves models of N dimensions: `words-N` (same words, same vector) and `noise-N`.

    `embedded` counts the texts of each model. `widths` overrides N. After `hold_after(n)`, requests
    beyond the next n wait until `release`; after `refuse_after(n)` they are refused.
    """

    def __init__(self):
        self.embedded = {}
        self.keys = {}
        self.widths = {}
        self.held = threading.Event()
        self._released = threading.Event()
        self._released.set()
        self._replies_before_hold = None
        self._replies_before_refusal = None
        super().__init__(self._make_handler())

    @property
    def url(self):
        """The base URL, with /v1."""
        return f"http://127.0.0.1:{self.port}/v1"

    def count(self, model):
        """How many texts were embedded, and how many of them more than once."""
        texts = self.embedded.get(model, Counter())
        return sum(texts.values()), sum(count - 1 for count in texts.values())

    def hold_after(self, requests):
        """Serve this many requests, then hold the others."""
        self._replies_before_hold = requests
        self._released.clear()

    def refuse_after(self, requests):
        """Serve this many requests, then refuse the others."""
        self._replies_before_refusal = requests

    def release(self):
        """Serve all requests again."""
        self._replies_before_hold = self._replies_before_refusal = None
        self._released.set()

    def close(self):
        """Stop."""
        self.release()
        super().close()

    def reply(self, request, key):
        """The body for a request; None if it was held and should get no response."""
        model, texts = request["model"], request["input"]
        if self._replies_before_refusal is not None:
            self._replies_before_refusal -= 1
            if self._replies_before_refusal < 0:
                return {"error": {"message": "no"}}
        if self._replies_before_hold is not None:
            self._replies_before_hold -= 1
            if self._replies_before_hold < 0:
                self.held.set()
                self._released.wait()
                return None
        self.embedded.setdefault(model, Counter()).update(texts)
        self.keys[model] = key
        kind, _, width = model.rpartition("-")
        width = self.widths.get(model, int(width))
        make = {"words": embed_words, "noise": embed_noise}[kind]
        data = [
            {"object": "embedding", "index": index, "embedding": make(text, width)}
            for index, text in enumerate(texts)
        ]
        return {"object": "list", "model": model, "data": data, "usage": {}}

    def _make_handler(self):
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                reply = server.reply(request, self.headers.get("Authorization"))
                if reply is None:
                    self.close_connection = True
                    return
                body = json.dumps(reply).encode()
                self.send_response(400 if "error" in reply else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        return Handler


def embed_words(text, width):
    """A vector of `width` numbers that counts the words of a text by their hash."""
    vector = [0.01] * width
    for word in text.lower().split():
        vector[_hash(word) % width] += 1.0
    return vector


def embed_noise(text, width):
    """A vector of `width` pseudo-random numbers, the same for the same text."""
    return [_hash(f"{place}:{text}") / 2**31 - 1 for place in range(width)]


def _hash(text):
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")


@pytest.fixture
def embedding_server():
    """The endpoint."""
    server = EmbeddingServer()
    yield server
    server.close()


@pytest.fixture(scope="session")
def small_models():
    """Settings of a product that gets its vectors from this server and starts no models process.

    That process takes longer to start than all others together. Like the bundled model, this one
    knows English only.
    """
    server = EmbeddingServer()
    yield {
        "NURA_EMBEDDING_BASE_URL": server.url,
        "NURA_EMBEDDING_MODEL": "words-64",
        "NURA_EMBEDDING_LANGUAGES": "en",
    }
    server.close()
