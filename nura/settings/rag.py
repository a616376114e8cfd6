"""Builds the one frozen configuration of the engine from the environment."""

import hmac
from dataclasses import replace
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from nura.settings import env
from rag.adapters import light
from rag.config import USUAL_TOKENS, ContextRules, Endpoint, MemoryRules, RagConfig, StyleRules
from rag.tokenize.korean import DictionaryUnreadable, read_dictionary

HTTP = ("http", "https")
OPENAI = "https://api.openai.com/v1"
LIGHT_CONNECT_SECONDS = 2.0
VISION_SECONDS = 120.0
AUTO = "auto"


def build(secret_key: str = "") -> RagConfig:
    """The engine's configuration. Raises `ImproperlyConfigured` naming the variable.

    `secret_key` is what the marks around material in prompts are made from: nobody who writes a
    document can guess them.
    """
    size = env.integer("NURA_CHUNK_SIZE", 1000, least=100, most=20_000)
    return RagConfig(
        llm=_llm(),
        light_llm=_light_llm(),
        vision=_vision(),
        vision_max_tokens=env.integer("NURA_VISION_MAX_TOKENS", 2000, least=1, most=1_000_000),
        fence=hmac.new(secret_key.encode(), b"prompt fence", "sha256").hexdigest()[:12],
        temperature=env.decimal("NURA_LLM_TEMPERATURE", 0.0, most=2.0),
        max_tokens=env.integer("NURA_LLM_MAX_TOKENS", 1000, least=1, most=1_000_000),
        thinking=env.flag("NURA_LLM_THINKING", default=False),
        embedding_model=env.text("NURA_EMBEDDING_MODEL"),
        embedding_endpoint=_embedding_endpoint(),
        embedding_languages=frozenset(env.words("NURA_EMBEDDING_LANGUAGES")),
        reranker_model=env.text("NURA_RERANKER_MODEL"),
        top_k=env.integer("NURA_TOP_K", 4, least=1, most=100),
        user_dictionary=_user_dictionary(),
        chunk_size=size,
        chunk_overlap=env.integer("NURA_CHUNK_OVERLAP", min(200, size // 2), most=size // 2),
        bm25_weight=env.decimal("NURA_BM25_WEIGHT", 1.0, most=100.0),
        mmr_lambda=env.decimal("NURA_MMR_LAMBDA", 0.7, most=1.0),
        gate_threshold=env.decimal("NURA_GATE_THRESHOLD", 0.5, most=1.0),
        history_pairs=env.integer("MAX_CONVERSATION_HISTORY", 10, most=100),
        memory=_memory(),
        context=_context(),
        verifier_model=env.text("NURA_VERIFIER_MODEL"),
        revise=env.flag("NURA_REVISE", default=True),
        style=_style(),
    )


def _memory() -> MemoryRules:
    return MemoryRules(
        mode=env.choice("MEMORY_MODE", "auto", ("auto", "simple")),
        reset_words=env.words("MEMORY_RESET_KEYWORDS"),
        followup_words=env.words("MEMORY_FOLLOWUP_KEYWORDS"),
        compare_words=env.words("MEMORY_COMPARE_KEYWORDS"),
        multi_words=env.words("MEMORY_MULTI_KEYWORDS"),
        similarity_threshold=env.decimal("MEMORY_SIMILARITY_THRESHOLD", 0.6, most=1.0),
    )


def _context_tokens() -> int | None:
    """None: as much as the model takes."""
    if env.text("NURA_CONTEXT_TOKENS", AUTO).lower() == AUTO:
        return None
    return env.integer("NURA_CONTEXT_TOKENS", USUAL_TOKENS, least=1000, most=2_000_000)


def _context() -> ContextRules:
    usual = ContextRules()
    system = env.decimal("NURA_CONTEXT_SYSTEM_SHARE", usual.system_share, most=0.9)
    documents = env.decimal("NURA_CONTEXT_DOCUMENTS_SHARE", usual.documents_share, most=0.9)
    if system + documents > 1:
        raise ImproperlyConfigured(
            "NURA_CONTEXT_SYSTEM_SHARE and NURA_CONTEXT_DOCUMENTS_SHARE are more than 1 together"
        )
    return ContextRules(
        tokens=_context_tokens(),
        system_share=system,
        documents_share=documents,
        recent_share=env.decimal("NURA_CONTEXT_RECENT_SHARE", usual.recent_share, most=1.0),
        protected_terms=env.words("NURA_PROTECTED_TERMS"),
        explore_calls=env.integer("NURA_EXPLORE_CALLS", 8, most=100),
        explore_tokens=env.integer("NURA_EXPLORE_TOKENS", 6000, least=100, most=1_000_000),
        explore_seconds=env.decimal("NURA_EXPLORE_SECONDS", 20.0, least=0.1, most=600.0),
    )


def _style() -> StyleRules | None:
    """None unless it is asked for; it needs a light model."""
    text, seconds = env.text("NURA_STYLE_RULES"), env.decimal("NURA_STYLE_SECONDS", 20.0, least=0.1)
    if not env.flag("NURA_STYLE_REWRITE", default=False):
        return None
    if not env.text("NURA_LIGHT_LLM_MODEL"):
        raise ImproperlyConfigured("NURA_STYLE_REWRITE needs a light model: NURA_LIGHT_LLM_MODEL")
    return StyleRules(text, seconds)


def _llm() -> Endpoint | None:
    base_url = env.url("NURA_LLM_BASE_URL", HTTP)
    api_key, model = env.text("NURA_LLM_API_KEY"), env.text("NURA_LLM_MODEL")
    if not (model or base_url or api_key):
        return None
    return _timed("NURA_LLM", Endpoint(base_url or OPENAI, model or "gpt-4o-mini", api_key))


def _light_llm() -> Endpoint | None:
    """Address and key of the main model where it has none of its own; never its patience."""
    model = env.text("NURA_LIGHT_LLM_MODEL")
    if not model:
        return None
    seconds = env.decimal("NURA_LIGHT_LLM_TOTAL_TIMEOUT", light.SECONDS, least=0.1)
    endpoint = Endpoint(
        base_url=env.url("NURA_LIGHT_LLM_BASE_URL", HTTP)
        or env.url("NURA_LLM_BASE_URL", HTTP)
        or OPENAI,
        model=model,
        api_key=env.text("NURA_LIGHT_LLM_API_KEY") or env.text("NURA_LLM_API_KEY"),
        connect_timeout=min(LIGHT_CONNECT_SECONDS, seconds),
        first_token_timeout=seconds,
        idle_timeout=seconds,
        total_timeout=seconds,
    )
    return _timed("NURA_LIGHT_LLM", endpoint)


def _vision() -> Endpoint | None:
    """Without an address of its own it is asked where the main model is, with that one's key."""
    base_url, api_key = env.url("NURA_VISION_BASE_URL", HTTP), env.text("NURA_VISION_API_KEY")
    model = env.text("NURA_VISION_MODEL")
    seconds = _seconds("NURA_VISION_TIMEOUT", VISION_SECONDS)
    if not model:
        return None
    if not base_url:
        base_url = env.url("NURA_LLM_BASE_URL", HTTP) or OPENAI
        api_key = api_key or env.text("NURA_LLM_API_KEY")
    return Endpoint(base_url, model, api_key, total_timeout=seconds)


def _timed(prefix: str, endpoint: Endpoint) -> Endpoint:
    """The endpoint with the limits of time that the environment gives, else with its own."""
    return replace(
        endpoint,
        connect_timeout=_seconds(f"{prefix}_CONNECT_TIMEOUT", endpoint.connect_timeout),
        first_token_timeout=_seconds(f"{prefix}_TIMEOUT", endpoint.first_token_timeout),
        idle_timeout=_seconds(f"{prefix}_IDLE_TIMEOUT", endpoint.idle_timeout),
        total_timeout=_seconds(f"{prefix}_TOTAL_TIMEOUT", endpoint.total_timeout),
    )


def _seconds(name: str, usual: float) -> float:
    return env.decimal(name, usual, least=0.1)


def _user_dictionary() -> str:
    """Its absolute path. The file is read here, so that a wrong line stops the start."""
    name = env.text("NURA_USER_DICTIONARY")
    if not name:
        return ""
    path = str(Path(name).expanduser().resolve())
    try:
        read_dictionary(path)
    except DictionaryUnreadable as error:
        raise ImproperlyConfigured(f"NURA_USER_DICTIONARY: {error}") from error
    return path


def _embedding_endpoint() -> Endpoint | None:
    base_url = env.url("NURA_EMBEDDING_BASE_URL", HTTP)
    if not base_url:
        return None
    return Endpoint(
        base_url=base_url,
        model=env.text("NURA_EMBEDDING_MODEL", "text-embedding-3-small"),
        api_key=env.text("NURA_EMBEDDING_API_KEY") or env.text("NURA_LLM_API_KEY"),
    )
