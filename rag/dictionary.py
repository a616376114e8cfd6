"""The user dictionary: words that the morphological analyser must know and keep whole."""

from dataclasses import dataclass
from pathlib import Path

TAGS = frozenset(
    (
        *("NNG", "NNP", "NNB", "NR", "NP", "VV", "VA", "VX", "VCP", "VCN", "MM", "MAG", "MAJ"),
        *("IC", "XPN", "XSN", "XSV", "XSA", "XSM", "XR", "JKS", "JKC", "JKG", "JKO", "JKB"),
        *("JKV", "JKQ", "JX", "JC", "EP", "EF", "EC", "ETN", "ETM", "SL", "SH", "SN", "SW"),
    )
)
"""The Sejong tags as Kiwi writes them."""


class DictionaryUnreadable(ValueError):
    """The file is not there, is no UTF-8, or has a wrong line; the message names file and line."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A word with its tag; a higher score is preferred over other readings."""

    word: str
    tag: str
    score: float = 0.0


def read(path: str) -> tuple[Entry, ...]:
    """The entries of a file in Kiwi's form: `word<TAB>tag<TAB>score` a line, the score optional.

    Blank lines and lines that start with `#` say nothing. Raises `DictionaryUnreadable`.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DictionaryUnreadable(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise DictionaryUnreadable(f"{path}, line {line}: not UTF-8") from error
    return tuple(
        _entry(line, f"{path}, line {number}")
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip() and not line.startswith("#")
    )


def _entry(line: str, place: str) -> Entry:
    fields = [field.strip() for field in line.split("\t")]
    if len(fields) not in (2, 3) or not all(fields):
        raise DictionaryUnreadable(f"{place}: expected word<TAB>tag<TAB>score, not {line!r}")
    word, tag, *score = fields
    if tag not in TAGS:
        raise DictionaryUnreadable(f"{place}: {tag!r} is no tag such as NNP or NNG")
    try:
        return Entry(word, tag, float(score[0]) if score else 0.0)
    except ValueError:
        raise DictionaryUnreadable(f"{place}: the score {score[0]!r} is no number") from None
