"""Documents of one family: "시행령에서는?" after a law means the decree that belongs to it."""

import re
from collections.abc import Iterable
from uuid import UUID

from rag.ports import PassageStore
from rag.query.names import normalised

_KIND = r"시행령|시행규칙|시행세칙|모법|본법"
_SAID = re.compile(rf"(?<![가-힣])(?:그\s?)?({_KIND})(?![가-힣]*법)")
_MEMBER = re.compile(r"\s*(?:시행령|시행규칙|시행세칙)$")
_WHOLE = ("모법", "본법")
"""Words for the law itself that a decree belongs to."""
READ = 200
"""Characters of a question in which its kind is looked for."""


def named(text: str, titles: Iterable[str], store: PassageStore) -> tuple[UUID, ...]:
    """The documents whose title is that of a remembered one's family with the kind that is said.

    Empty where no kind is said, or the store has no such document.
    """
    kinds = {match[1] for match in _SAID.finditer(text[:READ])}
    bases = {_MEMBER.sub("", title) for title in titles}
    names = [
        normalised(base if kind in _WHOLE else base + kind)
        for base in sorted(bases)
        for kind in sorted(kinds)
        if base
    ]
    found = store.named(names) if names else []
    return tuple(dict.fromkeys(one.document_id for one in found if one.field == "title"))
