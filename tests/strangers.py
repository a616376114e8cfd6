"""What an owner has, every route that the schema describes, and what all tables hold."""

import hashlib
import itertools
import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from allauth.usersessions.models import UserSession
from django.apps import apps
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import Group, User
from django.contrib.sessions.backends.db import SessionStore
from django.core.files import File
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone
from drf_spectacular.generators import SchemaGenerator
from knox.models import AuthToken
from pgvector import SparseVector
from rest_framework.test import APIClient

from chats.models import (
    Assistant,
    Category,
    Chat,
    ChatShare,
    Feedback,
    FolderShare,
    KeyDetails,
    Message,
    ProfileSlot,
    Prompt,
    Run,
    ToolServer,
    Trace,
    Turn,
)
from chats.models.key import make_key_id
from chats.services.chats import create_chat
from chats.services.turn_store import AnswerOutcome, record_turn
from chats.services.turns import open_turn
from documents import files, libraries, services
from documents.models import (
    Chunk,
    ChunkTerms,
    Document,
    DocumentPage,
    DocumentPicture,
    Library,
    LibraryMember,
    LibraryRole,
)
from documents.search import bm25
from documents.sources.models import Source, SourceEntry
from documents.sources.sync import to_digest
from jobs import connections
from nura import urls
from nura.accounts.exports import name_file
from nura.accounts.services import make_session_id
from nura.models import DataExport, DataImport
from tests.support import ROOT

OURS = ("auth", "knox", "usersessions", "documents", "chats", "nura", "account", "socialaccount")
"""Apps whose tables must stay as they are."""
SECRET = "부엉이작전"
"""Stands in every text of the owner's."""
SUM = hashlib.sha256(f"휴가 {SECRET}".encode()).hexdigest()
"""Of the file that is sent."""
COLLEAGUE = "colleague"
"""An account that is there and has nothing."""
COLLECTIONS = {
    "chats": "chat",
    "documents": "document",
    "categories": "category",
    "messages": "answer",
    "runs": "run",
    "models": "model",
    "keys": "key",
    "sessions": "session",
    "exports": "export",
    "imports": "import",
    "memory": "slot",
    "libraries": "library",
    "members": "member",
    "sources": "source",
    "assistants": "assistant",
    "prompts": "prompt",
    "folders": "folder",
    "shares": "share",
    "shared": "share",
}
"""What `{id}` behind this word of a path names."""
SPECIAL = {"messages/edit": "question"}
"""Routes whose `{id}` names something else of that kind."""
NAMED = re.compile(rf"({'|'.join(COLLECTIONS)})/\{{\w+\}}(?=(.*))")
"""A word of a path, its id, and as a lookahead what follows."""
FIELDS = {
    "chat_id": "chat",
    "chat_ids": "chat",
    "document_ids": "document",
    "category_id": "category",
    "parent_id": "answer",
    "message_id": "answer",
    "assistant_id": "assistant",
    "model": "model",
    "library_id": "library",
    "library_ids": "library",
    "tool_ids": "tools",
}
"""What these fields of a body name."""
EXAMPLES = {"model": "nura", "messages": [{"role": "user", "content": "휴가"}]}
"""Values of the gateway's fields that no schema tells."""


COMMITTED = pytest.mark.django_db(transaction=True)
"""What a view of the gateway asks of the database in another thread must have been committed."""


@dataclass(frozen=True)
class Operation:
    """One method of one route."""

    method: str
    path: str
    body: dict[str, Any] | None
    queries: tuple[str, ...]
    public: bool
    form: bool
    """Whether its body is a form with a file."""

    def __str__(self) -> str:
        return f"{self.method.upper()} {self.path}"

    @property
    def has_id(self) -> bool:
        """Whether an object stands in the path."""
        return "{" in self.path

    @property
    def id_fields(self) -> list[str]:
        """Fields of the body that name objects."""
        properties = (self.body or {}).get("properties", {})
        named = [name for name, shape in properties.items() if _names_an_object(shape)]
        return [*named, "model"] if self.of_gateway and "model" in properties else named

    @property
    def of_gateway(self) -> bool:
        """Whether it is one of those under `/v1`, whose views ask the database in other threads."""
        return self.path.startswith("/v1/")

    @property
    def thing(self) -> str:
        """What the first id of the path names."""
        found = NAMED.search(self.path)
        assert found, self.path
        return _name_thing(found)

    def url(self, things: "dict[str, Any]") -> str:
        """The path with ids of these things; other numbers are 1."""

        def value(match: re.Match[str]) -> str:
            return f"{match[1]}/{things[_name_thing(match)]}"

        filled = NAMED.sub(value, self.path)
        query = "?wait=false" if "wait" in self.queries else ""
        return filled.replace("{number}", "1").replace("{index}", "0") + query


def _name_thing(match: re.Match[str]) -> str:
    word, rest = match[1], match[2]
    return SPECIAL.get(word + rest, COLLECTIONS[word])


def operations() -> list[Operation]:
    """All that the schemas of REST and of the gateway describe."""
    rest = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return [*_operations(rest), *_operations(urls.gateway_api.get_openapi_schema())]


def all_of(rows: Iterable[Any]) -> list[Any]:
    """Parameters: the routes of REST, and those of the gateway, for what leaves the world alone.

    A world takes longer to make than a route to answer.
    """
    kinds: dict[str, list[Any]] = {"rest": [], "gateway": []}
    for row in rows:
        operation = row[0] if isinstance(row, tuple) else row
        kinds["gateway" if operation.of_gateway else "rest"].append(row)
    marks: dict[str, Any] = {"rest": (), "gateway": COMMITTED}
    return [pytest.param(some, id=kind, marks=marks[kind]) for kind, some in kinds.items() if some]


def _operations(schema: Any) -> list[Operation]:
    return [
        Operation(
            method,
            path,
            _body(described, schema),
            tuple(one["name"] for one in described.get("parameters", ()) if one["in"] == "query"),
            {} in described.get("security", []),
            "multipart/form-data" in described.get("requestBody", {}).get("content", {}),
        )
        for path, methods in schema["paths"].items()
        for method, described in methods.items()
    ]


def _body(described: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any] | None:
    content = described.get("requestBody", {}).get("content", {})
    shape = next((kind["schema"] for kind in content.values()), None)
    if shape is None:
        return None
    name = shape.get("$ref", "").rpartition("/")[2]
    return schema["components"]["schemas"][name] if name else shape


def _names_an_object(shape: dict[str, Any]) -> bool:
    return shape.get("format") == "uuid" or shape.get("items", {}).get("format") == "uuid"


def example(operation: Operation) -> dict[str, Any]:
    """A body that the route accepts, without ids."""
    if operation.path.endswith("/sources"):
        return {"kind": "manifest"}
    if operation.path.endswith("/manifest"):
        return {"files": [{"path": "another.txt", "sha256": SUM}]}
    if "/members" in operation.path:
        who = {"user": COLLEAGUE} if operation.method == "post" else {}
        return {**who, "role": "reader"}
    properties = (operation.body or {}).get("properties", {})
    wanted = set((operation.body or {}).get("required", ())) or set(properties)
    rest = {"model": "", "intent": "table", "confirm_call": None}
    usual = EXAMPLES if operation.of_gateway else rest
    return {
        name: usual[name] if name in usual else _value(shape)
        for name, shape in properties.items()
        if name in wanted and not _names_an_object(shape)
    }


def _value(shape: dict[str, Any]) -> Any:
    if "default" in shape:
        return shape["default"]
    if shape.get("enum"):
        return shape["enum"][0]
    if "$ref" in shape or "allOf" in shape:
        return 1
    if shape.get("format") == "date-time":
        return (timezone.now() + timedelta(days=1)).isoformat()
    kinds = {"integer": 1, "number": 1, "boolean": True, "object": {}, "array": []}
    return kinds.get(shape.get("type", ""), f"휴가 {SECRET}"[:2])


def _needed_ids(operation: Operation, things: dict[str, Any]) -> dict[str, Any]:
    needed = (operation.body or {}).get("required", ())
    return {field: str(things[FIELDS[field]]) for field in operation.id_fields if field in needed}


def with_id(operation: Operation, field: str, value: Any) -> dict[str, Any]:
    """The example with one field that names an object."""
    assert operation.body is not None
    is_list = operation.body["properties"][field].get("type") == "array"
    return {**example(operation), field: [str(value)] if is_list else str(value)}


def make_world(owner: User) -> dict[str, Any]:
    """One of everything: a chat with a finished and a running answer about a processed PDF."""
    document = make_document(owner)
    category = Category.objects.create(owner=owner, name=SECRET)
    library = libraries.create_library(creator=owner, name=SECRET)
    source = make_source(library, owner)
    User.objects.get_or_create(username=COLLEAGUE)
    chat = create_chat(
        owner=owner, title=SECRET, document_ids=[document.pk], category_id=category.pk
    )
    first = open_turn(user=owner, content=f"{SECRET} 질문", chat_id=chat.pk, client_id="owner-1")
    finish(first.assistant_message)
    folded = {"running_summary": SECRET, "running_through": 1}
    Turn.objects.filter(message=first.assistant_message).update(**folded)
    second = open_turn(user=owner, content=f"{SECRET} 더", chat_id=chat.pk, client_id="owner-2")
    return {
        "document": document.pk,
        "category": category.pk,
        "slot": make_slot(owner).pk,
        "library": library.pk,
        "member": make_member(library, owner).pk,
        "source": source.pk,
        "tools": make_tool_server(owner).pk,
        "chat": chat.pk,
        "answer": first.assistant_message.pk,
        "question": first.user_message.pk,
        "run": second.run.pk,
        "key": make_key_id(AuthToken.objects.create(owner)[0]),
        "session": make_session(owner),
        "model": f"nura/{document.pk}",
        "export": make_export(owner).pk,
        "assistant": Assistant.objects.create(owner=owner, name=SECRET, instructions=SECRET).pk,
        "prompt": Prompt.objects.create(owner=owner, title=SECRET, text=SECRET).pk,
        "folder": make_folder(owner).pk,
        "share": make_share(owner, chat, first.assistant_message).pk,
        "import": DataImport.objects.create(owner=owner, name=SECRET, status="DONE").pk,
    }


def make_member(library: Library, owner: User) -> LibraryMember:
    """A group that reads the library."""
    group = Group.objects.create(name=f"{SECRET} {owner.pk}")
    role = LibraryRole.READER
    return libraries.add_member(library=library, principal=group, role=role, actor=owner)


def make_tool_server(owner: User) -> ToolServer:
    """One that a group of the owner's may use."""
    group = Group.objects.create(name=f"tools of {owner.username}")
    owner.groups.add(group)
    tool = {"name": SECRET, "description": SECRET, "schema": {}, "reads": True, "allowed": True}
    address = "http://127.0.0.1:1/mcp"
    server = ToolServer.objects.create(
        name=f"{SECRET} {owner.username}", address=address, tools=[tool]
    )
    server.groups.add(group)
    return server


def make_source(library: Library, owner: User) -> Source:
    """A source that waits for a file."""
    source = Source.objects.create(library=library, owner=owner, kind="manifest", name=SECRET)
    key = {"digest": to_digest("another.txt"), "key": "another.txt", "name": "another.txt"}
    SourceEntry.objects.create(source=source, fingerprint=SUM, uri=SECRET, **key)
    return source


def make_share(owner: User, chat: Chat, last: Message) -> ChatShare:
    """The chat as it was after this message, shown to a group without anybody."""
    share = ChatShare.objects.create(chat=chat, last_message=last)
    share.groups.add(Group.objects.create(name=f"readers of {owner.pk}"))
    return share


def make_folder(owner: User) -> FolderShare:
    """A folder with a prompt, shown to a group without anybody."""
    Prompt.objects.create(owner=owner, title=SECRET, text=SECRET, folder=SECRET)
    folder = FolderShare.objects.create(owner=owner, name=SECRET)
    folder.groups.add(Group.objects.create(name=f"folders of {owner.pk}"))
    return folder


def make_slot(owner: User) -> ProfileSlot:
    """Something that is remembered of the owner."""
    return ProfileSlot.objects.create(
        owner=owner, kind="fact", key=SECRET, value=SECRET, sentence=SECRET, noted_at=timezone.now()
    )


def make_export(owner: User) -> DataExport:
    """A file of all that is the owner's."""
    until = timezone.now() + timedelta(hours=1)
    export = DataExport.objects.create(owner=owner, status="READY", expires_at=until)
    default_storage.save(name_file(export.pk), ContentFile(SECRET.encode()))
    return export


def made_up(things: dict[str, Any]) -> dict[str, Any]:
    """Names of things that are not there."""
    others = {"model": f"nura/{uuid.uuid4()}", "member": 2**40}
    return {name: uuid.uuid4() for name in things} | others


def make_session(owner: User) -> uuid.UUID:
    """Somewhere the owner is signed in; what the API calls it."""
    store = SessionStore()
    store[SESSION_KEY] = str(owner.pk)
    store[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[-1]
    store[HASH_SESSION_KEY] = owner.get_session_auth_hash()
    store.create()
    UserSession.objects.create(user=owner, session_key=store.session_key, ip="192.0.2.1")
    return make_session_id(store.session_key)


def make_document(owner: User) -> Document:
    path = ROOT / "nura" / "samples" / "care-system-notice.pdf"
    with path.open("rb") as file:
        document, _created = services.upload_document(
            owner=owner, name=f"{SECRET}.pdf", content=File(file), metadata={"issuer": SECRET}
        )
    Document.objects.filter(pk=document.pk).update(
        status="COMPLETED",
        stage="done",
        progress=1.0,
        page_count=1,
        chunk_count=1,
        indexed_at=timezone.now(),
    )
    DocumentPage.objects.create(document=document, number=1, start=0, text=SECRET)
    DocumentPicture.objects.create(
        document=document,
        index=0,
        page=1,
        digest="0" * 64,
        width=100,
        height=100,
        file=files.store_picture(document.pk, "image/png", SECRET.encode()),
        content_type="image/png",
        description=SECRET,
    )
    terms = {SECRET: 1, "휴가": 2}
    marks, surplus = bm25.to_marks_and_surplus(terms, {})
    chunk = Chunk.objects.create(
        document=document,
        owner_id=owner.pk,
        index=0,
        text=f"{SECRET} 휴가",
        start=0,
        end=8,
        page=1,
        page_end=1,
        term_count=3,
        lexemes=bm25.to_tsvector(terms),
    )
    ChunkTerms.objects.create(  # so that a search that may look finds it
        chunk=chunk,
        document=document,
        length=3,
        marks=SparseVector.from_text(marks),
        surplus=SparseVector.from_text(surplus),
    )
    return document


def finish(answer: Message) -> None:
    Message.objects.filter(pk=answer.pk).update(status="COMPLETED", content=f"{SECRET} 답")
    record_turn(answer=answer, outcome=AnswerOutcome(Message.Status.COMPLETED, f"{SECRET} 답"))
    Trace.objects.create(message=answer, steps={"scope": SECRET})
    Feedback.objects.create(message=answer, user=answer.chat.owner, value=1)
    now = timezone.now()  # ended: a worker that came upon it would answer it once more
    Run.objects.filter(message=answer).update(enqueued_at=now, ended_at=now)


def client_of(user: User | None) -> APIClient:
    """A program with the user's API key; without a user, one with no key."""
    client = APIClient(raise_request_exception=True)
    if user is not None:
        client.credentials(HTTP_AUTHORIZATION=f"Token {AuthToken.objects.create(user)[1]}")
    return client


def call(client: APIClient, operation: Operation, things: dict[str, Any], body: Any = None) -> Any:
    """The response; the example with the ids that it needs is the body unless one is given."""
    data = {**example(operation), **_needed_ids(operation, things)} if body is None else body
    send = getattr(client, operation.method)
    if operation.method in {"get", "delete"}:
        return send(operation.url(things))
    if operation.form:
        file = SimpleUploadedFile("another.txt", f"휴가 {SECRET}".encode())
        ids = {name: value for name, value in data.items() if name in operation.id_fields}
        return send(operation.url(things), {"file": file, **ids}, format="multipart")
    return send(operation.url(things), data, format="json")


def everything() -> dict[str, Any]:
    """A digest of each table of ours, of what Redis keeps for us, and of the files."""
    models = itertools.chain.from_iterable(apps.get_app_config(a).get_models() for a in _ours())
    tables = {
        m._meta.label: _digest(m.objects.order_by("pk").values_list())
        for m in models
        if m not in {KeyDetails, UserSession}  # when the caller was seen last
    }
    redis = connections.get_client()
    passing = (":", "nura:limit:")  # what is cached, and how many requests were counted
    names = sorted(name for name in redis.keys("*") if not name.startswith(passing))
    kept = {name: redis.type(name) for name in names}
    root = Path(settings.MEDIA_ROOT)
    files = sorted(str(path) for path in root.rglob("*") if path.is_file())
    return {"tables": tables, "redis": kept, "files": files}


def _ours() -> list[str]:
    return [name for name in OURS if name in apps.app_configs]


def _digest(rows: Any) -> tuple[int, str]:
    text = [repr(row) for row in rows]
    return len(text), hashlib.sha256("\n".join(text).encode()).hexdigest()


def said(response: Any) -> tuple[Any, ...]:
    """All of a response that its receiver sees, save what differs by the moment."""
    passing = {"date", "set-cookie", "x-request-id"}  # a request's id is drawn by chance
    headers = {k: v for k, v in response.items() if k.lower() not in passing}
    return response.status_code, headers, response.content


__all__ = ["SECRET", "Chat", "Operation", "call", "everything", "operations"]
