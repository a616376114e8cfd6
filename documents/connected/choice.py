"""Which models are in use: the one resolver, for every process.

The environment names the installation's defaults (`settings.RAG`); what administrators chose in the
page goes before them. A process keeps what it read and asks for the version number at most once a
second, so that a change is everywhere within a second or two, and a question costs no more than
that one look-up.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F

from documents.connected.models import (
    ENVIRONMENT,
    ConnectedModel,
    Connection,
    ModelRole,
    ModelsVersion,
)
from documents.secrets import SecretUnreadable
from rag.adapters.encoders import find_declaration
from rag.adapters.light import LIGHT_SECONDS
from rag.config import Endpoint, RagConfig
from rag.errors import NuraError

if TYPE_CHECKING:
    from django.contrib.auth.models import User

logger = structlog.get_logger()

CHECK_SECONDS = 1.0
"""So long a process takes what it read for true."""
LIGHT_CONNECT_SECONDS = 2.0
VISION_SECONDS = 120.0


class ModelNotAllowed(NuraError):
    """There is no such language model, or the user may not choose it."""

    code = "model_not_allowed"

    def __init__(self) -> None:
        super().__init__(param="model")


@dataclass(frozen=True, slots=True)
class MainModel:
    """A language model that answers may be written with.

    `groups` are the ids of those who may choose it; empty: everybody.
    """

    id: str
    name: str
    endpoint: Endpoint
    groups: frozenset[int] = frozenset()
    is_default: bool = False
    context_tokens: int | None = None
    thinking: bool | None = None

    @property
    def is_of_environment(self) -> bool:
        """Whether the environment names it."""
        return self.id == ENVIRONMENT

    def apply_to(self, config: RagConfig) -> RagConfig:
        """The configuration with this model as the main one."""
        context = config.context
        if self.context_tokens is not None:
            context = replace(context, tokens=self.context_tokens)
        thinking = config.thinking if self.thinking is None else self.thinking
        return replace(config, llm=self.endpoint, context=context, thinking=thinking)


@dataclass(frozen=True, slots=True)
class _Choices:
    """What the tables say. `addresses` are the connections' endpoints, without a model."""

    mains: tuple[ConnectedModel, ...] = ()
    groups: Mapping[str, frozenset[int]] = field(default_factory=dict)
    others: Mapping[str, ConnectedModel] = field(default_factory=dict)
    addresses: Mapping[int, Endpoint] = field(default_factory=dict)


class _CachedChoices:
    """What this process read."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.number: int | None = None
        self.checked = -CHECK_SECONDS
        self.choices = _Choices()

    def look(self) -> _Choices:
        """What is true now, or was a second ago."""
        if time.monotonic() - self.checked < CHECK_SECONDS:
            return self.choices
        with self.lock:
            now = time.monotonic()
            if now - self.checked < CHECK_SECONDS:  # another thread has looked meanwhile
                return self.choices
            number = ModelsVersion.objects.values_list("number", flat=True).first() or 0
            if number != self.number:
                self.choices, self.number = _read_choices(), number
            self.checked = now
            return self.choices

    def forget(self) -> None:
        """Read anew at the next use."""
        with self.lock:
            self.number, self.checked = None, -CHECK_SECONDS


_memory = _CachedChoices()


def forget_choices() -> None:
    """Have this process read the tables anew."""
    _memory.forget()


def announce_choices() -> None:
    """Tell every process that the tables have changed, with the transaction that changes them."""
    if not ModelsVersion.objects.update(number=F("number") + 1):
        ModelsVersion.objects.create(number=1)
    forget_choices()  # what comes later in the transaction
    transaction.on_commit(forget_choices)  # what others read meanwhile


def _read_choices() -> _Choices:
    rows = list(ConnectedModel.objects.select_related("connection").prefetch_related("groups"))
    return _Choices(
        mains=tuple(one for one in rows if one.role == ModelRole.MAIN),
        groups={one.slug: frozenset(group.pk for group in one.groups.all()) for one in rows},
        others={one.role: one for one in rows if one.role != ModelRole.MAIN},
        addresses={one.pk: to_endpoint(one) for one in Connection.objects.all()},
    )


def to_endpoint(connection: Connection, model: str = "") -> Endpoint:
    """A connection for the engine; without its key where that cannot be read any more."""
    try:
        key, headers = connection.read_key(), connection.read_headers()
    except SecretUnreadable:
        logger.warning("key_unreadable", connection=connection.pk)
        key, headers = "", ()
    return Endpoint(connection.base_url, model, key, headers)


# Main models


def list_main_models() -> list[MainModel]:
    """All that are offered, the default one first."""
    choices = _memory.look()
    found = [
        model for row in choices.mains if row.offered and (model := _to_main_model(row, choices))
    ]
    told = any(row.connection_id is None for row in choices.mains)
    if not told and (endpoint := settings.RAG.llm):
        found.append(MainModel(ENVIRONMENT, endpoint.model, endpoint))
    if found and not any(one.is_default for one in found):
        usual = next((one for one in found if one.is_of_environment), found[0])
        found[found.index(usual)] = replace(usual, is_default=True)
    return sorted(found, key=lambda one: not one.is_default)


def _to_main_model(row: ConnectedModel, choices: _Choices) -> MainModel | None:
    groups = choices.groups[row.slug]
    if row.connection_id is None:
        endpoint = settings.RAG.llm
        if endpoint is None:
            return None
        name = row.name or endpoint.model
        return MainModel(
            ENVIRONMENT, name, endpoint, groups, row.is_default, row.context_tokens, row.thinking
        )
    limits = settings.RAG.llm or Endpoint("", "")
    at = choices.addresses[row.connection_id]
    endpoint = replace(limits, base_url=at.base_url, api_key=at.api_key, headers=at.headers)
    return MainModel(
        id=row.slug,
        name=row.name or row.model,
        endpoint=replace(endpoint, model=row.model),
        groups=groups,
        is_default=row.is_default,
        context_tokens=row.context_tokens,
        thinking=row.thinking,
    )


def list_allowed_models(user: "User") -> list[MainModel]:
    """Those that the user may choose; the one that answers where nothing is chosen comes first."""
    found = list_main_models()
    if not any(one.groups for one in found):
        return found
    own = set(user.groups.values_list("pk", flat=True))
    return [one for one in found if not one.groups or one.groups & own]


def find_allowed_model(user: "User", model_id: str = "") -> MainModel | None:
    """The model of that id; without one the user's usual one, None where there is none.

    Raises `ModelNotAllowed`.
    """
    allowed = list_allowed_models(user)
    if not model_id:
        return allowed[0] if allowed else None
    for one in allowed:
        if one.id == model_id:
            return one
    raise ModelNotAllowed


def choose_config(config: RagConfig, user: "User", model_id: str = "") -> RagConfig:
    """The configuration with the language model of a user's question.

    Raises `ModelNotAllowed`.
    """
    model = find_allowed_model(user, model_id)
    return replace(config, llm=None) if model is None else model.apply_to(config)


# The others


def read_config() -> RagConfig:
    """The engine's configuration: the environment's, with what was chosen in the page before it.

    Its main model is the installation's default one, whoever may use it.
    """
    config: RagConfig = settings.RAG
    choices = _memory.look()
    mains = list_main_models()
    if mains and not (mains[0].is_of_environment and not choices.mains):
        config = mains[0].apply_to(config)
    elif not mains:
        config = replace(config, llm=None)
    for role, row in choices.others.items():
        if row.connection_id is not None:
            at = replace(choices.addresses[row.connection_id], model=row.model)
            config = _apply_model(config, role, at, row)
    return config


def _apply_model(config: RagConfig, role: str, at: Endpoint, row: ConnectedModel) -> RagConfig:
    """The configuration with a model other than the main one."""
    if role == ModelRole.LIGHT:
        usual = config.light_llm
        seconds = usual.total_timeout if usual else LIGHT_SECONDS
        light = replace(
            at,
            connect_timeout=min(LIGHT_CONNECT_SECONDS, seconds),
            first_token_timeout=seconds,
            idle_timeout=seconds,
            total_timeout=seconds,
        )
        return replace(config, light_llm=light)
    if role == ModelRole.VISION:
        seconds = config.vision.total_timeout if config.vision else VISION_SECONDS
        return replace(config, vision=replace(at, total_timeout=seconds))
    if role == ModelRole.EMBEDDING:
        words = frozenset(word.strip() for word in row.languages.split(",") if word.strip())
        return replace(
            config, embedding_model=at.model, embedding_endpoint=at, embedding_languages=words
        )
    if role == ModelRole.RERANKER:
        return replace(config, reranker_model=at.model, reranker_endpoint=at)
    return replace(config, verifier_model=at.model, verifier_endpoint=at)


def find_endpoint(base_url: str, model: str) -> Endpoint | None:
    """How a model is reached at the address of a connection; None where none has it."""
    for at in _memory.look().addresses.values():
        if at.base_url == base_url:
            return replace(at, model=model)
    return None


def knows_korean(config: RagConfig, languages: frozenset[str] = frozenset()) -> bool:
    """Whether the embedding model takes part in Korean questions."""
    told = languages or config.embedding_languages
    named = config.embedding_endpoint.model if config.embedding_endpoint else config.embedding_model
    spoken = told or find_declaration(named).languages
    return bool(spoken & {"ko", "*"})
