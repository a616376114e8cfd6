"""Resolves which models are in use, for every process.

The environment sets the installation's defaults (`settings.RAG`); what administrators choose on the
models page overrides them. A process caches what it read and checks the version number at most once
a second, so that a change reaches every process within a second or two at little cost.
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
from rag.config import LIGHT_SECONDS, Endpoint, RagConfig
from rag.errors import NuraError

if TYPE_CHECKING:
    from django.contrib.auth.models import User

logger = structlog.get_logger()

CHECK_SECONDS = 1.0
"""Time between two checks of the version number."""
LIGHT_CONNECT_SECONDS = 2.0
VISION_SECONDS = 120.0


class ModelNotAllowed(NuraError):
    """There is no such language model, or the user may not choose it."""

    code = "model_not_allowed"

    def __init__(self) -> None:
        super().__init__(param="model")


@dataclass(frozen=True, slots=True)
class MainModel:
    """A language model for answers.

    `groups` are the ids of the groups that may choose it; empty: everybody may.
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
        """Whether it is configured in the environment."""
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
    """The contents of the tables. `addresses` are the connections' endpoints, without a model."""

    mains: tuple[ConnectedModel, ...] = ()
    groups: Mapping[str, frozenset[int]] = field(default_factory=dict)
    others: Mapping[str, ConnectedModel] = field(default_factory=dict)
    addresses: Mapping[int, Endpoint] = field(default_factory=dict)


class _CachedChoices:
    """This process's cache of the tables."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.number: int | None = None
        self.checked_at = -CHECK_SECONDS
        self.choices = _Choices()

    def get_choices(self) -> _Choices:
        """The choices, at most `CHECK_SECONDS` old."""
        if time.monotonic() - self.checked_at < CHECK_SECONDS:
            return self.choices
        with self.lock:
            now = time.monotonic()
            if now - self.checked_at < CHECK_SECONDS:  # another thread checked meanwhile
                return self.choices
            number = ModelsVersion.objects.values_list("number", flat=True).first() or 0
            if number != self.number:
                self.choices, self.number = _read_choices(), number
            self.checked_at = now
            return self.choices

    def forget(self) -> None:
        """Read the tables again at the next use."""
        with self.lock:
            self.number, self.checked_at = None, -CHECK_SECONDS


_cache = _CachedChoices()


def forget_choices() -> None:
    """Make this process read the tables again."""
    _cache.forget()


def announce_choices() -> None:
    """Make every process read the tables again, once the current transaction is committed."""
    if not ModelsVersion.objects.update(number=F("number") + 1):
        ModelsVersion.objects.create(number=1)
    forget_choices()  # what comes later in the transaction
    transaction.on_commit(forget_choices)  # what others read meanwhile


def _read_choices() -> _Choices:
    rows = list(ConnectedModel.objects.select_related("connection").prefetch_related("groups"))
    return _Choices(
        mains=tuple(row for row in rows if row.role == ModelRole.MAIN),
        groups={row.slug: frozenset(group.pk for group in row.groups.all()) for row in rows},
        others={row.role: row for row in rows if row.role != ModelRole.MAIN},
        addresses={row.pk: to_endpoint(row) for row in Connection.objects.all()},
    )


def to_endpoint(connection: Connection, model: str = "") -> Endpoint:
    """A connection as the engine uses it; without its key if that cannot be read any more."""
    try:
        key, headers = connection.read_key(), connection.read_headers()
    except SecretUnreadable:
        logger.warning("key_unreadable", connection=connection.pk)
        key, headers = "", ()
    return Endpoint(connection.base_url, model, key, headers)


# Main models


def list_main_models() -> list[MainModel]:
    """All offered main models, the default one first."""
    choices = _cache.get_choices()
    models = [
        model for row in choices.mains if row.offered and (model := _to_main_model(row, choices))
    ]
    has_environment_row = any(row.connection_id is None for row in choices.mains)
    if not has_environment_row and (endpoint := settings.RAG.llm):
        models.append(MainModel(ENVIRONMENT, endpoint.model, endpoint))
    if models and not any(main.is_default for main in models):
        default = next((main for main in models if main.is_of_environment), models[0])
        models[models.index(default)] = replace(default, is_default=True)
    return sorted(models, key=lambda main: not main.is_default)


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
    address = choices.addresses[row.connection_id]
    endpoint = replace(
        limits, base_url=address.base_url, api_key=address.api_key, headers=address.headers
    )
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
    """The main models that the user may choose; the first one is used if nothing is chosen."""
    models = list_main_models()
    if not any(model.groups for model in models):
        return models
    group_ids = set(user.groups.values_list("pk", flat=True))
    return [model for model in models if not model.groups or model.groups & group_ids]


def find_allowed_model(user: "User", model_id: str = "") -> MainModel | None:
    """The model with this id; without an id the user's default, None if there is none.

    Raises `ModelNotAllowed`.
    """
    allowed = list_allowed_models(user)
    if not model_id:
        return allowed[0] if allowed else None
    for model in allowed:
        if model.id == model_id:
            return model
    raise ModelNotAllowed


def choose_config(config: RagConfig, user: "User", model_id: str = "") -> RagConfig:
    """The configuration with the language model of a user's question.

    Raises `ModelNotAllowed`.
    """
    model = find_allowed_model(user, model_id)
    return replace(config, llm=None) if model is None else model.apply_to(config)


# The others


def read_config() -> RagConfig:
    """The engine's configuration: the environment's, overridden by the choices of administrators.

    Its main model is the installation's default one, regardless of who may use it.
    """
    config: RagConfig = settings.RAG
    choices = _cache.get_choices()
    mains = list_main_models()
    if mains and not (mains[0].is_of_environment and not choices.mains):
        config = mains[0].apply_to(config)
    elif not mains:
        config = replace(config, llm=None)
    for role, row in choices.others.items():
        if row.connection_id is not None:
            endpoint = replace(choices.addresses[row.connection_id], model=row.model)
            config = _apply_model(config, role, endpoint, row)
    return config


def _apply_model(
    config: RagConfig, role: str, endpoint: Endpoint, row: ConnectedModel
) -> RagConfig:
    """The configuration with a model other than the main one."""
    if role == ModelRole.LIGHT:
        current = config.light_llm
        seconds = current.total_timeout if current else LIGHT_SECONDS
        light = replace(
            endpoint,
            connect_timeout=min(LIGHT_CONNECT_SECONDS, seconds),
            first_token_timeout=seconds,
            idle_timeout=seconds,
            total_timeout=seconds,
        )
        return replace(config, light_llm=light)
    if role == ModelRole.VISION:
        seconds = config.vision.total_timeout if config.vision else VISION_SECONDS
        return replace(config, vision=replace(endpoint, total_timeout=seconds))
    if role == ModelRole.EMBEDDING:
        words = frozenset(word.strip() for word in row.languages.split(",") if word.strip())
        return replace(
            config,
            embedding_model=endpoint.model,
            embedding_endpoint=endpoint,
            embedding_languages=words,
        )
    if role == ModelRole.RERANKER:
        return replace(config, reranker_model=endpoint.model, reranker_endpoint=endpoint)
    return replace(config, verifier_model=endpoint.model, verifier_endpoint=endpoint)


def find_endpoint(base_url: str, model: str) -> Endpoint | None:
    """The endpoint of a model at the address of a connection; None if no connection has it."""
    for endpoint in _cache.get_choices().addresses.values():
        if endpoint.base_url == base_url:
            return replace(endpoint, model=model)
    return None


def knows_korean(config: RagConfig, languages: frozenset[str] = frozenset()) -> bool:
    """Whether the embedding model is used for Korean questions."""
    stated = languages or config.embedding_languages
    model = config.embedding_endpoint.model if config.embedding_endpoint else config.embedding_model
    known = stated or find_declaration(model).languages
    return bool(known & {"ko", "*"})
