"""The vocabularies of known models, as they come with a package: nothing is downloaded."""

import functools
import re
from typing import Any

_KNOWN: tuple[tuple[str, str], ...] = (
    (r"gpt-?oss", "gpt-oss"),
    (r"gpt-?(?:4o|4\.1|4\.5|5)|chatgpt-4o|^o[134](?![\w.])", "o200k_base"),
    (r"gpt-?(?:4|3\.5)(?![\d.])", "cl100k_base"),
    (r"distill-qwen|qwen-?(?:2(?:\.5)?|3)(?!\.?\d)|qwq", "qwen3"),
    (r"distill-llama|llama-?3", "llama3"),
    (r"code-?llama", "codellama"),
    (r"llama-?2|vicuna", "llama2"),
    (r"deepseek-(?:v3|chat|reasoner)|deepseek-r1(?![:\w])", "deepseek_v3"),
    (r"gemma-?4", "gemma4"),
    (r"gemma-?3", "gemma3"),
    (r"gemma-?2", "gemma2"),
    (r"glm-?4(?:\.5)?(?![.\d])", "glm4"),
    (r"kimi-?k2", "kimi_k2"),
    (r"mistral-?nemo", "mistral_v3"),
    (r"phi-?4(?!-mini)", "phi4"),
)
"""Names of models, lower case, and their vocabularies; the first that fits counts.

Families whose later members have another vocabulary are held to the versions that share one.
"""


def of_model(model: str) -> str:
    """The vocabulary of a model by its name, as "Qwen/Qwen2.5-7B"; empty: not known."""
    name = model.casefold().rpartition("/")[2]
    for pattern, vocabulary in _KNOWN:
        if re.search(rf"(?<![a-z0-9])(?:{pattern})", name):
            return vocabulary
    return ""


@functools.cache
def load(vocabulary: str) -> Any:
    """The tokenizer, about 50 ms at first. Thread-safe; its own cache is bounded."""
    import splintr

    return splintr.Tokenizer.from_pretrained(vocabulary)
