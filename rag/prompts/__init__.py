"""Wording: of prompts, `NAME.ko.txt` and `NAME.en.txt` beside this loader, and of replies.

Replies are what Nura says itself, without a model: `ko.toml` and `en.toml` in `rag/replies`.
"""

import functools
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

_FOLDER = Path(__file__).parent
_REPLIES = _FOLDER.parent / "replies"
_PLACE = re.compile(r"\{\{(\w+)\}\}")


@functools.cache
def load_prompt(name: str, language: str) -> str:
    """The wording in "ko", in any other language the English one."""
    chosen = "ko" if language == "ko" else "en"
    return (_FOLDER / f"{name}.{chosen}.txt").read_text(encoding="utf-8").strip()


def fill_prompt(name: str, language: str, **values: str) -> str:
    """The wording with every `{{name}}` of the file replaced once.

    Braces in the values stay what they are.

    Raises `KeyError` for a place without a value.
    """
    return fill_places(load_prompt(name, language), values)


def fill_places(wording: str, values: Mapping[str, str]) -> str:
    """The wording with every `{{name}}` replaced once; braces in the values stay what they are.

    Raises `KeyError` for a place without a value.
    """
    return _PLACE.sub(lambda match: values[match[1]], wording)


@functools.cache
def load_replies(language: str) -> Mapping[str, str]:
    """All replies by name, in "ko" or, for any other language, in English."""
    chosen = "ko" if language == "ko" else "en"
    texts = tomllib.loads((_REPLIES / f"{chosen}.toml").read_text(encoding="utf-8"))
    return {name: text.strip() for name, text in texts.items()}


def get_reply(name: str, language: str, **values: str) -> str:
    """A reply with every `{{name}}` in it replaced once; braces in the values stay what they are.

    Raises `KeyError` for an unknown reply and for a place without a value.
    """
    return fill_places(load_replies(language)[name], values)
