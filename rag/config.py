"""One frozen configuration for the whole engine.

`nura/settings/rag.py` builds it from the environment.
"""

from dataclasses import dataclass, field, replace

USUAL_TOKENS = 4000
"""Length of a prompt if the model's limit is unknown."""
LIGHT_SECONDS = 8.0
"""How long to wait for the light model unless the settings say otherwise."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible server and the model to ask there. Times in seconds."""

    base_url: str
    model: str
    api_key: str = field(default="", repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Sent with every request; they may hold keys, too."""
    connect_timeout: float = 5.0
    first_token_timeout: float = 30.0
    """From the request to the first token, thinking included."""
    idle_timeout: float = 60.0
    """Between two parts of the reply."""
    total_timeout: float = 300.0
    """For the whole reply, retries included."""
    socket: str = ""
    """Path of the server's Unix socket; empty: use `base_url`."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no message may repeat."""
        return tuple(filter(None, (self.api_key, *(value for _name, value in self.headers))))


LOCAL_MODELS = Endpoint("http://localhost/v1", "", idle_timeout=600.0)
"""For the models process: a large model on a slow processor takes minutes for a batch."""


@dataclass(frozen=True, slots=True)
class MemoryRules:
    """How follow-ups are recognised. Words are matched loosely."""

    mode: str = "auto"
    """"auto", or "simple": reset words, short questions, follow-up words, similarity."""
    reset_words: tuple[str, ...] = ()
    """Empty: `rag/lexicon/reset.txt`; the lists below have files of their own, too."""
    followup_words: tuple[str, ...] = ()
    compare_words: tuple[str, ...] = ()
    multi_words: tuple[str, ...] = ()
    similarity_threshold: float = 0.6
    """Mode "simple": cosine to the last question from which this one is a follow-up."""


@dataclass(frozen=True, slots=True)
class ContextRules:
    """Shares of the prompt, and limits for looking through a long conversation."""

    tokens: int | None = None
    """Length of the whole prompt; its parts scale with it. None: what the model takes."""
    system_share: float = 0.1
    """Share reserved for the instructions, which take what they need."""
    documents_share: float = 0.225
    """Share reserved for the documents, which also get what other parts leave."""
    recent_share: float = 0.6
    """Share of the remainder for the last messages; older turns get the rest."""
    protected_terms: tuple[str, ...] = ()
    """Words that no summary may lose; empty: those of `rag/lexicon/protected_words.txt`."""
    explore_calls: int = 8
    """Limit of model and tool calls in one exploration; 0: no model is asked."""
    explore_tokens: int = 6000
    explore_seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class ProfileRules:
    """What is remembered of users."""

    packs: tuple[str, ...] = ("general",)
    """Names of packs in `rag/memory/packs`, or paths of TOML files; empty: nothing."""
    half_life_days: float = 14.0
    """After so long a symptom counts half."""


@dataclass(frozen=True, slots=True)
class StyleRules:
    """How finished answers are rewritten by the light model."""

    text: str = ""
    """The rules, a line each; empty: those of `rag/prompts/style_rules`."""
    seconds: float = 20.0
    """Time limit; after it, the draft stays."""


@dataclass(frozen=True, slots=True)
class RagConfig:
    """Everything that decides how documents are split, found and used. Sizes in characters."""

    llm: Endpoint | None = None
    light_llm: Endpoint | None = None
    vision: Endpoint | None = None
    """The vision model; of its limits only `total_timeout` counts, per picture."""
    vision_max_tokens: int = 2000
    fence: str = "material"
    """Marks the material in prompts: one per installation, hard to guess."""
    temperature: float = 0.0
    max_tokens: int = 1000
    thinking: bool = False
    """Whether the model thinks before it answers; thoughts do not count as `max_tokens`."""
    embedding_model: str = ""
    """A sentence-transformers name or folder.

    Empty: the English model that comes with the product.
    """
    embedding_endpoint: Endpoint | None = None
    embedding_languages: frozenset[str] = field(default_factory=frozenset)
    """Overrides the languages known for the model; empty: no override."""
    embedding_dimensions: int = 0
    """Required number of dimensions; 0: the model's own."""
    embedding_unrelated: float | None = None
    """Mean cosine of unrelated texts; None: not measured."""
    reranker_model: str = ""
    """A cross-encoder, name or folder; empty: none."""
    reranker_endpoint: Endpoint | None = None
    """The reranker's endpoint; None: the models process."""
    models_socket: str = ""
    """Unix socket of the models process, which has the models without an endpoint."""
    top_k: int = 4
    user_dictionary: str = ""
    """Path of a user dictionary for Korean; see `rag.tokenize.korean`."""
    chunk_size: int = 1000
    chunk_overlap: int = 200
    bm25_weight: float = 1.0
    mmr_lambda: float = 0.7
    """MMR: weight of relevance against similarity to passages already chosen, 0..1."""
    gate_threshold: float = 0.5
    history_pairs: int = 10
    memory: MemoryRules = field(default_factory=MemoryRules)
    context: ContextRules = field(default_factory=ContextRules)
    profile: ProfileRules = field(default_factory=ProfileRules)
    verifier_model: str = ""
    """Cross-encoder for natural language inference that checks sentences; empty: rules."""
    verifier_endpoint: Endpoint | None = None
    """The verifier's endpoint; None: the models process."""
    revise: bool = True
    """Let the light model, if there is one, rewrite sentences that no source supports."""
    style: StyleRules | None = None
    """None: answers are not rewritten."""

    @property
    def needs_models_process(self) -> bool:
        """Whether some model, named or embedded, has no endpoint of its own."""
        own_reranker = self.reranker_model and self.reranker_endpoint is None
        own_verifier = self.verifier_model and self.verifier_endpoint is None
        return bool(self.embedding_endpoint is None or own_reranker or own_verifier)

    def local_model(self, model: str) -> Endpoint:
        """The endpoint of a model in the models process."""
        return replace(LOCAL_MODELS, model=model, socket=self.models_socket)
