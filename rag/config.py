"""One frozen configuration for the whole engine.

`nura/settings/rag.py` builds it from the environment.
"""

from dataclasses import dataclass, field, replace

USUAL_TOKENS = 4000
"""Of a whole prompt, where nobody says how much the model takes."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible server and the model to ask there. Times in seconds."""

    base_url: str
    model: str
    api_key: str = ""
    connect_timeout: float = 5.0
    first_token_timeout: float = 30.0
    """From the request to the first token, be it of the thinking."""
    idle_timeout: float = 60.0
    """From one part of the reply to the next."""
    total_timeout: float = 300.0
    """Of the reply with all tries."""
    socket: str = ""
    """Path of the Unix socket that the server listens on; empty: `base_url` says where."""


LOCAL_MODELS = Endpoint("http://localhost/v1", "", idle_timeout=600.0)
"""How the models process is asked. A large model on a slow processor takes minutes for a batch."""


@dataclass(frozen=True, slots=True)
class MemoryRules:
    """How a question's bond to the conversation is told. Words are matched loosely."""

    mode: str = "auto"
    """"auto", or "simple": reset words, short or follow-up word, similarity of the questions."""
    reset_words: tuple[str, ...] = ()
    """Empty: those of `rag/lexicon/reset.txt`; the lists below have files of their own, too."""
    followup_words: tuple[str, ...] = ()
    compare_words: tuple[str, ...] = ()
    multi_words: tuple[str, ...] = ()
    similarity_threshold: float = 0.6
    """Cosine of this and the last question from which on mode "simple" takes it for a follow-up."""


@dataclass(frozen=True, slots=True)
class ContextRules:
    """What goes into a prompt, and what may be spent on looking through a long conversation."""

    tokens: int | None = None
    """Of a whole prompt; its layers scale with it. None: as much as the model takes."""
    system_share: float = 0.1
    """Of these tokens, reserved for the instructions, which take what they need."""
    documents_share: float = 0.225
    """Reserved for the documents, which take what the other parts leave as well."""
    recent_share: float = 0.6
    """For the last messages, of what the others leave; the rest of that is for older turns."""
    protected_terms: tuple[str, ...] = ()
    """Words that no summary may lose; empty: those of `rag/lexicon/protected_words.txt`."""
    explore_calls: int = 8
    """Of a model in one exploration, and of tools; 0: no model is asked."""
    explore_tokens: int = 6000
    explore_seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class StyleRules:
    """How finished answers are rewritten by the light model."""

    text: str = ""
    """The rules, a line each; empty: those of `rag/prompts/style_rules`."""
    seconds: float = 20.0
    """After that the draft stays."""


@dataclass(frozen=True, slots=True)
class RagConfig:
    """All that decides how documents are cut, found and answered from. Sizes in characters."""

    llm: Endpoint | None = None
    light_llm: Endpoint | None = None
    vision: Endpoint | None = None
    """Who reads pictures of documents; only its `total_timeout` counts, for one picture."""
    vision_max_tokens: int = 2000
    fence: str = "material"
    """What marks off material in prompts: one an installation, hard to guess from outside."""
    temperature: float = 0.0
    max_tokens: int = 1000
    thinking: bool = False
    """Whether the model thinks before it answers; thoughts do not count in `max_tokens`."""
    embedding_model: str = ""
    """A sentence-transformers name or folder.

    Empty: the English model that comes with the product.
    """
    embedding_endpoint: Endpoint | None = None
    embedding_languages: frozenset[str] = field(default_factory=frozenset)
    """Overrides what is declared for known models; empty: as declared."""
    embedding_dimensions: int = 0
    """Width that the vectors must have; 0: what the model has."""
    embedding_unrelated: float | None = None
    """Mean cosine of texts that have nothing to do with each other; None: not measured."""
    reranker_model: str = ""
    """A cross-encoder, name or folder; empty: none."""
    reranker_endpoint: Endpoint | None = None
    """Who has the reranker; None: the models process."""
    models_socket: str = ""
    """Unix socket of the models process, which holds the models that no endpoint has."""
    top_k: int = 4
    user_dictionary: str = ""
    """Path of a file of words for the analyser of Korean; see `rag.tokenize.korean`."""
    chunk_size: int = 1000
    chunk_overlap: int = 200
    bm25_weight: float = 1.0
    mmr_lambda: float = 0.7
    """What relevance weighs in MMR against likeness to what is chosen already, 0..1."""
    gate_threshold: float = 0.5
    history_pairs: int = 10
    memory: MemoryRules = field(default_factory=MemoryRules)
    context: ContextRules = field(default_factory=ContextRules)
    verifier_model: str = ""
    """A cross-encoder of natural language inference that checks sentences; empty: by rules."""
    revise: bool = True
    """Sentences that nothing supports are written anew by the light model, where there is one."""
    style: StyleRules | None = None
    """None: answers stay as they were written."""

    @property
    def needs_models_process(self) -> bool:
        """Whether a model is named, or left to be the embedded one, that no endpoint has."""
        own_reranker = self.reranker_model and self.reranker_endpoint is None
        return bool(self.embedding_endpoint is None or own_reranker or self.verifier_model)

    def local_model(self, model: str) -> Endpoint:
        """Where a model of the models process is asked."""
        return replace(LOCAL_MODELS, model=model, socket=self.models_socket)
