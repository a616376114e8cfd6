"""Title, issuer, project, number and date of a document, as far as its beginning says them."""

import re
from collections.abc import Mapping, Sequence

from documents.parsers import facts, kinds, labelled
from documents.parsers.labelled import CLEANED, KEYS, REACH

__all__ = ["REACH", "combined"]

_OPENING_LINES = 12
_LONGEST_TITLE = 80
_MASTHEAD = re.compile(
    r"^[\W\d_]*$|^[\s(<\[「《]*(?:보\s*도\s*자\s*료|참\s*고\s*자\s*료|보도설명|설명자료|공\s*고(?:문|\s*$)|별\s*첨|붙\s*임|"
    r"별\s*지|목\s*차|차\s*례|저작권|공고번호|문서번호|수신|참조|보도시점|배포)|^[^:：]{2,24}\s*[:：]\s|"
    r"제\s*\d[\d\s\-–]*호|^\|"
)
_SENTENCE = re.compile(r"[가-힣]{2}다[.\s]*$|[.!?]\s+\S|[.!?,;:]$")
_NUMBERED = re.compile(
    r"^(?:제?\s*\d+\s*[장절조편]|\d+(?:\.\d+)*[.)]?\s|[IVXⅠ-Ⅻ]+[.)]\s|[가-하][.)]\s)"
)


def combined(
    carried: Mapping[str, str],
    beginning: str,
    headings: Sequence[str] = (),
    *,
    content_type: str = kinds.MARKDOWN,
) -> dict[str, str]:
    """What the file carries, completed by what its beginning says, then by its headings.

    Front matter is written by people and goes before all else, with its own keys. Properties of
    other formats are filled in by programs and stand behind the labels of the text.
    """
    said = labelled.read(beginning)
    if content_type == kinds.MARKDOWN:
        own = _from_own_keys(carried)
        project = {"project_name": own["title"]} if "title" in own else {}
        found = project | said | own
    else:
        found = _properties(carried) | said
        if content_type in {kinds.HWP, kinds.HWPX} and "title" not in said:
            found["title"] = _still_true(found.get("title", ""), beginning)
    if not found.get("title"):
        found["title"] = _headline(beginning, headings, content_type) or _property(carried)
    return {key: value for key, value in found.items() if value}


def _from_own_keys(carried: Mapping[str, str]) -> dict[str, str]:
    """Front matter with its own keys (`소관부처`), and the common ones derived from them."""
    written = {key: facts.value(value) for key, value in carried.items()}
    result = {key: value for key, value in written.items() if value and key not in CLEANED}
    ranked = [(KEYS.get(labelled.squeezed(key), ("", 0)), key) for key in written]
    for (key, _), own in sorted(ranked, key=lambda item: (item[1] != item[0][0], item[0])):
        if key and key not in result and (clean := CLEANED[key](written[own])):
            result[key] = clean
    return result


def _properties(carried: Mapping[str, str]) -> dict[str, str]:
    return {key: CLEANED.get(key, facts.value)(value) for key, value in carried.items()}


def _property(carried: Mapping[str, str]) -> str:
    return facts.title(carried.get("title", ""))


def _still_true(title: str, beginning: str) -> str:
    """The title if a line of the beginning is it.

    Hangul fills it in from the first line that the document, or its template, ever had.
    """
    wanted = labelled.squeezed(title)
    lines = (
        labelled.squeezed(facts.value(line))
        for line in beginning[:REACH].split("\n")
        if len(line) <= facts.LONGEST
    )
    return title if wanted in lines else ""


def _headline(beginning: str, headings: Sequence[str], content_type: str) -> str:
    """The first heading that is not numbered; without one, a first line that looks like a title.

    Not of a PDF: its lines come in the order in which they were drawn.
    """
    for heading in headings:
        if not _NUMBERED.match(heading) and (title := facts.title(heading)):
            return title[:200]
    lines = [line.strip() for line in beginning[:REACH].split("\n") if line.strip()]
    for line in lines[:_OPENING_LINES] if content_type != kinds.PDF else ():
        if len(line) > _LONGEST_TITLE or _SENTENCE.search(line):
            return ""
        if (
            not _MASTHEAD.search(line)
            and not _NUMBERED.match(line)
            and (title := facts.title(line))
        ):
            return title
    return ""
