"""Names as they are compared: what an issuer, a project or a document is called."""

import re
import unicodedata
from collections.abc import Iterator

FIELDS = ("issuer", "project_name", "title")
"""Metadata that names a document, in the order in which a filter is told."""

LONGEST = 200
"""Characters of a name; longer ones name nothing that a question could hold."""

_MARKS = re.compile(r"[\W_]+")
_SEVERAL = re.compile(r"\s*[,;]\s+|\s*;\s*")
_LEGAL_FORM = re.compile(
    r"\((?:주|유|재|사|합)\)|주식회사|유한회사|재단법인|사단법인|\b(?:inc|ltd|llc|corp|gmbh)\b\.?",
    re.IGNORECASE,
)
_LONG_LAW = re.compile(
    r"^(.{2,}?)(?:등?에관한|을위한|를위한)(?=법률|특별|특례)((?:특별|특례|특별조치)(?=법))?법률?((?:시행령|시행규칙)?)$"
)
"""A law that people call by its short name: "고향사랑 기부금에 관한 법률" is 고향사랑기부금법."""
_COUNTRY = re.compile(r"^(?:대한민국|한국)(?=.{5})")


def normalised(name: str) -> str:
    """A name without spaces, marks and case: "전자 조달 (2세대)" and "전자조달2세대" are one."""
    return _MARKS.sub("", unicodedata.normalize("NFKC", name)).casefold()


def called(field: str, value: str) -> dict[str, str]:
    """Every normalised name that a value of one of `FIELDS` gives its document -> as shown.

    Issuers may be several ("법무부, 통계청"), and go by without legal form and "한국", too; laws go
    by their short name.
    """
    shown = list(_issuers(value)) if field == "issuer" else [value.strip()]
    found = {normalised(name): name for name in shown}
    if field == "title" and (law := _LONG_LAW.match(normalised(value))):
        found.setdefault(f"{law[1]}{law[2] or ''}법{law[3]}", value.strip())
    if field == "issuer":
        for name in shown:
            bare = normalised(_LEGAL_FORM.sub(" ", unicodedata.normalize("NFKC", name)))
            found.setdefault(bare, name)
            found.setdefault(_COUNTRY.sub("", bare), name)
    return {
        name: text
        for name, text in found.items()
        if 0 < len(name) <= LONGEST and len(text) <= LONGEST
    }


def _issuers(value: str) -> Iterator[str]:
    for name in _SEVERAL.split(value.strip()):
        if name.strip():
            yield name.strip()
