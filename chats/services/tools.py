"""Tools of other servers (MCP) for an answer: which are offered, how they are called, and limits.

Before the documents are searched, the language model may call tools, in rounds, within limits of
rounds, time and bytes. Results go into the prompt as material, never as instructions. A tool that
writes is not called at once: the call is shown, and made when the user confirms it.
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
    """A tool, with the alias under which the model calls it."""

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
    """The tool calls of an answer, and their results for the prompt."""

    uses: tuple[ToolUse, ...] = ()
    results: tuple[ToolResult, ...] = ()

    def to_json(self) -> list[dict[str, Any]]:
        """The calls as a message stores them."""
        return [asdict(one) for one in self.uses]


# Servers


def find_servers(user: User, server_ids: Sequence[UUID | str]) -> list[ToolServer]:
    """The servers of these ids that the user may use. Raises `NotFound` for any other."""
    ids = {str(server_id) for server_id in server_ids}
    servers = list(ToolServer.objects.allowed_to(user).filter(pk__in=ids))
    if len(servers) != len(ids):
        raise NotFound
    return servers


def find_usable_servers(user: User, server_ids: Sequence[str]) -> list[ToolServer]:
    """Those of these servers that the user may still use."""
    return list(ToolServer.objects.allowed_to(user).filter(pk__in=server_ids))


def list_servers(user: User) -> list[dict[str, Any]]:
    """The servers that a user may switch on for a chat, with their tools."""
    return [
        {
            "id": str(server.pk),
            "name": server.name,
            "tools": [
                {
                    "name": tool["name"],
                    "description": tool["description"],
                    "writes": not tool["reads"],
                }
                for tool in server.allowed_tools
            ],
        }
        for server in ToolServer.objects.allowed_to(user)
        if server.allowed_tools
    ]


def offer_tools(servers: Sequence[ToolServer]) -> list[OfferedTool]:
    """The tools of servers, each under a name of its own."""
    tools: list[OfferedTool] = []
    for number, server in enumerate(servers[:MAX_SERVERS], 1):
        for tool in server.allowed_tools:
            safe_name = re.sub(r"[^A-Za-z0-9_-]", "_", tool["name"])[:48]
            tools.append(
                OfferedTool(
                    alias=f"s{number}_{len(tools) + 1}_{safe_name}",
                    server=server,
                    name=tool["name"],
                    description=tool["description"],
                    schema=tool["schema"],
                    reads=tool["reads"],
                )
            )
    return tools[:MAX_TOOLS]


# The protocol


@asynccontextmanager
async def _connect(server: ToolServer) -> AsyncGenerator["Client", None]:
    """A session with a server. Redirects to other hosts are not followed, so they get no key."""
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
    """The tools the server offers now; new ones are not allowed yet. Raises `ToolServerFailed`."""
    allowed = {allowed_tool["name"]: allowed_tool for allowed_tool in server.allowed_tools}
    try:
        async with asyncio.timeout(CALL_SECONDS), _connect(server) as client:
            offered = (await client.list_tools()).tools
    except Exception as error:
        logger.warning("tools_not_listed", server=str(server.pk), error=_name_error(error))
        raise ToolServerFailed from error
    tools = []
    for tool in offered[:MAX_TOOLS]:
        schema = tool.input_schema or {}
        if len(json.dumps(schema)) > MAX_SCHEMA_CHARACTERS:
            continue
        entry = {
            "name": tool.name[:100],
            "description": neutralise_text(tool.description or "")[:MAX_DESCRIPTION_CHARACTERS],
            "schema": schema,
            "reads": bool(tool.annotations and tool.annotations.read_only_hint),
        }
        previous = allowed.get(entry["name"])
        # a tool that has changed since it was allowed must be allowed again
        is_unchanged = previous is not None and all(previous[name] == entry[name] for name in entry)
        tools.append(entry | {"allowed": is_unchanged})
    return tools


async def call_tool(
    server: ToolServer, name: str, arguments: Mapping[str, Any]
) -> tuple[str, bool]:
    """The text a tool returns, and whether it reports an error. Raises `ToolServerFailed`."""
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
    on_use: Callable[[ToolUse], None],
) -> ToolFindings:
    """Let the model call tools for a question; `on_use` is called for each call.

    `confirmed` are writing calls that the user has confirmed; they are made exactly as shown.
    Errors of servers are not raised, `LLMError` of the model is.
    """
    offered = offer_tools(servers)
    session = _ToolSession(offered, on_use)
    try:
        async with asyncio.timeout(ALL_SECONDS):
            for call in confirmed:
                await session.make_confirmed_call(call)
            if offered and not confirmed:
                await session.run_rounds(question, model, language)
    except TimeoutError:
        logger.warning("tools_took_too_long")
    return ToolFindings(tuple(session.uses), tuple(session.results))


class _ToolSession:
    """The tool calls of one answer."""

    def __init__(self, offered: Sequence[OfferedTool], on_use: Callable[[ToolUse], None]) -> None:
        self._offered = {tool.alias: tool for tool in offered}
        self._on_use = on_use
        self.uses: list[ToolUse] = []
        self.results: list[ToolResult] = []

    async def run_rounds(self, question: str, model: ToolCaller, language: str) -> None:
        """Let the model choose calls, make them and show it the results, until it chooses none."""
        tools = [Tool(item.alias, item.description, item.schema) for item in self._offered.values()]
        turns = [
            HistoryMessage(Speaker.SYSTEM, load_prompt("tools", language)),
            HistoryMessage(Speaker.USER, question),
        ]
        for _round in range(MAX_ROUNDS):
            choice = await model.choose(turns, tools)
            calls = [call for call in choice.calls if call.name in self._offered and not call.error]
            if not calls:
                return
            first = len(self.results)
            for call in calls:
                if len(self.uses) >= MAX_CALLS:
                    return
                await self._handle_call(self._offered[call.name], dict(call.arguments))
            text = "\n\n".join(item.text for item in self.results[first:])
            turns += [
                HistoryMessage(Speaker.ASSISTANT, ", ".join(call.name for call in calls)),
                HistoryMessage(Speaker.USER, text),
            ]

    async def make_confirmed_call(self, call: Mapping[str, Any]) -> None:
        """Make a call that the user has confirmed, if its tool is still allowed."""
        for tool in self._offered.values():
            if str(tool.server.pk) == call["server_id"] and tool.name == call["tool"]:
                await self._make_call(tool, dict(call["arguments"]))
                return
        self._record_use(replace(_to_use(call), state=ToolState.FAILED), "")

    async def _handle_call(self, tool: OfferedTool, arguments: dict[str, Any]) -> None:
        use = ToolUse(tool.server.name, str(tool.server.pk), tool.name, arguments, ToolState.DONE)
        if any(
            earlier.tool == use.tool and earlier.arguments == arguments for earlier in self.uses
        ):
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
        is_cut = len(text) > MAX_RESULT_CHARACTERS
        use = replace(
            use,
            state=ToolState.FAILED if failed else ToolState.DONE,
            characters=len(text),
            cut=is_cut,
        )
        result = f"{text[:MAX_RESULT_CHARACTERS]} …" if is_cut else text
        json_arguments = json.dumps(arguments, ensure_ascii=False)
        self._record_use(use, f"{tool.name}({json_arguments}): {result}")

    def _record_use(self, use: ToolUse, result: str) -> None:
        self.uses.append(use)
        if result:
            is_done = use.state == ToolState.DONE
            self.results.append(ToolResult(neutralise_text(result), succeeded=is_done))
        self._on_use(use)


def _to_use(call: Mapping[str, Any]) -> ToolUse:
    return ToolUse(
        call["server"],
        call["server_id"],
        call["tool"],
        call["arguments"],
        ToolState.CONFIRMED,
        writes=True,
    )
