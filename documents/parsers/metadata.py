"""Title, issuer, project name and date of a document, as far as its beginning says them plainly."""

import re
from collections.abc import Iterator, Mapping

REACH = 3_000
"""How far into the text labels are looked for, in characters."""

LABELS = {
    "issuer": (
        "발주기관", "발주처", "발주부서", "수요기관", "공고기관", "소관부처", "발행기관",
        "주관기관", "시행기관", "issuer", "issuedby", "agency", "client", "contractingauthority",
    ),
    "project_name": (
        "사업명", "공고명", "입찰공고명", "용역명", "과제명", "공사명", "project", "projectname",
    ),
    "title": ("제목", "문서명", "문서제목", "title"),
    "author": ("작성자", "저자", "담당자", "author"),
    "date": (
        "공고일", "공고일자", "작성일", "작성일자", "공포일자", "시행일자", "등록일", "발행일",
        "date",
    ),
}  # fmt: skip
_KEYS = {label: key for key, labels in LABELS.items() for label in labels}
_BULLET = r"[\s#>*•○□◦ㅇ❍▶■●\-–·※]*(?:[0-9가-하]{1,2}[.)]\s*)?"
_LINE = re.compile(rf"^{_BULLET}([^:：|\n]{{2,24}}?)\s*[:：]\s*(\S[^\n]*)$")
_SHORTEST_TITLE = 3
_QUOTES = "\"'“”‘’「」『』*` "


def combined(carried: Mapping[str, str], beginning: str) -> dict[str, str]:
    """What the file carries, completed by what its beginning says."""
    result = dict(carried)
    for label, value in _labelled(beginning[:REACH]):
        key = _KEYS.get(_squeezed(label))
        if key and value and key not in result:
            result[key] = value[:300]
    _from_own_keys(result)
    if len(result.get("title", "xxx")) < _SHORTEST_TITLE:  # "1", "3": left behind by an editor
        del result["title"]
    if "project_name" not in result and "title" in result:
        result["project_name"] = result["title"]
    return result


def _from_own_keys(result: dict[str, str]) -> None:
    """Front matter keeps its own keys (`소관부처`); the common ones are derived from them."""
    for key, labels in LABELS.items():
        for name in list(result):
            if key not in result and _squeezed(name) in labels:
                result[key] = result[name]


def _labelled(text: str) -> Iterator[tuple[str, str]]:
    """Pairs of "label : value" lines and of table rows."""
    for line in text.split("\n"):
        if line.startswith("|"):
            cells = [cell.strip(_QUOTES) for cell in line.strip("|").split("|")]
            yield from zip(cells[::2], cells[1::2], strict=False)
        elif match := _LINE.match(line):
            yield match[1], match[2].strip(_QUOTES)


def _squeezed(label: str) -> str:
    """A label without the spaces and marks that people set into it ("사 업 명")."""
    return re.sub(r"[\s*_\-()]", "", label).lower()
