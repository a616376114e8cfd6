"""Users of a running product, through its REST API: set-up for tests that then open a browser."""

import json
import mimetypes
import uuid
from pathlib import Path
from typing import Any
from urllib.request import Request, build_opener

from tests.support import PASSWORD, Product, wait_until

JOIN = """
import time
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.test import Client
call_command("create_user", {name!r}, "--password", {password!r})
client = Client()
user = get_user_model().objects.get(username={name!r})
client.force_login(user, "allauth.account.auth_backends.AuthenticationBackend")
session = client.session
session["account_authentication_methods"] = [{{"method": "password", "at": time.time()}}]
session.save()
print(session.session_key)
"""
"""Run by `manage.py shell`: creates the session of a sign-in, without checking a password hash."""


class Person:
    """An account of a product, with its API key and a signed-in session."""

    def __init__(self, product: Product, name: str) -> None:
        self.product = product
        self.name = name
        output = product.call(
            "shell", "-v0", "-c", JOIN.format(name=name, password=PASSWORD)
        ).stdout
        self.key, self._session = output.split()[-2:]

    def cookies(self) -> list[dict[str, Any]]:
        """The session's cookies, as Playwright's `add_cookies` takes them."""
        kept = {"sessionid": self._session, "csrftoken": uuid.uuid4().hex}
        return [
            {"name": name, "value": value, "url": self.product.url} for name, value in kept.items()
        ]

    def api(self, path: str, body: Any = None, method: str = "") -> Any:
        """Call the REST API; returns the JSON of the response, None if it has no body."""
        data = None if body is None else json.dumps(body).encode()
        return self._call(path, data, {"Content-Type": "application/json"}, method)

    def upload(self, path: Path, name: str = "", *, over: str = "") -> dict[str, Any]:
        """Upload a file, or a new version of the document `over`; returns the document."""
        boundary = uuid.uuid4().hex
        name = name or path.name
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        head = (
            f"--{boundary}\r\nContent-Disposition: form-data; "
            f'name="file"; filename="{name}"\r\nContent-Type: {kind}\r\n\r\n'
        )
        body = head.encode() + path.read_bytes() + f"\r\n--{boundary}--\r\n".encode()
        headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        where, method = (f"documents/{over}/file", "PUT") if over else ("documents", "POST")
        document: dict[str, Any] = self._call(where, body, headers, method)
        return document

    def wait_for_documents(self) -> None:
        """Wait until every document has been processed."""
        wait_until(lambda: not self.api("documents?status=PROCESSING")["count"], 90, step=0.2)
        assert not self.api("documents?status=FAILED")["count"]

    def messages(self, chat_id: str) -> list[dict[str, Any]]:
        """The messages of a chat, oldest first."""
        rows: list[dict[str, Any]] = self.api(f"chats/{chat_id}/messages?page_size=100")["results"]
        return rows

    def _call(
        self, path: str, data: bytes | None, headers: dict[str, str], method: str = ""
    ) -> Any:
        request = Request(
            f"{self.product.url}/api/v1/{path}",
            data,
            {"Authorization": f"Token {self.key}", **headers},
            method=method or None,
        )
        with build_opener().open(request, timeout=60) as answer:
            text = answer.read()
        return json.loads(text) if text else None
