"""What is said before anything else: that somebody needs help now, and whom to call.

By rules alone (`rag/lexicon/emergency.toml`), with and without a language model, and before the
question is searched: whoever needs an ambulance does not wait for an index.
"""

from enum import StrEnum

from rag.lexicon import load_patterns
from rag.replies import get_reply
from rag.tokenize.text import choose_reply_language, split_sentences

MAX_CHARACTERS = 2000
"""Of a message that are read: a longer one is a pasted text, and its beginning tells what it is."""
MAX_SENTENCES = 12


class Emergency(StrEnum):
    """Who is to be called: an ambulance, or a crisis line as well."""

    BODY = "body"
    SELF_HARM = "self_harm"


def find_emergency(text: str) -> Emergency | None:
    """The emergency that a user's message tells of, the crisis of a mind before one of the body."""
    known = load_patterns("emergency")
    found: Emergency | None = None
    if not known["hints"].search(text[:MAX_CHARACTERS]):
        return None
    for sentence in split_sentences(text[:MAX_CHARACTERS])[:MAX_SENTENCES]:
        kinds = {
            Emergency.SELF_HARM if name.startswith("self_harm") else Emergency.BODY
            for name, pattern in known.named.items()
            if name.startswith(("body_", "self_harm_")) and pattern.search(sentence)
        }
        if Emergency.SELF_HARM in kinds:
            return Emergency.SELF_HARM
        if kinds and (not known["informs"].search(sentence) or known["present"].search(sentence)):
            found = Emergency.BODY
    return found


def write_emergency_note(text: str) -> str:
    """What an answer to a message begins with, in the message's language; empty for none."""
    emergency = find_emergency(text)
    if emergency is None:
        return ""
    return get_reply(f"emergency_{emergency}", choose_reply_language(text))
