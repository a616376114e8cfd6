"""Builds the one frozen configuration of the engine from the environment."""

from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

from nura.settings import env
from rag import dictionary
from rag.config import ContextRules, Endpoint, MemoryRules, RagConfig, StyleRules

HTTP = ("http", "https")


def build() -> RagConfig:
    """The engine's configuration. Raises `ImproperlyConfigured` naming the variable."""
    size = env.integer("NURA_CHUNK_SIZE", 1000, least=100, most=20_000)
    return RagConfig(
        llm=_endpoint("NURA_LLM"),
        light_llm=_endpoint("NURA_LIGHT_LLM", fallback="NURA_LLM"),
        temperature=env.decimal("NURA_LLM_TEMPERATURE", 0.0, most=2.0),
        max_tokens=env.integer("NURA_LLM_MAX_TOKENS", 1000, least=1, most=1_000_000),
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


def _context() -> ContextRules:
    return ContextRules(
        tokens=env.integer("NURA_CONTEXT_TOKENS", 4000, least=1000, most=2_000_000),
        summary_after=env.integer("NURA_SUMMARY_AFTER", 10, least=2, most=1000),
        summary_keeps=env.integer("NURA_SUMMARY_KEEPS", 5, least=1, most=100),
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


def _endpoint(prefix: str, fallback: str = "") -> Endpoint | None:
    model = env.text(f"{prefix}_MODEL")
    base_url = env.url(f"{prefix}_BASE_URL", HTTP) or (
        env.url(f"{fallback}_BASE_URL", HTTP) if fallback else ""
    )
    api_key = env.text(f"{prefix}_API_KEY") or (env.text(f"{fallback}_API_KEY") if fallback else "")
    if fallback and not model:
        return None
    if not (model or base_url or api_key):
        return None
    return Endpoint(
        base_url=base_url or "https://api.openai.com/v1",
        model=model or "gpt-4o-mini",
        api_key=api_key,
        first_token_timeout=env.decimal("NURA_LLM_TIMEOUT", 30.0, least=0.1),
    )


def _user_dictionary() -> str:
    """Its absolute path. The file is read here, so that a wrong line stops the start."""
    name = env.text("NURA_USER_DICTIONARY")
    if not name:
        return ""
    path = str(Path(name).expanduser().resolve())
    try:
        dictionary.read(path)
    except dictionary.DictionaryUnreadable as error:
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
