"""Takes the power out of text that goes into a prompt.

Marks that a chat template or a reader would obey.
"""

import re

_INVISIBLE = re.compile(
    "[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\x00]"
)
_ANGLE = re.compile(
    r"<(\|[^<>\n]{1,40}\||/?s|/?(?:bos|eos|pad|unk)|(?:start|end)_of_turn|/?(?:think|tool_call|tool_response)|"
    r"｜[^<>\n]{1,40}｜)>",
    re.IGNORECASE,
)
_SYSTEM = re.compile(r"<<(/?SYS)>>", re.IGNORECASE)
_SQUARE = re.compile(r"\[(/?INST)\]", re.IGNORECASE)


def neutralise(text: str) -> str:
    """The text as a person would read it: no invisible marks, special tokens in other brackets."""
    text = _INVISIBLE.sub("", text)
    text = _SYSTEM.sub(r"‹\1›", text)
    text = _ANGLE.sub(r"‹\1›", text)
    return _SQUARE.sub(r"(\1)", text)
