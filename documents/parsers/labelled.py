"""What the beginning of a text says of its document: labels with values, numbers, signatures."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from documents.parsers import facts

REACH = 4_000
"""How far into the text is looked, in characters."""

LABELS: Mapping[str, tuple[str, ...]] = {
    "issuer": (
        "발주기관", "발주기관명", "발주처", "수요기관", "수요기관명", "발주자", "공고기관",
        "공고기관명", "소관부처", "소관기관", "발행기관", "발행처", "주관기관", "시행기관",
        "전담기관", "작성기관", "배포기관", "제정기관", "발신", "발신기관", "기관명",
        "issuer", "issuedby", "issuingauthority", "contractingauthority", "agency", "ministry",
        "publisher", "organization", "organisation", "client",
    ),
    "project_name": (
        "사업명", "용역명", "공사명", "과제명", "연구과제명", "프로젝트명", "입찰공고명", "공고명",
        "공고건명", "입찰건명", "계약건명", "계약명", "건명", "구매명", "물품명", "project",
        "projectname", "projecttitle",
    ),
    "title": ("제목", "문서명", "문서제목", "자료명", "법령명", "규정명", "title", "subject"),
    "author": ("작성자", "저자", "집필자", "연구책임자", "author", "authors", "preparedby"),
    "department": (
        "담당부서", "소관부서", "발주부서", "수요부서", "주관부서", "작성부서", "부서", "부서명",
        "담당과", "department", "division",
    ),
    "number": (
        "공고번호", "입찰공고번호", "문서번호", "고시번호", "공포번호", "사업번호", "과제번호",
        "계약번호", "관리번호", "docketno", "noticenumber", "documentnumber", "referencenumber",
    ),
    "date": (
        "공고일", "공고일자", "공고일시", "공고게시일시", "작성일", "작성일자", "공포일자",
        "공포일", "시행일자", "시행일", "발행일", "발행일자", "배포일", "배포일시", "보도시점",
        "보도일시", "등록일", "등록일자", "제정일", "개정일",
        "date", "published", "publicationdate", "issuedate",
    ),
}  # fmt: skip
"""Labels of each key, the ones that count more first; as `squeezed` writes them."""

CLEANED: Mapping[str, Callable[[str], str]] = {
    "issuer": facts.name,
    "project_name": facts.name,
    "title": facts.title,
    "author": facts.person,
    "department": facts.name,
    "number": facts.number,
    "date": facts.day,
}

KEYS = {label: (key, place) for key, labels in LABELS.items() for place, label in enumerate(labels)}
_BULLET = r"[\s#>*•○□◦ㅇ❍▶■◇◆●\-–·※▪‣◎]{0,12}(?:\(?[0-9가-하]{1,2}[.)]\s{0,3})?[•○□◦ㅇ■◇◆●·-]?\s?"
_COLON = re.compile(rf"^{_BULLET}([^:：|\n]{{2,24}}?)\s*[:：]\s*(\S[^\n]*)$")
_SPACED = re.compile(
    rf"^{_BULLET}([가-힣]{{3,7}}|제\s?목|[가-힣](?:\s[가-힣]){{2,5}})\s+(\S[^\n]*)$"
)
_GAP = re.compile(r"\s{3,}|\t+|\s+/\s+(?=[가-힣]{2,7}\s*[:：])")
_SENTENCE = re.compile(r"(?:다|요|음|임)\.?$|[가-힣]+(?:은|는|을|를)\s")
_RULE = re.compile(r"^[\s|:\-]+$")
_NOTICE = re.compile(
    r"^[\s(<\[「]*([가-힣][가-힣 ]{1,30}?)\s*(공고|고시|훈령|예규|지침|규칙|조례|법률|부령)\s*"
    r"(?:\(.{0,10}\)\s*)?(제\s*\d[\d\s\-–]*\s*호)"
)
_SIGNED = re.compile(
    r"^((?:[가-힣]\s?){2,14}?(?:부|처|청|원|회|시|도|군|구|국|공사|공단|재단|대학교|센터))\s?(?:장\s?관|장|이\s?사\s?장|총\s?장)$"
)
_CONTINUED = re.compile(r"^[A-Za-z][^:\n]{0,60}\.$")

_LONGEST_LINE = 500
_SHORT = 60
"""Characters of a value that only a space parts from its label."""

Found = dict[str, tuple[tuple[int, int], str]]


def read(text: str) -> dict[str, str]:
    """Key -> cleaned value. Labels count by their place in `LABELS`, then the first in the text.

    A label with a colon or in a table goes before one with a space, that before what else is seen.
    """
    found: Found = {}
    lines = [line[:_LONGEST_LINE].strip() for line in text[:REACH].split("\n")]
    for form, (label, value) in _pairs(lines):
        key, place = KEYS.get(squeezed(label), ("", 0))
        if key and squeezed(value) not in KEYS:
            _keep(found, key, (form, place), value)
    for line in lines:
        _unlabelled(found, line)
    return {key: value for key, (_, value) in found.items()}


def squeezed(label: str) -> str:
    """A label without the spaces and marks that people set into it ("사 업 명")."""
    return re.sub(r"[\s*_\-()\[\]<>【】/.]|<br>", "", label).lower()


def _keep(found: Found, key: str, rank: tuple[int, int], value: str) -> None:
    clean = CLEANED[key](value)
    if clean and (key not in found or rank < found[key][0]):
        found[key] = rank, clean


def _pairs(lines: Sequence[str]) -> Iterator[tuple[int, tuple[str, str]]]:
    """Form (0 certain, 1 by a space alone) and label with value."""
    for at, line in enumerate(lines):
        if line.startswith("|"):
            yield from ((0, pair) for pair in _cells(lines, at))
            continue
        parts = _GAP.split(line)
        for part in parts if all(map(_COLON.match, parts)) else [line]:
            match = _COLON.match(part)
            if match and squeezed(match[1]) in KEYS:
                yield 0, (match[1], _whole(match[2], lines[at + 1 : at + 2]))
            elif (match := _SPACED.match(part)) and not _SENTENCE.search(match[2]):
                yield 1, (match[1], match[2] if len(match[2]) <= _SHORT else "")


def _whole(value: str, after: Sequence[str]) -> str:
    """An English value with its second line, where a narrow column broke it."""
    broken = value.isascii() and not value.endswith(".") and after and _CONTINUED.match(after[0])
    return f"{value} {after[0].rstrip('.')}" if broken else value


def _cells(lines: Sequence[str], at: int) -> Iterator[tuple[str, str]]:
    """Pairs of a row: a label and the next cell, or the cell below it where labels head columns."""
    cells = _row(lines[at])
    labels = [squeezed(cell) in KEYS for cell in cells]
    below = next((line for line in lines[at + 1 : at + 3] if not _RULE.match(line)), "")
    filled = [place for place, cell in enumerate(cells) if cell]
    if sum(labels) > 1 and all(labels[place] for place in filled) and below.startswith("|"):
        yield from zip(cells, _row(below), strict=False)
        return
    for place, after in pairwise(filled):
        if labels[place] and not labels[after]:
            yield cells[place], cells[after]


def _row(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def _unlabelled(found: Found, line: str) -> None:
    """A line "인사혁신처 공고 제2023-311호", a signature "인 사 혁 신 처 장", a date alone."""
    if match := _NOTICE.match(line):
        _keep(found, "issuer", (2, 0), match[1])
        _keep(found, "number", (2, 0), re.sub(r"\s+", "", match[3]))
    elif match := _SIGNED.match(line.strip()):
        _keep(found, "issuer", (3, 0), re.sub(r"\s+", "", match[1]))
    if len(line) <= 30 and not _SENTENCE.search(line):
        _keep(found, "date", (3, 0), line)
