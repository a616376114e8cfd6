"""Fields of stored messages, written past the product: what some engine would have stored."""

from typing import Any

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.support import Product


def store(product: Product, message_id: str, **fields: Any) -> None:
    """Set columns of a message; lists become JSON."""
    values = [Jsonb(value) if isinstance(value, list) else value for value in fields.values()]
    columns = sql.SQL(", ").join(sql.SQL("{} = %s").format(sql.Identifier(name)) for name in fields)
    command = sql.SQL("UPDATE chats_message SET {} WHERE id = %s").format(columns)
    with psycopg.connect(**product.database) as connection:
        changed = connection.execute(command, [*values, message_id]).rowcount
    assert changed == 1


def make_check(
    content: str, sentence: str, verdict: str, *reasons: str, last: bool = False
) -> dict[str, Any]:
    """A sentence of an answer as it was held against the evidence; offsets in code points.

    Of one that stands there more than once the first, or the `last`.
    """
    start = content.rindex(sentence) if last else content.index(sentence)
    end = start + len(sentence)
    return {"start": start, "end": end, "verdict": verdict, "slots": [1], "reasons": [*reasons]}
