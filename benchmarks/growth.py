"""What grows with what others own: the same small account in installations of three sizes.

Libraries of 10 thousand, 100 thousand and a million chunks, with 10, a thousand and 100 thousand
chats. The account has the same documents and chats in each; what it does should take the same time,
or grow by no more than the depth of an index. The largest is the one before ten times over, without
vectors of the copies. What administrators see of many chats is measured by `administration`, too.
"""

import contextlib
import functools
import itertools
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from benchmarks import report
from benchmarks.scale import bulk, corpus, plot, stock
from benchmarks.scale.corpus import Corpus
from tests.quality import sets

SIZES = report.choose_size(
    {10_000: 10, 100_000: 1_000, 1_000_000: 100_000}, quick={500: 10, 5_000: 100}
)
"""Chunks, and chats of all others."""
TIMES = 10
"""The largest is made of the one before it."""
OWN_DOCUMENTS, OWN_CHATS = 30, 10
ROUNDS, WARMING = report.choose_size((20, 3), quick=(3, 1))
FOLDER = Path(__file__).parents[1] / "var" / "bench"

COPY_CHATS = """
    INSERT INTO chats_chat SELECT (made.one).*
      FROM (SELECT jsonb_populate_record(pattern, jsonb_build_object(
                'id', gen_random_uuid(), 'updated_at', now() - number * interval '1m')) AS one
              FROM chats_chat pattern CROSS JOIN generate_series(1, %(count)s) AS number
             WHERE pattern.id = %(chat)s) AS made
"""
COPY_MESSAGES = """
    INSERT INTO chats_message SELECT (made.one).*
      FROM (SELECT jsonb_populate_record(pattern, jsonb_build_object(
                'id', gen_random_uuid(), 'chat_id', chat.id, 'parent_id', null)) AS one
              FROM chats_message pattern CROSS JOIN chats_chat chat
             WHERE pattern.chat_id = %(chat)s AND chat.owner_id = %(owner)s AND chat.id <> %(chat)s
           ) AS made
"""


def main() -> None:
    """Make the installations where they are not there, measure, and keep the figures."""
    if not sets.available():
        print("\ngrowth: left out, as the data it is made from does not lie beside the project")
        return
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    FOLDER.mkdir(parents=True, exist_ok=True)
    from django.core.management import call_command

    figures: dict[str, dict[str, Any]] = {}
    with stock.postgres(FOLDER, with_redis=True):
        texts = corpus.load(FOLDER)
        logging.disable(logging.ERROR)  # a line for each request
        call_command("collectstatic", interactive=False, verbosity=0)
        for size, chats in SIZES.items():
            if size == max(SIZES):
                stock.multiplied(texts, size // TIMES, TIMES)
            else:
                stock.stocked(texts, size)
            with _people(texts, chats) as users:
                figures[str(size)] = report.time_in_turns(
                    _list_ways(texts, users), rounds=ROUNDS, warming=WARMING
                )
            print(f"{size:,} chunks, {chats:,} chats: {figures[str(size)]}", flush=True)
    report.write("growth", {"chats": {str(size): SIZES[size] for size in SIZES}, "ms": figures})
    plot.draw_growth(figures, report.RESULTS / "growth.svg")
    rows = {
        name: [found[name]["p50"] for found in figures.values()]
        for name in next(iter(figures.values()))
    }
    report.table(
        "Median in ms by chunks of the installation",
        ["", *(f"{int(size):,}" for size in figures)],
        [[name, *values] for name, values in rows.items()],
    )


# The installation


@dataclass(frozen=True, slots=True)
class Users:
    """The small account, and who owns all the rest."""

    asker: Any
    owner: Any
    admin: Any


@contextlib.contextmanager
def _people(texts: Corpus, chats: int) -> Iterator[Users]:
    """The accounts with what they have; what they add is taken away at the end."""
    from django.contrib.auth.models import User
    from django.db import connection

    from chats.models import Chat

    User.objects.filter(username__in=("asker", "admin")).delete()
    asker = User.objects.create_user("asker", password="!")
    admin = User.objects.create_superuser("admin", password="!")
    users = Users(asker, User.objects.get(username="bench"), admin)
    Chat.objects.filter(owner=users.owner).delete()
    add = make_adder(texts, asker)
    for _ in range(OWN_DOCUMENTS):
        add()
    _add_chats(asker, OWN_CHATS)
    _add_chats(users.owner, chats)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE)")
    try:
        yield users
    finally:
        asker.documents.all().delete()
        asker.delete()
        admin.delete()
        Chat.objects.filter(owner=users.owner).delete()


def _add_chats(owner: Any, count: int) -> None:
    from django.db import connection
    from django.utils import timezone

    from chats.models import Chat, Message

    chat = Chat.objects.create(owner=owner, title="연차 휴가는 며칠인가요?")
    now = timezone.now()
    asked = Message.objects.create(
        chat=chat,
        role="user",
        content="연차 휴가는 며칠인가요?",
        status="COMPLETED",
        created_at=now,
    )
    Message.objects.create(
        chat=chat,
        role="assistant",
        parent=asked,
        content="연차 휴가는 15일입니다. " * 20,
        status="COMPLETED",
        mode="general",
        created_at=now,
    )
    with connection.cursor() as cursor:
        cursor.execute(COPY_CHATS, {"chat": chat.pk, "count": count - 1})
        cursor.execute(COPY_MESSAGES, {"chat": chat.pk, "owner": owner.pk})


def make_adder(texts: Corpus, owner: Any) -> Callable[[], UUID]:
    """Adds a further document of thirty chunks, as a worker does when it was read and embedded."""
    from documents import index, queue, spaces
    from rag.types import Box, IndexedChunk, Page, TextChunk

    space, made = spaces.get_active_space(), texts.documents(10**9)
    box = (Box(1, 0.1, 0.2, 0.8, 0.3),)

    def add() -> UUID:
        chunks, key = next(made), uuid4()
        document = bulk.make_document(key.int, pk=key, owner=owner)
        document.save(force_insert=True)
        indexed = [
            IndexedChunk(
                TextChunk(place, one.text, 0, len(one.text), 1, 1, bulk.SECTION, box),
                one.terms,
                tuple(one.vector.tolist()),
            )
            for place, one in enumerate(chunks)
        ]
        claim = queue.claim_next_document()
        assert claim is not None
        assert space is not None
        with index.IndexDraft(document) as draft:
            draft.add_page(Page(1, ""), 0)
            draft.index(indexed, space)
            index.replace_index(claim, draft, index.IngestFindings(), space)
        return key

    return add


# What is measured


def _list_ways(texts: Corpus, users: Users) -> dict[str, Callable[[], object]]:
    """What is done, by its name: by the small account, by processes."""
    from django.core.files.base import ContentFile
    from django.core.management import call_command
    from django.test import Client

    from chats.models import Chat
    from chats.runs import summaries, worker
    from documents import deletions, ingest, services
    from documents.models import Document
    from documents.sources import runs as source_runs
    from nura import retention
    from nura.accounts import exports, imports

    client, admin = Client(SERVER_NAME="localhost"), Client(SERVER_NAME="localhost")
    client.force_login(users.asker)
    admin.force_login(users.admin)
    chat = Chat.objects.filter(owner=users.asker).first()
    document = Document.objects.filter(owner=users.asker).first()
    assert chat is not None
    assert document is not None
    add, added = make_adder(texts, users.asker), []

    def get(path: str, asking: Client = client) -> None:
        response = asking.get(path, headers={"accept": "text/html,application/json"})
        if response.status_code != 200:
            raise RuntimeError(f"{path}: {response.status_code}")

    def upload() -> None:
        content = ContentFile(f"# 규정\n{uuid4()}".encode())
        row, _ = services.upload_document(owner=users.asker, name=f"{uuid4()}.md", content=content)
        Document.objects.filter(pk=row.pk).delete()

    def delete() -> None:
        row = Document.objects.get(pk=added.pop())
        services.delete_document(document=row)

    asker = {
        "search, 30 own documents": _make_search(texts, users.asker),
        "upload": upload,
        "index a document of 31 chunks": lambda: added.append(add()),
        "delete a document": delete,
        **{
            name: functools.partial(get, path)
            for name, path in {
                "first page": "/",
                "a chat's page": f"/c/{chat.pk}",
                "sidebar": "/panels/chats",
                "documents page": "/documents",
                "a document's page": f"/documents/{document.pk}",
                "list of documents, REST": "/api/v1/documents",
                "list of libraries, REST": "/api/v1/libraries",
                "list of chats, REST": "/api/v1/chats",
                "find everywhere (Ctrl+K)": "/api/v1/find?q=휴가",
            }.items()
        },
    }
    others = {
        "administration: overview": lambda: get("/admin/", admin),
        "administration: documents": lambda: get("/admin/documents/document/", admin),
        "administration: chats": lambda: get("/admin/chats/chat/", admin),
        "migrate, nothing to do": lambda: call_command("migrate", verbosity=0),
    }
    sweeps = {
        "sweep: ingests": ingest.reap_ingests,
        "sweep: runs": worker.reap_runs,
        "sweep: summaries": summaries.reap_summaries,
        "sweep: deletions": deletions.apply_deletions,
        "sweep: sources": lambda: (source_runs.start_due_runs(), source_runs.reap_runs()),
        "sweep: exports and imports": lambda: (exports.sweep_exports(), imports.sweep_imports()),
        "sweep: what has run out": retention.purge,
    }
    return asker | others | sweeps


def _make_search(texts: Corpus, asker: Any) -> Callable[[], object]:
    """A question of the account to all that it may read, its scope listed first."""
    from documents.models import Document
    from documents.search.store import ScopedStore
    from rag.config import RagConfig
    from rag.factory import Engine
    from rag.types import Scope, ScopeReason

    vectors = {question.text: question.vector for question in texts.questions}
    engine = Engine(RagConfig(), embedder=stock.KnowsAll(vectors))
    questions = itertools.cycle(texts.questions)

    def search() -> object:
        rows = Document.objects.visible_to(asker).searchable().order_by("created_at", "id")
        ids = tuple(rows.values_list("pk", flat=True))
        return engine.search(next(questions).text, Scope(ids, ScopeReason.ALL), ScopedStore(ids))

    return search


if __name__ == "__main__":
    main()
