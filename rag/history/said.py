"""What a turn says in its own words, and in one line: without a model."""

import functools
import re
from collections.abc import Sequence

from rag import prompts, sentences, tokenize
from rag.conversation import Turn
from rag.history import protected
from rag.morphemes import Morpheme
from rag.neutral import neutralise

LINE = 160
"""Characters of a summary line."""
ASKED = 80
"""Of them for the question, where there is an answer worth telling."""
READ = 4000
"""Characters of a text that are read for a line."""
ENTITY = 1.5
"""What a name or figure in a sentence counts beside a term of the question."""
LATER = 0.05
"""What each further sentence of an answer counts less: answers begin with what matters."""
_FIXED = (
    *("extractive_note", "extractive_nothing", "notice_gone", "notice_widened", "reset"),
    *("plain_bye", "plain_greeting", "plain_help", "plain_help_delete", "plain_help_files"),
    *("plain_help_model", "plain_help_privacy", "plain_help_upload"),
    *("plain_no_documents", "plain_no_model", "plain_thanks"),
)
_MARKER = re.compile(r"\s?\[\d{1,4}\]")
_SPACE = re.compile(r"\s+")
_NAME = re.compile(r"(?<!^)(?<![.!?]\s)\b[A-Z][\w&.-]{1,40}(?:\s[A-Z][\w&.-]{1,40}){0,4}")
_QUOTED = re.compile(r"[\"“'‘「『《]([^\"”'’」』》\n]{2,60})[\"”'’」』》]")


def answer(turn: Turn) -> str:
    """The answer without source markers and without sentences that the product says of itself."""
    text = _MARKER.sub("", turn.assistant_text)
    for fixed in _fixed():
        text = text.replace(fixed, "")
    return text.strip()


def line(turn: Turn) -> str:
    """The question's subject and the answer's most telling sentence, at most `LINE` characters.

    Names, figures, dates and codes of the question are in it, however long the question is.
    """
    asked = _one_line(turn.user_text[:READ])
    telling = _telling(asked, answer(turn)[:READ])
    return joined(_subject(asked, ASKED if telling else LINE), telling)


def joined(asked: str, told: str) -> str:
    """A question and what was said to it as one line of at most `LINE` characters."""
    return cut(f"{asked} → {told}" if told else asked, LINE)


def entities(text: str) -> list[str]:
    """Names, quoted words, amounts, dates and codes, in order, none twice."""
    found = [match.group() for match in protected.FIGURE.finditer(text)]
    found += [match[1] for match in _QUOTED.finditer(text)]
    found += [match.group() for match in _NAME.finditer(text)]
    found += _korean_names(text)
    return list(dict.fromkeys(item.strip() for item in found))


def cut(text: str, length: int) -> str:
    """The text, or its beginning with an ellipsis, at most `length` characters."""
    return text if len(text) <= length else text[: max(0, length - 1)].rstrip() + "…"


def _korean_names(text: str) -> list[str]:
    """Nouns written together of which one is a name: the analyser cuts names that it has not."""
    groups: list[list[Morpheme]] = []
    for item in tokenize.morphemes_of(text) or ():
        if not item.tag.startswith("NN"):
            continue
        if groups and groups[-1][-1].end == item.start:
            groups[-1].append(item)
        else:
            groups.append([item])
    named = [group for group in groups if any(item.tag == "NNP" for item in group)]
    return ["".join(item.form for item in group) for group in named]


def _subject(asked: str, room: int) -> str:
    """The question in `room` characters; names and figures that are cut away follow in brackets."""
    if len(asked) <= room:
        return asked
    parts = sentences.split(asked)
    best = max(parts, key=lambda part: (len(entities(part)), part.endswith("?")), default=asked)
    every = entities(asked)
    ends = (cut(best, room // 2), f"…{best[-(room // 2) :].lstrip()}")
    shown = max(ends, key=lambda end: sum(item in end for item in every))
    lost = [item for item in every if item not in shown]
    kept: list[str] = []
    for item in lost:
        if sum(len(one) + 2 for one in [*kept, item]) <= room // 2:
            kept.append(item)
    held = f" ({', '.join(kept)})" if kept else ""
    if shown == ends[0]:
        shown = cut(best, room - len(held))
    return shown + held


def _telling(asked: str, said: str) -> str:
    """The sentence of an answer that holds most of the question and of names and figures."""
    parts: Sequence[str] = [_one_line(part) for part in sentences.split(said)]
    if not parts:
        return ""
    wanted = tokenize.query_terms(asked)
    held = tokenize.terms_of_all(parts)
    scores = [
        (sum(weight for term, weight in wanted.items() if term in terms) + _named(part))
        * max(0.3, 1 - LATER * place)
        for place, (part, terms) in enumerate(zip(parts, held, strict=True))
    ]
    return parts[max(range(len(parts)), key=lambda place: (scores[place], -place))]


def _named(sentence: str) -> float:
    return ENTITY * bool(_NAME.search(sentence) or protected.FIGURE.search(sentence))


def _one_line(text: str) -> str:
    return _SPACE.sub(" ", neutralise(text)).strip()


@functools.cache
def _fixed() -> tuple[str, ...]:
    return tuple(prompts.text(name, language) for name in _FIXED for language in ("ko", "en"))
