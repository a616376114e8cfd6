"""A program that uses the product over its public API, with nothing but the standard library."""

import http.client
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from dataclasses import dataclass, field


@dataclass
class Client:
    """One user's key and the calls it makes."""

    url: str
    token: str

    def call(self, method, path, body=None, timeout=60):
        """(status, JSON or None) of a call under /api/v1."""
        data = None if body is None else json.dumps(body).encode()
        return self._send(method, path, data, "application/json", timeout)

    def upload(self, name, content):
        """The document of a new upload."""
        boundary = uuid.uuid4().hex
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
            "Content-Type: application/octet-stream\r\n\r\n"
        )
        data = head.encode() + content + f"\r\n--{boundary}--\r\n".encode()
        status, document = self._send(
            "POST", "/documents", data, f"multipart/form-data; boundary={boundary}", 60
        )
        assert status == 201, document
        return document

    def ask(self, content, **fields):
        """The turn of a question, at once, with its answer still streaming."""
        status, turn = self.call("POST", "/messages?wait=false", {"content": content, **fields})
        assert status == 202, turn
        return turn

    def message(self, turn):
        """The answer of a turn as it is now."""
        return self.call("GET", f"/messages/{turn['assistant_message']['id']}")[1]

    def follow(self, turn, after=0):
        """A listener on the events of the turn's run."""
        return Listener(self, turn["run_id"], after)

    def _send(self, method, path, data, content_type, timeout):
        request = urllib.request.Request(self.url + "/api/v1" + path, data, method=method)
        request.add_header("Authorization", f"Token {self.token}")
        request.add_header("Content-Type", content_type)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                status, raw = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, raw = error.code, error.read()
        return status, json.loads(raw) if raw else None


@dataclass
class Listener:
    """Follows a run by server-sent events in a thread; cut off, it resumes after its last."""

    client: Client
    run_id: str
    last: int = 0
    events: list = field(default_factory=list)

    def __post_init__(self):
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    @property
    def text(self):
        return "".join(event["data"]["text"] for event in self.events if event["type"] == "delta")

    @property
    def ended(self):
        return bool(self.events) and self.events[-1]["type"] in {
            "run.completed",
            "run.stopped",
            "run.error",
        }

    def _listen(self):
        deadline = time.monotonic() + 120
        pause = threading.Event()
        while not self.ended and time.monotonic() < deadline:
            try:
                self._read()
            except (OSError, http.client.HTTPException, ValueError):
                pause.wait(0.1)

    def _read(self):
        place = urllib.parse.urlsplit(self.client.url)
        speak = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        connection = speak[place.scheme](place.netloc, timeout=30)
        headers = {
            "Authorization": f"Token {self.client.token}",
            "Last-Event-ID": str(self.last),
            "Accept": "text/event-stream",
        }
        try:
            connection.request(
                "GET", f"{place.path}/api/v1/runs/{self.run_id}/events", headers=headers
            )
            answer = connection.getresponse()
            if answer.status != 200:
                raise http.client.HTTPException(answer.status)
            while line := answer.readline():
                if line.startswith(b"data: "):
                    event = json.loads(line[6:])
                    assert event["seq"] == self.last + 1, (event["seq"], self.last)
                    self.last = event["seq"]
                    self.events.append(event)
        finally:
            connection.close()
