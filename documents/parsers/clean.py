"""Text as it may be stored: NFC, plain line ends, no NUL, no surrogates, nothing invisible."""

import re
import unicodedata

_LINE_ENDS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_DROPPED = (
    "\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f"  # controls
    "\ud800-\udfff\ufffe\uffff"  # surrogates and non-characters: Postgres refuses them
    "\xad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff"  # width 0, direction
    "\U000e0000-\U000e007f"  # tags: invisible orders to a model
)
_INVISIBLE = re.compile(f"[{_DROPPED}]")
_JOINERS = re.compile(
    "(?<=[0-9A-Za-z\u1100-\u11ff\u3130-\u318f\uac00-\ud7a3\u4e00-\u9fff])[\u200c\u200d]"
)
_BLANK_LINES = re.compile(r"\n[ \t\u3000]*\n(?:[ \t\u3000]*\n)+")


def clean(text: str) -> str:
    """The text as it is stored and searched."""
    text = _LINE_ENDS.sub("\n", text)
    text = _JOINERS.sub("", _INVISIBLE.sub("", text))
    return unicodedata.normalize("NFC", text)


def keeps(character: str) -> bool:
    """Whether `clean` would keep this character."""
    return _INVISIBLE.match(character) is None


def readable(text: str) -> bool:
    """Whether anything is to be seen."""
    return any(not character.isspace() for character in _JOINERS.sub("", text))


def tidy(text: str) -> str:
    """`clean`, and never more than one blank line together."""
    return _BLANK_LINES.sub("\n\n", clean(text)).strip("\n")
