"""What must hold when it is quiet again: I1 to I8."""

import json
import time

from tests.product.client import Client
from tests.soak.people import Person
from tests.support import Product

LOOK = "from tests.soak.look import tell_violations; tell_violations()"


def wait_for_quiet(product: Product, seconds: float) -> bool:
    """Whether nothing is at work within that time."""
    script = (
        "from chats.models import Run; from documents.models import Document;"
        "print('left', Run.objects.filter(ended_at=None).count()"
        " + Document.objects.filter(status='PROCESSING').exclude(stage='paused').count())"
    )
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        said = product.manage("shell", "-v0", "-c", script, check=False).stdout
        if said.rpartition("left ")[2].strip() == "0":
            return True
        time.sleep(3)
    return False


def check_database(product: Product) -> list[str]:
    """Violations that tables, files and queues show."""
    said = product.manage("shell", "-v0", "-c", LOOK).stdout
    found = json.loads(said.rpartition("found ")[2])
    return [f"{name}: {count} ({', '.join(some)})" for name, (count, some) in found.items()]


def check_person(person: Person) -> list[str]:
    """Violations that one account sees: its streams, its documents, what it deleted."""
    found = []
    for one in person.heard:
        one.listener.thread.join(30)
        seqs = [event["seq"] for event in one.listener.events]
        if seqs != list(range(1, len(seqs) + 1)):
            found.append(f"I5 gap or repeat in the events of {one.listener.run_id}")
        if one.chat_id in person.deleted_chats or one.answer_id in person.deleted_messages:
            continue
        status, message = person.client.call("GET", f"/messages/{one.answer_id}")
        if status == 404:
            continue  # its question was deleted with another answer
        heard = _join_text(one.listener.events)
        if not message["content"].startswith(heard):
            found.append(f"I4 heard what is not stored: {one.answer_id} ({message['status']})")
    there = {row["id"] for row in _list_all(person.client, "/documents")}
    found += [f"I1 lost document {key}" for key in sorted(person.documents - there)]
    found += [f"I1 document is back: {key}" for key in sorted(person.deleted_documents & there)]
    chats = {row["id"] for row in _list_all(person.client, "/chats")}
    wanted = set(person.chats) - person.deleted_chats
    found += [f"I3 lost chat {key}" for key in sorted(wanted - chats)]
    found += [f"I3 chat is back: {key}" for key in sorted(person.deleted_chats & chats)]
    found += [f"error seen by {person.name}: {error}" for error in person.errors[:5]]
    found += [f"never answered for {person.name}: {what}" for what in person.given_up[:5]]
    return found


def _join_text(events: list[dict]) -> str:
    text = ""
    for event in events:
        if event["type"] == "delta":
            text += event["data"]["text"]
        elif event["type"] == "replace":
            text = event["data"]["text"]
    return text


def _list_all(client: Client, path: str):
    page = 1
    while True:
        _, told = client.call("GET", f"{path}?page={page}&page_size=100")
        yield from told["results"]
        if not told["next"]:
            return
        page += 1
