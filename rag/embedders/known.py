"""What is declared of known embedding models, so that asking loads nothing."""

from dataclasses import dataclass

from rag.language import ALL

EVERY = frozenset((ALL,))
ENGLISH = frozenset(("en",))


@dataclass(frozen=True, slots=True)
class Declared:
    """Width, languages and prompt prefixes of a model.

    `dimensions` 0: not known before it is loaded.
    """

    dimensions: int = 0
    languages: frozenset[str] = frozenset()
    query_prefix: str = ""
    passage_prefix: str = ""


_E5 = {"query_prefix": "query: ", "passage_prefix": "passage: "}
_MODELS = (
    ("all-minilm-l6-v2", Declared(384, ENGLISH)),
    ("all-minilm-l12-v2", Declared(384, ENGLISH)),
    ("all-mpnet-base-v2", Declared(768, ENGLISH)),
    ("bge-m3", Declared(1024, EVERY)),
    ("kure-v1", Declared(1024, EVERY)),
    ("multilingual-e5-small", Declared(384, EVERY, **_E5)),
    ("multilingual-e5-base", Declared(768, EVERY, **_E5)),
    ("multilingual-e5-large", Declared(1024, EVERY, **_E5)),
    ("paraphrase-multilingual-minilm-l12-v2", Declared(384, EVERY)),
    ("paraphrase-multilingual-mpnet-base-v2", Declared(768, EVERY)),
    ("text-embedding-3-small", Declared(1536, EVERY)),
    ("text-embedding-3-large", Declared(3072, EVERY)),
    ("text-embedding-ada-002", Declared(1536, EVERY)),
)


def declared(model: str) -> Declared:
    """What is known of a model by its name or folder; the empty declaration for others."""
    name = model.rstrip("/").rsplit("/", 1)[-1].lower()
    return next((known for label, known in _MODELS if label == name), Declared())
