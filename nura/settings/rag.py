"""Builds the frozen configurations of the engine and of pictures from the environment.

What checks a value loads more of the engine than its configuration only if the value is set.
"""

import hmac
from dataclasses import replace
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from documents.parsers.base import ALL_PICTURES, PictureRules
from nura.settings import env
from rag.config import (
    LIGHT_SECONDS,
    USUAL_TOKENS,
    ContextRules,
    Endpoint,
    MemoryRules,
    ProfileRules,
    RagConfig,
    StyleRules,
)

HTTP = ("http", "https")
OPENAI = "https://api.openai.com/v1"
LIGHT_CONNECT_SECONDS = 2.0
VISION_SECONDS = 120.0
AUTO = "auto"


def build_rag_config(secret_key: str = "", models_socket: str = "") -> RagConfig:
    """The engine's configuration. Raises `ImproperlyConfigured` naming the variable.

    The marks around material in prompts are derived from `secret_key`, so that the author of a
    document cannot guess them. `models_socket` is where the models process listens unless the
    environment says otherwise.
    """
    size = env.read_integer("NURA_CHUNK_SIZE", 1000, minimum=100, maximum=20_000)
    return RagConfig(
        llm=_read_llm(),
        light_llm=_read_light_llm(),
        vision=_read_vision(),
        vision_max_tokens=env.read_integer(
            "NURA_VISION_MAX_TOKENS", 2000, minimum=1, maximum=1_000_000
        ),
        fence=hmac.new(secret_key.encode(), b"prompt fence", "sha256").hexdigest()[:12],
        temperature=env.read_decimal("NURA_LLM_TEMPERATURE", 0.0, maximum=2.0),
        max_tokens=env.read_integer("NURA_LLM_MAX_TOKENS", 1000, minimum=1, maximum=1_000_000),
        thinking=env.read_flag("NURA_LLM_THINKING", default=False),
        embedding_model=env.read_text("NURA_EMBEDDING_MODEL"),
        embedding_endpoint=_read_embedding_endpoint(),
        embedding_languages=frozenset(env.read_words("NURA_EMBEDDING_LANGUAGES")),
        reranker_model=env.read_text("NURA_RERANKER_MODEL"),
        reranker_endpoint=_read_reranker_endpoint(),
        models_socket=env.read_text("NURA_MODELS_SOCKET") or models_socket,
        top_k=env.read_integer("NURA_TOP_K", 4, minimum=1, maximum=100),
        user_dictionary=_read_user_dictionary(),
        chunk_size=size,
        chunk_overlap=env.read_integer(
            "NURA_CHUNK_OVERLAP", min(200, size // 2), maximum=size // 2
        ),
        bm25_weight=env.read_decimal("NURA_BM25_WEIGHT", 1.0, maximum=100.0),
        mmr_lambda=env.read_decimal("NURA_MMR_LAMBDA", 0.7, maximum=1.0),
        gate_threshold=env.read_decimal("NURA_GATE_THRESHOLD", 0.5, maximum=1.0),
        history_pairs=env.read_integer("MAX_CONVERSATION_HISTORY", 10, maximum=100),
        memory=_read_memory_rules(),
        context=_read_context_rules(),
        profile=_read_profile_rules(),
        verifier_model=env.read_text("NURA_VERIFIER_MODEL"),
        revise=env.read_flag("NURA_REVISE", default=True),
        style=_read_style_rules(),
    )


def _read_memory_rules() -> MemoryRules:
    return MemoryRules(
        mode=env.read_choice("MEMORY_MODE", "auto", ("auto", "simple")),
        reset_words=env.read_words("MEMORY_RESET_KEYWORDS"),
        followup_words=env.read_words("MEMORY_FOLLOWUP_KEYWORDS"),
        compare_words=env.read_words("MEMORY_COMPARE_KEYWORDS"),
        multi_words=env.read_words("MEMORY_MULTI_KEYWORDS"),
        similarity_threshold=env.read_decimal("MEMORY_SIMILARITY_THRESHOLD", 0.6, maximum=1.0),
    )


def _read_context_tokens() -> int | None:
    """None: whatever the model can take."""
    if env.read_text("NURA_CONTEXT_TOKENS", AUTO).lower() == AUTO:
        return None
    return env.read_integer("NURA_CONTEXT_TOKENS", USUAL_TOKENS, minimum=1000, maximum=2_000_000)


def _read_context_rules() -> ContextRules:
    defaults = ContextRules()
    system = env.read_decimal("NURA_CONTEXT_SYSTEM_SHARE", defaults.system_share, maximum=0.9)
    documents = env.read_decimal(
        "NURA_CONTEXT_DOCUMENTS_SHARE", defaults.documents_share, maximum=0.9
    )
    if system + documents > 1:
        raise ImproperlyConfigured(
            "NURA_CONTEXT_SYSTEM_SHARE and NURA_CONTEXT_DOCUMENTS_SHARE are more than 1 together"
        )
    return ContextRules(
        tokens=_read_context_tokens(),
        system_share=system,
        documents_share=documents,
        recent_share=env.read_decimal(
            "NURA_CONTEXT_RECENT_SHARE", defaults.recent_share, maximum=1.0
        ),
        protected_terms=env.read_words("NURA_PROTECTED_TERMS"),
        explore_calls=env.read_integer("NURA_EXPLORE_CALLS", 8, maximum=100),
        explore_tokens=env.read_integer(
            "NURA_EXPLORE_TOKENS", 6000, minimum=100, maximum=1_000_000
        ),
        explore_seconds=env.read_decimal("NURA_EXPLORE_SECONDS", 20.0, minimum=0.1, maximum=600.0),
    )


def _read_profile_rules() -> ProfileRules:
    packs = env.read_words("NURA_MEMORY_PACKS", ProfileRules().packs)
    packs = () if packs == ("none",) else packs
    if packs != ProfileRules().packs:
        _check_packs(packs)
    default = ProfileRules().half_life_days
    return ProfileRules(
        packs=packs,
        half_life_days=env.read_decimal(
            "NURA_MEMORY_HALF_LIFE_DAYS", default, minimum=0.1, maximum=3650.0
        ),
    )


def _check_packs(packs: tuple[str, ...]) -> None:
    """Load packs of one's own, so that a bad line stops the start."""
    from rag.memory.profile import load_packs

    try:
        load_packs(packs)
    except ValueError as error:
        raise ImproperlyConfigured(f"NURA_MEMORY_PACKS: {error}") from error


def _read_style_rules() -> StyleRules | None:
    """None unless enabled; requires a light model."""
    text, seconds = (
        env.read_text("NURA_STYLE_RULES"),
        env.read_decimal("NURA_STYLE_SECONDS", 20.0, minimum=0.1),
    )
    if not env.read_flag("NURA_STYLE_REWRITE", default=False):
        return None
    if not env.read_text("NURA_LIGHT_LLM_MODEL"):
        raise ImproperlyConfigured("NURA_STYLE_REWRITE needs a light model: NURA_LIGHT_LLM_MODEL")
    return StyleRules(text, seconds)


def _read_llm() -> Endpoint | None:
    base_url = env.read_url("NURA_LLM_BASE_URL", HTTP)
    api_key, model = env.read_text("NURA_LLM_API_KEY"), env.read_text("NURA_LLM_MODEL")
    endpoint = Endpoint(base_url or OPENAI, model or "gpt-4o-mini", api_key)
    endpoint = _read_timeouts("NURA_LLM", endpoint)
    return endpoint if model or base_url or api_key else None


def _read_light_llm() -> Endpoint | None:
    """Takes the main model's address and key where it has none of its own, never its timeouts."""
    model = env.read_text("NURA_LIGHT_LLM_MODEL")
    seconds = env.read_decimal("NURA_LIGHT_LLM_TOTAL_TIMEOUT", LIGHT_SECONDS, minimum=0.1)
    endpoint = Endpoint(
        base_url=env.read_url("NURA_LIGHT_LLM_BASE_URL", HTTP)
        or env.read_url("NURA_LLM_BASE_URL", HTTP)
        or OPENAI,
        model=model,
        api_key=env.read_text("NURA_LIGHT_LLM_API_KEY") or env.read_text("NURA_LLM_API_KEY"),
        connect_timeout=min(LIGHT_CONNECT_SECONDS, seconds),
        first_token_timeout=seconds,
        idle_timeout=seconds,
        total_timeout=seconds,
    )
    endpoint = _read_timeouts("NURA_LIGHT_LLM", endpoint)
    return endpoint if model else None


def _read_vision() -> Endpoint | None:
    """Without an address of its own: the main model's address and key."""
    base_url, api_key = (
        env.read_url("NURA_VISION_BASE_URL", HTTP),
        env.read_text("NURA_VISION_API_KEY"),
    )
    model = env.read_text("NURA_VISION_MODEL")
    seconds = _read_seconds("NURA_VISION_TIMEOUT", VISION_SECONDS)
    if not model:
        return None
    if not base_url:
        base_url = env.read_url("NURA_LLM_BASE_URL", HTTP) or OPENAI
        api_key = api_key or env.read_text("NURA_LLM_API_KEY")
    return Endpoint(base_url, model, api_key, total_timeout=seconds)


def _read_timeouts(prefix: str, endpoint: Endpoint) -> Endpoint:
    """The endpoint with the timeouts from the environment; its own are the defaults."""
    return replace(
        endpoint,
        connect_timeout=_read_seconds(f"{prefix}_CONNECT_TIMEOUT", endpoint.connect_timeout),
        first_token_timeout=_read_seconds(f"{prefix}_TIMEOUT", endpoint.first_token_timeout),
        idle_timeout=_read_seconds(f"{prefix}_IDLE_TIMEOUT", endpoint.idle_timeout),
        total_timeout=_read_seconds(f"{prefix}_TOTAL_TIMEOUT", endpoint.total_timeout),
    )


def _read_seconds(name: str, default: float) -> float:
    return env.read_decimal(name, default, minimum=0.1)


def _read_user_dictionary() -> str:
    """Its absolute path. The file is read here so that a bad line stops the start."""
    name = env.read_text("NURA_USER_DICTIONARY")
    if not name:
        return ""
    from rag.tokenize.korean import DictionaryUnreadable, read_dictionary

    path = str(Path(name).expanduser().resolve())
    try:
        read_dictionary(path)
    except DictionaryUnreadable as error:
        raise ImproperlyConfigured(f"NURA_USER_DICTIONARY: {error}") from error
    return path


def _read_embedding_endpoint() -> Endpoint | None:
    base_url = env.read_url("NURA_EMBEDDING_BASE_URL", HTTP)
    endpoint = Endpoint(
        base_url=base_url,
        model=env.read_text("NURA_EMBEDDING_MODEL") or "text-embedding-3-small",
        api_key=env.read_text("NURA_EMBEDDING_API_KEY") or env.read_text("NURA_LLM_API_KEY"),
    )
    return endpoint if base_url else None


def _read_reranker_endpoint() -> Endpoint | None:
    base_url = env.read_url("NURA_RERANKER_BASE_URL", HTTP)
    model, api_key = env.read_text("NURA_RERANKER_MODEL"), env.read_text("NURA_RERANKER_API_KEY")
    if base_url and not model:
        raise ImproperlyConfigured("NURA_RERANKER_BASE_URL needs a model: NURA_RERANKER_MODEL")
    return Endpoint(base_url, model, api_key) if base_url else None


def build_picture_rules() -> PictureRules:
    """Which pictures of documents are kept. Raises `ImproperlyConfigured` naming the variable."""
    defaults = ALL_PICTURES
    return PictureRules(
        max_pictures=env.read_integer("NURA_PICTURES_MAX", defaults.max_pictures, maximum=1000),
        min_pixels=env.read_integer("NURA_PICTURES_MIN_PIXELS", defaults.min_pixels),
        max_ratio=env.read_decimal(
            "NURA_PICTURES_MAX_ASPECT_RATIO", defaults.max_ratio, minimum=1.0
        ),
        min_variance=env.read_decimal("NURA_PICTURES_MIN_VARIANCE", defaults.min_variance),
        min_nonwhite=env.read_decimal(
            "NURA_PICTURES_MIN_NONWHITE", defaults.min_nonwhite, maximum=1.0
        ),
        min_edges=env.read_decimal("NURA_PICTURES_MIN_EDGES", defaults.min_edges),
    )
