"""What shared libraries cost: the gate in front of a search, and lists, in a large installation.

10,000 accounts in 1,000 groups are members of 5,000 libraries with a million chunks. Three accounts
may read as much as one another: one by two hundred libraries, one by a single library, one as the
owner of it all. What the gate (`Document.objects.visible_to`) adds to a search is what listing the
scope takes beyond listing the same number of one's own documents. Vectors are left out: a search
gets the ids of documents, and the vectors' side of it does not know where they came from. Where the
machine is busy, the processor time of Python and the server's own clock tell more than the rest.
"""

import itertools
import json
import logging
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.scale import bulk, stock
from tests.quality import sets

USERS, GROUPS, LIBRARIES = report.choose_size((10_000, 1_000, 5_000), quick=(500, 60, 200))
DOCUMENTS_A_LIBRARY = 6
CHUNKS_A_DOCUMENT = 30
WIDE = report.choose_size(200, quick=20)
"""Libraries of the account that has many."""
OWN = WIDE * DOCUMENTS_A_LIBRARY
"""Documents of each of the three accounts that are compared."""
DOCUMENTS = report.choose_size(33_400, quick=2_000)
CHATS_A_USER = 20
TEMPLATES = report.choose_size(3_000, quick=300)
"""Chunks of real sentences, of which all others are copies."""
ROUNDS, REQUESTS, QUESTIONS = report.choose_size((200, 150, 60), quick=(10, 10, 5))
AIM = {"gate_adds_ms": 3.0, "list_p95_ms": 100.0}
FOLDER = Path(__file__).parents[1] / "var" / "bench-access"

CHUNKS = """
    INSERT INTO documents_chunk (id, document_id, owner_id, index, text, start, "end", page,
                                 page_end, section, boxes, kind, header, term_count, lexemes)
    SELECT placed.number * %(each)s + place + 1, placed.id, placed.owner_id, place, template.text,
           0, length(template.text), 1, 1, '', '[]', 'text', '', template.length, template.lexemes
      FROM placed CROSS JOIN generate_series(0, %(each)s - 1) AS place
      JOIN template ON template.number = (placed.number * 31 + place * 7919) %% %(templates)s
"""
TERMS = """
    INSERT INTO documents_chunkterms (chunk_id, document_id, length, marks, surplus)
    SELECT placed.number * %(each)s + place + 1, placed.id, template.length, template.marks,
           template.surplus
      FROM placed CROSS JOIN generate_series(0, %(each)s - 1) AS place
      JOIN template ON template.number = (placed.number * 31 + place * 7919) %% %(templates)s
"""
PLACED = """
    CREATE TEMPORARY TABLE placed AS
    SELECT id, owner_id, row_number() OVER (ORDER BY created_at, id) - 1 AS number
      FROM documents_document
"""
TEMPLATE = """
    CREATE TEMPORARY TABLE template (number int PRIMARY KEY, text text, length int,
        lexemes tsvector, marks sparsevec, surplus sparsevec)
"""
CHATS = """
    INSERT INTO chats_chat (id, owner_id, title, external_id, created_at, updated_at)
    SELECT gen_random_uuid(), id, '휴가 규정 ' || number, '', now(), now() - number * interval '1h'
      FROM auth_user CROSS JOIN generate_series(1, %s) AS number
"""


def main() -> None:
    """Make the installation where it is not there, measure, and keep the figures."""
    if not sets.available():
        print("\naccess: left out, as the data it is made from does not lie beside the project")
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    with stock.postgres(FOLDER):
        logging.disable(logging.ERROR)  # a line for each request
        _stock()
        print("the installation is in place", flush=True)
        figures: dict[str, Any] = {"aim": AIM, "rows": _count_rows()}
        figures["gate"] = _measure_gate()
        figures["lists"] = _measure_lists()
        figures["search"] = _measure_search()
    report.write("access", figures)
    for title, rows in figures.items():
        if title not in {"aim", "rows"}:
            cells = [[name, *row.values()] for name, row in rows.items()]
            report.table(title, ["", *next(iter(rows.values()))], cells)


# The installation


def _stock() -> None:
    from django.core.management import call_command
    from django.db import connection

    from documents.models import Chunk

    stock.use_database(f"access_{LIBRARIES}")
    call_command("migrate", verbosity=0)
    if Chunk.objects.exists():
        return
    _add_people()
    _add_documents()
    with connection.cursor() as cursor:
        cursor.execute(stock.BUILDING)
        cursor.execute("DROP INDEX chunk_lexemes")
        cursor.execute(PLACED)
        cursor.execute(TEMPLATE)
        with cursor.copy("COPY template FROM STDIN") as copy:
            for row in _make_templates():
                copy.write_row(row)
        numbers = {"each": CHUNKS_A_DOCUMENT, "templates": TEMPLATES}
        for statement in (CHUNKS, TERMS):
            cursor.execute(statement, numbers)
        cursor.execute("CREATE INDEX chunk_lexemes ON documents_chunk USING gin (lexemes)")
        cursor.execute(CHATS, [CHATS_A_USER])
        cursor.execute("VACUUM (ANALYZE)")


def _add_people() -> None:
    """Accounts, groups, libraries and members; `wide`, `narrow` and `owner` come first."""
    from django.contrib.auth.models import Group, User

    from documents.models import Library, LibraryMember

    chance = random.Random(17)
    names = ("wide", "narrow", "owner", *(f"user{number}" for number in range(USERS - 3)))
    users = User.objects.bulk_create([User(username=name, password="!") for name in names])
    groups = Group.objects.bulk_create([Group(name=f"group{one}") for one in range(GROUPS)])
    links = User.groups.through
    joined = {(user, group) for user in users[3:] for group in chance.sample(groups, 5)}
    joined |= {(users[0], group) for group in groups[:10]}
    links.objects.bulk_create(
        [links(user=user, group=group) for user, group in joined], batch_size=5_000
    )
    libraries = Library.objects.bulk_create(
        [Library(name=f"library{one}") for one in range(LIBRARIES)], batch_size=5_000
    )
    members = []
    for number, library in enumerate(libraries):
        held = chance.sample(users[3:], 8)
        members += [LibraryMember(library=library, user=user, role="reader") for user in held[1:]]
        members.append(LibraryMember(library=library, user=held[0], role="manager"))
        shared = {*chance.sample(groups[10:], 3)} if number >= WIDE else set()
        if number < WIDE // 2:
            shared.add(groups[number % 10])
        elif number < WIDE:
            members.append(LibraryMember(library=library, user=users[0], role="reader"))
        elif number == WIDE:
            members.append(LibraryMember(library=library, user=users[1], role="reader"))
        members += [LibraryMember(library=library, group=group, role="reader") for group in shared]
    LibraryMember.objects.bulk_create(members, batch_size=5_000)


def _add_documents() -> None:
    from django.contrib.auth.models import User
    from django.utils import timezone

    from documents.models import Document, Library

    now, owner = timezone.now(), User.objects.get(username="owner")
    libraries = list(Library.objects.order_by("name"))
    by_number = {int(one.name.removeprefix("library")): one for one in libraries}
    others = list(User.objects.filter(username__startswith="user").order_by("pk"))
    places: list[tuple[User, Library | None]] = []
    for number in range(LIBRARIES):
        count = OWN if number == WIDE else DOCUMENTS_A_LIBRARY
        places += [(others[number], by_number[number])] * count
    places += [(owner, None)] * OWN
    places += [(user, None) for user in others[: max(0, DOCUMENTS - len(places))]]
    random.Random(3).shuffle(places)
    rows = [
        bulk.make_document(
            number,
            owner=user,
            library=library,
            **bulk.INDEXED,
            chunk_count=CHUNKS_A_DOCUMENT,
            indexed_at=now,
        )
        for number, (user, library) in enumerate(places)
    ]
    Document.objects.bulk_create(rows, batch_size=2_000)
    for number, row in enumerate(rows):
        row.created_at = now - timedelta(minutes=number)
    Document.objects.bulk_update(rows, ["created_at"], batch_size=2_000)


def _make_templates() -> Iterator[tuple[object, ...]]:
    from documents.search import bm25
    from rag import tokenize
    from rag.types import IndexedChunk, TextChunk

    texts = [
        unit.text[:310] for name in ("korquad1_dev", "xquad_en") for unit in sets.load(name).units
    ]
    chosen = list(itertools.islice(itertools.cycle(texts), TEMPLATES))
    for number, (text, terms) in enumerate(
        zip(chosen, tokenize.count_terms_per_text(chosen), strict=True)
    ):
        chunk = TextChunk(0, text, 0, len(text), 1, 1, "", ())
        row = bm25.to_lexical_row(IndexedChunk(chunk, terms, None), namespace=0)
        yield number, text, row.length, row.lexemes, row.marks, row.surplus


def _count_rows() -> dict[str, int]:
    from django.contrib.auth.models import Group, User

    from chats.models import Chat
    from documents.models import Chunk, Document, Library, LibraryMember

    tables = (User, Group, Library, LibraryMember, Document, Chunk, Chat)
    return {model.__name__: model.objects.count() for model in tables}


# What is measured


def _measure_gate() -> dict[str, dict[str, float]]:
    """Listing the scope of a question: by the gate, and of one's own documents alone."""
    from django.contrib.auth.models import User

    from documents.models import Document

    named = {
        user.username: user
        for user in User.objects.filter(username__in=("wide", "narrow", "owner"))
    }
    usual = list(User.objects.filter(username__startswith="user").order_by("?")[:50])

    chance = random.Random(5)
    scopes: Mapping[str, Callable[[], Any]] = {
        f"own, {OWN} documents, without the gate": lambda: Document.objects.filter(
            owner_id=named["owner"].pk
        ),
        f"own, {OWN} documents": lambda: Document.objects.visible_to(named["owner"]),
        f"one library, {OWN} documents": lambda: Document.objects.visible_to(named["narrow"]),
        f"{WIDE} libraries, {OWN} documents": lambda: Document.objects.visible_to(named["wide"]),
        "usual accounts": lambda: Document.objects.visible_to(chance.choice(usual)),
    }
    ways = {title: lambda scope=scope: list(_to_ids(scope())) for title, scope in scopes.items()}
    figures = _measure(ways, ROUNDS)
    for title, scope in scopes.items():
        begun = time.process_time()
        for _ in range(ROUNDS):
            list(_to_ids(scope()))
        figures[title]["python_ms"] = round(1000 * (time.process_time() - begun) / ROUNDS, 1)
        figures[title]["server_ms"] = statistics.median(_explain(scope()) for _ in range(40))
    return figures


def _to_ids(rows: Any) -> Any:
    """As a question lists its scope."""
    return rows.searchable().order_by("created_at", "id").values_list("pk", flat=True)


def _explain(rows: Any) -> float:
    """Milliseconds of the server, planning included, by its own clock."""
    told = _to_ids(rows).explain(format="json", analyze=True, timing=False)
    plan = json.loads(told)[0]
    return round(plan["Planning Time"] + plan["Execution Time"], 2)


def _measure_lists() -> dict[str, dict[str, float]]:
    """Requests as a browser's scripts send them, from the view on; a fresh account each time."""
    from django.contrib.auth.models import User
    from rest_framework.test import APIClient

    from documents.models import LibraryMember

    users = list(User.objects.order_by("?")[:REQUESTS])
    wide = User.objects.get(username="wide")
    managers = LibraryMember.objects.filter(role="manager").select_related("user")
    held = list(managers.order_by("?")[:50])
    chance = random.Random(7)

    def ask(path: str, user: Any) -> None:
        client = APIClient(SERVER_NAME="localhost")
        client.force_authenticate(user)
        response = client.get(f"/api/v1/{path}")
        if response.status_code != 200:
            raise RuntimeError(f"{path}: {response.status_code}")

    def ask_members() -> None:
        member = chance.choice(held)
        ask(f"libraries/{member.library_id}/members", member.user)

    ways: dict[str, Callable[[], object]] = {
        **{
            f"{path}, usual accounts": lambda path=path: ask(path, chance.choice(users))
            for path in ("documents", "libraries", "chats")
        },
        f"documents, {WIDE} libraries": lambda: ask("documents", wide),
        f"documents with q, {WIDE} libraries": lambda: ask("documents?q=문서 0", wide),
        f"libraries, {WIDE} libraries": lambda: ask("libraries", wide),
        "members": ask_members,
    }
    return _measure(ways, REQUESTS)


def _measure_search() -> dict[str, dict[str, float]]:
    """A search call by words, after the scope was listed, of accounts that may read as much."""
    from django.contrib.auth.models import User

    from documents.models import Document
    from documents.search.store import ScopedStore
    from rag.config import RagConfig
    from rag.factory import Engine
    from rag.types import Scope, ScopeReason

    engine = Engine(RagConfig(), embedder=SpeaksNothing())
    asked = [one.text for one in sets.load("korquad1_dev").questions]
    questions = itertools.cycle(random.Random(1).sample(asked, QUESTIONS))

    def search(name: str) -> None:
        user = User.objects.get(username=name)
        rows = Document.objects.visible_to(user).searchable().order_by("created_at", "id")
        ids = tuple(rows.values_list("pk", flat=True))
        engine.search(next(questions), Scope(ids, ScopeReason.ALL), ScopedStore(ids))

    names = {
        f"own, {OWN} documents": "owner",
        f"one library, {OWN} documents": "narrow",
        f"{WIDE} libraries, {OWN} documents": "wide",
    }
    ways = {title: lambda name=name: search(name) for title, name in names.items()}
    return _measure(ways, QUESTIONS)


class SpeaksNothing(stock.KnowsAll):
    """An embedder that knows no language, so that words alone are searched."""

    languages = frozenset()


def _measure(ways: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds of each way, which take turns, so that what else runs meets all of them."""
    figures = report.time_in_turns(ways, rounds=rounds, warming=WARMING)
    print(figures, flush=True)
    return figures


WARMING = 5

if __name__ == "__main__":
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    main()
