"""What Nura says itself, without a model: `ko.toml` and `en.toml` beside this loader."""

import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path

from rag.prompts import fill_places

_FOLDER = Path(__file__).parent


@functools.cache
def load_replies(language: str) -> Mapping[str, str]:
    """All replies by name, in "ko" or, for any other language, in English."""
    chosen = "ko" if language == "ko" else "en"
    texts = tomllib.loads((_FOLDER / f"{chosen}.toml").read_text(encoding="utf-8"))
    return {name: text.strip() for name, text in texts.items()}


def get_reply(name: str, language: str, **values: str) -> str:
    """A reply with every `{{name}}` in it replaced once; braces in the values stay what they are.

    Raises `KeyError` for an unknown reply and for a place without a value.
    """
    return fill_places(load_replies(language)[name], values)
