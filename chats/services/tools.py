"""Tools of other servers for an answer: what is offered, how they are called, and within what.

Before the documents are searched, the language model may call tools, round after round, within
limits of rounds, time and bytes. What they say goes into the prompt as material, never as
instructions. A tool that writes is not called: its call is shown, and done when the user confirms.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import httpx2
import structlog
from django.contrib.auth.models import User

from chats.errors import NotFound, ToolServerFailed
from chats.models.tool import ToolServer, ToolState
from documents.secrets import SecretUnreadable
from rag.adapters.wire import BoundedAsyncClient
from rag.ports import Tool, ToolCaller
from rag.prompts import load_prompt
from rag.tokenize.text import neutralise_text
from rag.types import HistoryMessage, Speaker, ToolResult

if TYPE_CHECKING:
    from mcp import Client

logger = structlog.get_logger()

MAX_SERVERS = 8
MAX_TOOLS = 40
MAX_ROUNDS = 4
MAX_CALLS = 8
ALL_SECONDS = 40.0
CALL_SECONDS = 15.0
CONNECT_SECONDS = 5.0
MAX_RESPONSE_BYTES = 512 * 1024
MAX_RESULT_CHARACTERS = 3000
MAX_DESCRIPTION_CHARACTERS = 1000
MAX_ARGUMENT_CHARACTERS = 2000
MAX_SCHEMA_CHARACTERS = 8000


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool under the name that the model calls it by."""

    alias: str
    server: ToolServer
    name: str
    description: str
    schema: Mapping[str, Any]
    reads: bool


@dataclass(frozen=True, slots=True)
class ToolUse:
    """One call, as the page and the trace show it. `characters`: how long the result was."""

    server: str
    server_id: str
    tool: str
    arguments: Mapping[str, Any]
    state: str
    writes: bool = False
    characters: int = 0
    cut: bool = False


@dataclass(frozen=True, slots=True)
class ToolFindings:
    """What came of it: the calls, and lines for the prompt."""

    uses: tuple[ToolUse, ...] = ()
    results: tuple[ToolResult, ...] = ()

    def to_json(self) -> list[dict[str, Any]]:
        """The calls as a message keeps them."""
        return [asdict(one) for one in self.uses]


# What there is


def find_servers(user: User, server_ids: Sequence[UUID | str]) -> list[ToolServer]:
    """The servers of these ids that the user may use. Raises `NotFound` for any other."""
    wanted = {str(one) for one in server_ids}
    found = list(ToolServer.objects.allowed_to(user).filter(pk__in=wanted))
    if len(found) != len(wanted):
        raise NotFound
    return found


def find_usable_servers(user: User, server_ids: Sequence[str]) -> list[ToolServer]:
    """Those of the ids that the user still may use."""
    return list(ToolServer.objects.allowed_to(user).filter(pk__in=server_ids))


def list_servers(user: User) -> list[dict[str, Any]]:
    """Those that a user may switch on for a chat, with what their tools do."""
    return [
        {
            "id": str(server.pk),
            "name": server.name,
            "tools": [
                {"name": one["name"], "description": one["description"], "writes": not one["reads"]}
                for one in server.allowed_tools
            ],
        }
        for server in ToolServer.objects.allowed_to(user)
        if server.allowed_tools
    ]


def offer_tools(servers: Sequence[ToolServer]) -> list[OfferedTool]:
    """The tools of servers, each under a name of its own."""
    offered: list[OfferedTool] = []
    for number, server in enumerate(servers[:MAX_SERVERS], 1):
        for one in server.allowed_tools:
            bare = re.sub(r"[^A-Za-z0-9_-]", "_", one["name"])[:48]
            offered.append(
                OfferedTool(
                    alias=f"s{number}_{len(offered) + 1}_{bare}",
                    server=server,
                    name=one["name"],
                    description=one["description"],
                    schema=one["schema"],
                    reads=one["reads"],
                )
            )
    return offered[:MAX_TOOLS]


# The protocol


@asynccontextmanager
async def _connect(server: ToolServer) -> AsyncGenerator["Client", None]:
    """A session with a server. Redirects to other places are not followed, so no key goes there."""
    from mcp import Client  # here: it brings a server and its web framework along
    from mcp.client.streamable_http import streamable_http_client

    key = server.read_key()
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    timeout = httpx2.Timeout(CALL_SECONDS, connect=CONNECT_SECONDS)
    async with (
        BoundedAsyncClient(max_bytes=MAX_RESPONSE_BYTES, headers=headers, timeout=timeout) as http,
        Client(streamable_http_client(server.address, http_client=http)) as client,
    ):
        yield client


async def fetch_tools(server: ToolServer) -> list[dict[str, Any]]:
    """What the server offers now; nothing new is allowed. Raises `ToolServerFailed`."""
    allowed = {one["name"]: one for one in server.allowed_tools}
    try:
        async with asyncio.timeout(CALL_SECONDS), _connect(server) as client:
            listed = (await client.list_tools()).tools
    except Exception as error:
        logger.warning("tools_not_listed", server=str(server.pk), error=_name_error(error))
        raise ToolServerFailed from error
    found = []
    for tool in listed[:MAX_TOOLS]:
        schema = tool.input_schema or {}
        if len(json.dumps(schema)) > MAX_SCHEMA_CHARACTERS:
            continue
        told = {
            "name": tool.name[:100],
            "description": neutralise_text(tool.description or "")[:MAX_DESCRIPTION_CHARACTERS],
            "schema": schema,
            "reads": bool(tool.annotations and tool.annotations.read_only_hint),
        }
        before = allowed.get(told["name"])
        # what says something else now than when it was allowed is to be allowed again
        same = before is not None and all(before[name] == told[name] for name in told)
        found.append(told | {"allowed": same})
    return found


async def call_tool(
    server: ToolServer, name: str, arguments: Mapping[str, Any]
) -> tuple[str, bool]:
    """The text that a tool gives, and whether it says that it failed. Raises `ToolServerFailed`."""
    try:
        async with asyncio.timeout(CALL_SECONDS), _connect(server) as client:
            result = await client.call_tool(name, dict(arguments))
    except SecretUnreadable as error:
        raise ToolServerFailed from error
    except Exception as error:
        logger.warning("tool_failed", server=str(server.pk), error=_name_error(error))
        raise ToolServerFailed from error
    texts = [str(getattr(part, "text", "")) for part in result.content]
    return "\n".join(filter(None, texts)), bool(result.is_error)


def _name_error(error: BaseException) -> str:
    """The type of an error. Its message is not shown: it may contain keys."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return type(error).__name__


# Within an answer


async def consult_tools(  # noqa: PLR0913 - what a question may use, by name
    question: str,
    servers: Sequence[ToolServer],
    model: ToolCaller,
    *,
    language: str,
    confirmed: Sequence[Mapping[str, Any]] = (),
    tell: Callable[[ToolUse], None],
) -> ToolFindings:
    """Let the model call tools for a question; `tell` hears of each call.

    `confirmed` are calls that write and that the user has confirmed: they are made first, as they
    were shown. Raises nothing of the servers; of the model `LLMError`.
    """
    offered = offer_tools(servers)
    desk = _ToolSession(offered, tell)
    try:
        async with asyncio.timeout(ALL_SECONDS):
            for call in confirmed:
                await desk.make_confirmed_call(call)
            if offered and not confirmed:
                await desk.run_rounds(question, model, language)
    except TimeoutError:
        logger.warning("tools_took_too_long")
    return ToolFindings(tuple(desk.uses), tuple(desk.results))


class _ToolSession:
    """The tool calls of one answer."""

    def __init__(self, offered: Sequence[OfferedTool], tell: Callable[[ToolUse], None]) -> None:
        self._offered = {one.alias: one for one in offered}
        self._tell = tell
        self.uses: list[ToolUse] = []
        self.results: list[ToolResult] = []

    async def run_rounds(self, question: str, model: ToolCaller, language: str) -> None:
        """Ask the model, call what it wants, and show it what came, until it wants nothing more."""
        tools = [Tool(one.alias, one.description, one.schema) for one in self._offered.values()]
        turns = [
            HistoryMessage(Speaker.SYSTEM, load_prompt("tools", language)),
            HistoryMessage(Speaker.USER, question),
        ]
        for _round in range(MAX_ROUNDS):
            choice = await model.choose(turns, tools)
            wanted = [
                call for call in choice.calls if call.name in self._offered and not call.error
            ]
            if not wanted:
                return
            before = len(self.results)
            for call in wanted:
                if len(self.uses) >= MAX_CALLS:
                    return
                await self._handle_call(self._offered[call.name], dict(call.arguments))
            told = "\n\n".join(one.text for one in self.results[before:])
            turns += [
                HistoryMessage(Speaker.ASSISTANT, ", ".join(call.name for call in wanted)),
                HistoryMessage(Speaker.USER, told),
            ]

    async def make_confirmed_call(self, call: Mapping[str, Any]) -> None:
        """Make a call that the user has confirmed, if its tool is still allowed."""
        for one in self._offered.values():
            if str(one.server.pk) == call["server_id"] and one.name == call["tool"]:
                await self._make_call(one, dict(call["arguments"]))
                return
        self._record_use(replace(_to_use(call), state=ToolState.FAILED), "")

    async def _handle_call(self, tool: OfferedTool, arguments: dict[str, Any]) -> None:
        use = ToolUse(tool.server.name, str(tool.server.pk), tool.name, arguments, ToolState.DONE)
        if any(one.tool == use.tool and one.arguments == arguments for one in self.uses):
            return  # asked before; the same again tells nothing new
        if len(json.dumps(arguments, ensure_ascii=False)) > MAX_ARGUMENT_CHARACTERS:
            self._record_use(replace(use, arguments={}, state=ToolState.FAILED), "")
        elif tool.reads:
            await self._make_call(tool, arguments)
        else:
            self._record_use(
                replace(use, state=ToolState.ASKS, writes=True),
                f"{tool.name}: not called yet; the user is asked to confirm it below the answer.",
            )

    async def _make_call(self, tool: OfferedTool, arguments: dict[str, Any]) -> None:
        use = ToolUse(
            tool.server.name,
            str(tool.server.pk),
            tool.name,
            arguments,
            ToolState.DONE,
            writes=not tool.reads,
        )
        try:
            text, failed = await call_tool(tool.server, tool.name, arguments)
        except ToolServerFailed:
            self._record_use(
                replace(use, state=ToolState.FAILED), f"{tool.name}: failed, nothing is known."
            )
            return
        cut = len(text) > MAX_RESULT_CHARACTERS
        use = replace(
            use, state=ToolState.FAILED if failed else ToolState.DONE, characters=len(text), cut=cut
        )
        shown = f"{text[:MAX_RESULT_CHARACTERS]} …" if cut else text
        asked = json.dumps(arguments, ensure_ascii=False)
        self._record_use(use, f"{tool.name}({asked}): {shown}")

    def _record_use(self, use: ToolUse, result: str) -> None:
        self.uses.append(use)
        if result:
            told = use.state == ToolState.DONE
            self.results.append(ToolResult(neutralise_text(result), told=told))
        self._tell(use)


def _to_use(call: Mapping[str, Any]) -> ToolUse:
    return ToolUse(
        call["server"],
        call["server_id"],
        call["tool"],
        call["arguments"],
        ToolState.CONFIRMED,
        writes=True,
    )
