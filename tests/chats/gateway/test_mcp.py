"""`/mcp` as programs see it that speak the Model Context Protocol, by the SDK's own client."""

from contextlib import asynccontextmanager

import httpx2 as httpx
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.utils.translation import override
from knox.models import AuthToken
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from chats.models import KeyDetails, KeyScope
from documents.errors import explain_code

pytestmark = pytest.mark.django_db(transaction=True)


@asynccontextmanager
async def connect(web, key):
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(headers=headers, timeout=30) as http:
        transport = streamable_http_client(f"{web.url}/mcp", http_client=http)
        async with Client(transport) as client:
            yield client


async def call(web, key, tool, **arguments):
    """What a tool gives: its structured content, or the text of its error."""
    async with connect(web, key) as client:
        result = await client.call_tool(tool, arguments)
    if result.is_error:
        return result.content[0].text
    return result.structured_content.get("result", result.structured_content)


def explain(page, language):
    with override(language):
        return explain_code("page_not_found", {"page": page})


@pytest.fixture
def stranger_key(db):
    return AuthToken.objects.create(User.objects.create_user("stranger"))[1]


@sync_to_async
def narrow(owner, *scopes):
    """A key of the owner with these scopes alone."""
    key, secret = AuthToken.objects.create(owner)
    KeyDetails.objects.update_or_create(key=key, defaults={"scopes": list(scopes)})
    return secret


async def test_a_program_sees_five_tools_that_only_read(web, key):
    async with connect(web, key) as client:
        tools = (await client.list_tools()).tools
    assert {one.name for one in tools} == {
        "list_libraries",
        "list_documents",
        "search",
        "read_page",
        "ask",
    }
    assert all(one.annotations.read_only_hint and one.description for one in tools)


async def test_documents_are_listed_by_name(web, key, travel, leave):
    found = await call(web, key, "list_documents", name="출장")
    assert [one["id"] for one in found] == [str(travel.pk)]


async def test_a_search_gives_passages(web, key, travel, leave, answers_worker):
    found = await call(web, key, "search", query="숙박비 상한은 얼마인가요?")
    assert found[0]["document_id"] == str(travel.pk)
    assert "90,000원" in found[0]["text"]


async def test_a_search_stays_within_the_documents_named(web, key, travel, leave, answers_worker):
    found = await call(web, key, "search", query="숙박비 상한", document_ids=[str(leave.pk)])
    assert {one["document_id"] for one in found} <= {str(leave.pk)}


async def test_a_page_is_read(web, key, travel):
    read = await call(web, key, "read_page", document_id=str(travel.pk))
    assert "90,000원" in read["text"]
    assert not read["cut"]


async def test_there_is_no_second_page_without_pages(web, key, travel):
    told = await call(web, key, "read_page", document_id=str(travel.pk), page=2)
    assert told.endswith((explain(2, "ko"), explain(2, "en")))


async def test_a_question_is_answered_with_sources(web, key, travel, answers_worker):
    given = await call(web, key, "ask", question="숙박비 상한은 얼마인가요?")
    assert "90,000원" in given["answer"]
    assert given["sources"][0]["document_id"] == str(travel.pk)


@pytest.mark.parametrize("tool", ["read_page", "search", "ask"])
async def test_a_stranger_gets_nothing(web, stranger_key, travel, answers_worker, tool):
    asked = {"search": {"query": "숙박비"}, "ask": {"question": "숙박비"}}.get(tool, {})
    named = (
        {"document_id": str(travel.pk)}
        if tool == "read_page"
        else {"document_ids": [str(travel.pk)]}
    )
    told = await call(web, stranger_key, tool, **asked, **named)
    assert isinstance(told, str)
    assert "90,000" not in told


async def test_a_stranger_lists_and_finds_nothing(web, stranger_key, travel, answers_worker):
    assert await call(web, stranger_key, "list_documents") == []
    assert await call(web, stranger_key, "search", query="숙박비 상한") == []


async def test_a_key_that_only_reads_cannot_ask(web, owner, travel):
    reading = await narrow(owner, KeyScope.READ)
    assert await call(web, reading, "list_documents")
    told = await call(web, reading, "ask", question="숙박비 상한은?")
    assert "ask" in told


async def test_nothing_is_told_without_a_key(web, key, travel):
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    async with httpx.AsyncClient() as http:
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            response = await http.post(f"{web.url}/mcp", json=body, headers=headers)
            assert response.status_code == 401


async def test_a_key_that_ended_is_refused(web, key, owner, travel):
    assert await call(web, key, "list_documents")
    await sync_to_async(AuthToken.objects.all().delete)()
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}) as http:
        response = await http.post(f"{web.url}/mcp", json={})
    assert response.status_code == 401


async def test_searches_count_against_the_limit(web, key, travel, settings, answers_worker):
    settings.LIMITS = {**settings.LIMITS, "search": 1}
    await call(web, key, "search", query="숙박비")
    told = [await call(web, key, "search", query="숙박비") for _ in range(12)]
    assert any(isinstance(one, str) for one in told)
