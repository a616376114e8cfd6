"""Warnings as documents keep them: a code, or a code with how often it happened.

Rows of before, and whatever nobody counts, hold the code alone.
"""

from collections.abc import Mapping
from typing import Any

from documents.wording import sentence

Stored = str | Mapping[str, Any]
"""A code, or `{code, count}`."""


def code(warning: Stored) -> str:
    """Which warning it is."""
    return warning if isinstance(warning, str) else str(warning["code"])


def warning_json(warning: Stored) -> dict[str, Any]:
    """As outside programs see it; `count` is None where nobody counts."""
    count = None if isinstance(warning, str) else warning.get("count")
    return {"code": code(warning), "detail": spoken(warning), "count": count}


def spoken(warning: Stored) -> str:
    """The sentence, with the number where there is one."""
    params = {} if isinstance(warning, str) else {**warning, "kind": "counted"}
    return sentence(code(warning), params)
