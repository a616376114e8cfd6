"""People at work: they ask, listen, upload, delete and come back, whatever breaks meanwhile."""

import http.client
import random
import threading
import time
import urllib.error
import uuid
from dataclasses import dataclass, field

from tests.product.client import Client, Listener

RETRY_SECONDS = 0.5
PATIENCE_SECONDS = 90.0
"""How long somebody tries again what no server answers."""
AWAY = (urllib.error.URLError, OSError, http.client.HTTPException, ValueError)


@dataclass
class Heard:
    """A question and what its listener has heard of the answer."""

    client_id: str
    answer_id: str
    chat_id: str
    listener: Listener


@dataclass
class Person:
    """One account in a thread of its own; what it did is checked in the end."""

    name: str
    client: Client
    seed: int
    heard: list[Heard] = field(default_factory=list)
    documents: set[str] = field(default_factory=set)
    deleted_documents: set[str] = field(default_factory=set)
    deleted_chats: set[str] = field(default_factory=set)
    deleted_messages: set[str] = field(default_factory=set)
    chats: list[str] = field(default_factory=list)
    refused: int = 0
    given_up: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def live(self, over: threading.Event) -> None:
        """Do one thing after the other until it is over."""
        chance = random.Random(self.seed)
        acts = (
            self.ask,
            self.ask,
            self.ask,
            self.upload,
            self.delete_document,
            self.leave,
            self.look,
        )
        while not over.wait(chance.uniform(0.2, 2.0)):
            act = chance.choice(acts)
            try:
                act(chance)
            except Exception as error:  # noqa: BLE001 - whatever it is: it is told in the report
                self.errors.append(f"{act.__name__}: {error!r}")

    def ask(self, chance: random.Random) -> None:
        """Ask, in a chat of before or a new one; the same question is sent until it is taken."""
        client_id = uuid.uuid4().hex
        body = {
            "content": f"{self.name}의 질문 {client_id}: 규정은 무엇인가요?",
            "client_id": client_id,
        }
        known = [one for one in self.chats if one not in self.deleted_chats]
        if known and chance.random() < 0.6:
            body["chat_id"] = chance.choice(known)
        status, turn = self.insist("POST", "/messages?wait=false", body)
        if status != 202:
            self.refuse("ask", status, (404, 429))
            return
        chat_id, answer = turn["chat_id"], turn["assistant_message"]["id"]
        if chat_id not in self.chats:
            self.chats.append(chat_id)
        listener = Listener(self.client, turn["run_id"])
        self.heard.append(Heard(client_id, answer, chat_id, listener))
        if chance.random() < 0.15:
            self.insist("POST", f"/runs/{turn['run_id']}/stop")
        if chance.random() < 0.5:
            listener.thread.join(20)

    def upload(self, chance: random.Random) -> None:
        """A small file that nobody else has."""
        mark = uuid.uuid4().hex
        text = "\n\n".join(f"제{n}조 {self.name} 규정 {mark}의 {n}항이다." for n in range(1, 20))
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < ends_at:
            try:
                self.documents.add(self.client.upload(f"{mark}.md", text.encode())["id"])
            except AssertionError as error:
                if "duplicate" in str(error):  # it was stored, and the answer got lost
                    return
                self.refused += 1
                time.sleep(RETRY_SECONDS)
            except AWAY:
                time.sleep(RETRY_SECONDS)
            else:
                return
        self.given_up.append("upload")

    def delete_document(self, chance: random.Random) -> None:
        """One of the own documents, sometimes with all its traces."""
        if len(self.documents) < 3:
            return
        key = chance.choice(sorted(self.documents))
        erase = "?erase=true" if chance.random() < 0.5 else ""
        status, _ = self.insist("DELETE", f"/documents/{key}{erase}")
        if status in {204, 404}:
            self.documents.discard(key)
            self.deleted_documents.add(key)
        else:
            self.refuse("delete document", status, (429,))

    def leave(self, chance: random.Random) -> None:
        """Delete a chat or a message, or go on in a copy."""
        known = [one for one in self.chats if one not in self.deleted_chats]
        if len(known) < 3:
            return
        chat_id = chance.choice(known)
        what = chance.random()
        if what < 0.4:
            status, _ = self.insist("DELETE", f"/chats/{chat_id}")
            if status in {204, 404}:
                self.deleted_chats.add(chat_id)
            return
        asked = [one for one in self.heard if one.chat_id == chat_id]
        if not asked:
            return
        one = chance.choice(asked)
        if what < 0.7:
            status, _ = self.insist("DELETE", f"/messages/{one.answer_id}")
            if status in {204, 404}:
                self.deleted_messages.add(one.answer_id)
            return
        status, chat = self.insist("POST", f"/chats/{chat_id}/fork", {"message_id": one.answer_id})
        if status == 201:
            self.chats.append(chat["id"])

    def look(self, chance: random.Random) -> None:
        """Search, and look at lists."""
        self.insist("POST", "/search", {"query": "규정은 무엇인가요?"})
        self.insist("GET", "/chats")
        self.insist("GET", "/documents")

    def insist(self, method, path, body=None):
        """A call until somebody answers it with more than that he cannot."""
        ends_at = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < ends_at:
            try:
                status, told = self.client.call(method, path, body, timeout=30)
            except AWAY:
                time.sleep(RETRY_SECONDS)
                continue
            if status not in {500, 502, 503, 504}:
                return status, told
            if status == 500:
                self.errors.append(f"500 of {method} {path}: {told}")
            time.sleep(RETRY_SECONDS)
        self.given_up.append(f"{method} {path}")
        return 0, None

    def refuse(self, act, status, expected):
        """Note a call that was answered otherwise than asked for."""
        self.refused += 1
        if status not in expected and status:
            self.errors.append(f"{act}: {status}")
