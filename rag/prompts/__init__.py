"""Wording of prompts: `NAME.ko.txt` and `NAME.en.txt` beside this loader."""

import functools
import re
from collections.abc import Mapping
from pathlib import Path

_FOLDER = Path(__file__).parent
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
