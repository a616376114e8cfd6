"""Title, issuer, project, number and date of a document, as far as its beginning says them.

Three steps: values are cleaned (what may stand as a title, a name, a date; the rest is nothing),
labels with values are read from the beginning of the text, and both are put together with what the
file itself carries.
"""

import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from itertools import pairwise

from documents.parsers import formats

MAX_VALUE_CHARACTERS = 300
"""Characters of a value that the text gives."""

_TAG = re.compile(
    r"<!--.*?-->|<br\s*/?>|<(sup|sub)>.*?</\1>|</?[a-zA-Z][^<>]{0,200}>", re.IGNORECASE
)
_MARKS = re.compile(r"\\(?=[|*_.#-])|\*\*|~~|__(?=\S)|(?<=\S)__|`|!\[[^\]]*\]\([^)]*\)")
_EDGES = "*•·ㆍ:：,;|_ \t\n"
_PAIRS = (
    ('"', '"'),
    ("'", "'"),
    ("“", "”"),
    ("‘", "’"),
    ("「", "」"),
    ("『", "』"),
    ("《", "》"),
    ("〈", "〉"),
    ("<", ">"),
    ("[", "]"),
)
_SPREAD = re.compile(r"[가-힣](?: [가-힣]){2,}")
_LETTER = re.compile(r"[^\W\d_]")
_BLANK = re.compile(
    r"^(?:[\W_ㅇoO0xX○◯●]*|해당\s*(?:사항\s*)?없음|없음|미정|미상|추후\s*\S*|별도\s*\S*|상동|생략|n/?a|none|tbd|null)$",
    re.IGNORECASE,
)
_PROGRAM = re.compile(
    r"^(?:microsoft\s*(?:word|powerpoint|excel)|powerpoint|워드|한글|hwp|아래한글)\s*[-–:]\s*",
    re.IGNORECASE,
)
_SUFFIX = re.compile(
    r"\.(?:hwpx?|docx?|pdf|pptx?|xlsx?|txt|rtf|odt|indd|ai|qxd|tex|dvi)$", re.IGNORECASE
)
_NO_TITLE = re.compile(
    r"^(?:(?:제목|이름)\s*(?:없음|없는\s*\S*)|무제|빈\s*문서|새\s*문서|문서|보도\s*자료|untitled|no\s*title|document|"
    r"slide|layout|title|template|draft|blank|presentation|powerpoint\s*\S*|normal|doc|제목|서식|양식|표지|"
    r"목차|차례|파일|기본)[\s_\-\d().]*\d*$",
    re.IGNORECASE,
)
_NO_PERSON = re.compile(
    r"^(?:user|owner|admin\w*|administrator|root|guest|test\w*|anonymous|unknown|author|pc|hp|home|samsung|lg|"
    r"microsoft.*|python-docx|사용자|관리자|담당자|작성자|사무관|주무관|서기관|과장|팀장|대리|주임|[a-z]{1,3}\d*|\d+)$",
    re.IGNORECASE,
)
_YEAR_FIRST = re.compile(
    r"(?<!\d)((?:19|20)\d\d)\s*(?:[.\-/년]\s*|\s)(\d{1,2})\s*(?:[.\-/월]\s*|\s)(\d{1,2})(?!\d)"
)
_SOLID = re.compile(r"(?<!\d)((?:19|20)\d\d)(\d\d)(\d\d)(?!\d)")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = rf"({'|'.join(_MONTHS)})[a-z]*\.?"
_DAY, _YEAR = r"(\d{1,2})(?:st|nd|rd|th)?", r"((?:19|20)\d\d)"
_MONTH_FIRST = re.compile(rf"\b{_MONTH}\s+{_DAY},?\s+{_YEAR}\b", re.IGNORECASE)
_DAY_FIRST = re.compile(rf"\b{_DAY}\s+{_MONTH},?\s+{_YEAR}\b", re.IGNORECASE)

MAX_BEGINNING_CHARACTERS = 4_000
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
"""Labels of each key, the ones that count more first; as `normalise_label` writes them."""

_KEYS = {
    label: (key, place) for key, labels in LABELS.items() for place, label in enumerate(labels)
}
_BULLET = r"[\s#>*•○□◦ㅇ❍▶■◇◆●\-–·※▪‣◎]{0,12}(?:\(?[0-9가-하]{1,2}[.)]\s{0,3})?[•○□◦ㅇ■◇◆●·-]?\s?"
_COLON = re.compile(rf"^{_BULLET}([^:：|\n]{{2,24}}?)\s*[:：]\s*(\S[^\n]*)$")
_SPACED = re.compile(
    rf"^{_BULLET}([가-힣]{{3,7}}|제\s?목|[가-힣](?:\s[가-힣]){{2,5}})\s+(\S[^\n]*)$"
)
_GAP = re.compile(r"\s{3,}|\t+|\s+/\s+(?=[가-힣]{2,7}\s*[:：])")
_PHRASE = re.compile(r"(?:다|요|음|임)\.?$|[가-힣]+(?:은|는|을|를)\s")
_RULE = re.compile(r"^[\s|:\-]+$")
_NOTICE = re.compile(
    r"^[\s(<\[「]*([가-힣][가-힣 ]{1,30}?)\s*(공고|고시|훈령|예규|지침|규칙|조례|법률|부령)\s*"
    r"(?:\(.{0,10}\)\s*)?(제\s*\d[\d\s\-–]*\s*호)"
)
_SIGNED = re.compile(
    r"^((?:[가-힣]\s?){2,14}?(?:부|처|청|원|회|시|도|군|구|국|공사|공단|재단|대학교|센터))\s?(?:장\s?관|장|이\s?사\s?장|총\s?장)$"
)
_CONTINUED = re.compile(r"^[A-Za-z][^:\n]{0,60}\.$")

_MAX_LINE_CHARACTERS = 500
_MAX_SPACED_CHARACTERS = 60
"""Characters of a value that only a space parts from its label."""

_LabelValues = dict[str, tuple[tuple[int, int], str]]

_MAX_OPENING_LINES = 12
_MAX_TITLE_CHARACTERS = 80
_MASTHEAD = re.compile(
    r"^[\W\d_]*$|^[\s(<\[「《]*(?:보\s*도\s*자\s*료|참\s*고\s*자\s*료|보도설명|설명자료|공\s*고(?:문|\s*$)|별\s*첨|붙\s*임|"
    r"별\s*지|목\s*차|차\s*례|저작권|공고번호|문서번호|수신|참조|보도시점|배포)|^[^:：]{2,24}\s*[:：]\s|"
    r"제\s*\d[\d\s\-–]*호|^\|"
)
_SENTENCE = re.compile(r"[가-힣]{2}다[.\s]*$|[.!?]\s+\S|[.!?,;:]$")
_NUMBERED = re.compile(
    r"^(?:제?\s*\d+\s*[장절조편]|\d+(?:\.\d+)*[.)]?\s|[IVXⅠ-Ⅻ]+[.)]\s|[가-하][.)]\s)"
)


def derive_metadata(
    carried: Mapping[str, str],
    beginning: str,
    headings: Sequence[str] = (),
    *,
    content_type: str = formats.MARKDOWN,
) -> dict[str, str]:
    """What the file carries, completed by what its beginning says, then by its headings.

    Front matter is written by people and goes before all else, with its own keys. Properties of
    other formats are filled in by programs and stand behind the labels of the text.
    """
    said = read_labels(beginning)
    if content_type == formats.MARKDOWN:
        own = _read_front_matter(carried)
        project = {"project_name": own["title"]} if "title" in own else {}
        found = project | said | own
    else:
        found = _clean_properties(carried) | said
        if content_type in {formats.HWP, formats.HWPX} and "title" not in said:
            found["title"] = _keep_true_title(found.get("title", ""), beginning)
    if not found.get("title"):
        found["title"] = _find_headline(beginning, headings, content_type) or _clean_property(
            carried
        )
    return {key: value for key, value in found.items() if value}


def _read_front_matter(carried: Mapping[str, str]) -> dict[str, str]:
    """Front matter with its own keys (`소관부처`), and the common ones derived from them."""
    written = {key: clean_value(value) for key, value in carried.items()}
    result = {key: value for key, value in written.items() if value and key not in _CLEANERS}
    ranked = [(_KEYS.get(normalise_label(key), ("", 0)), key) for key in written]
    for (key, _), own in sorted(ranked, key=lambda item: (item[1] != item[0][0], item[0])):
        if key and key not in result and (clean := _CLEANERS[key](written[own])):
            result[key] = clean
    return result


def _clean_properties(carried: Mapping[str, str]) -> dict[str, str]:
    return {key: _CLEANERS.get(key, clean_value)(value) for key, value in carried.items()}


def _clean_property(carried: Mapping[str, str]) -> str:
    return clean_title(carried.get("title", ""))


def _keep_true_title(title: str, beginning: str) -> str:
    """The title if a line of the beginning is it.

    Hangul fills it in from the first line that the document, or its template, ever had.
    """
    wanted = normalise_label(title)
    lines = (
        normalise_label(clean_value(line))
        for line in beginning[:MAX_BEGINNING_CHARACTERS].split("\n")
        if len(line) <= MAX_VALUE_CHARACTERS
    )
    return title if wanted in lines else ""


def _find_headline(beginning: str, headings: Sequence[str], content_type: str) -> str:
    """The first heading that is not numbered; without one, a first line that looks like a title.

    Not of a PDF: its lines come in the order in which they were drawn.
    """
    for heading in headings:
        if not _NUMBERED.match(heading) and (title := clean_title(heading)):
            return title[:200]
    lines = [
        line.strip() for line in beginning[:MAX_BEGINNING_CHARACTERS].split("\n") if line.strip()
    ]
    for line in lines[:_MAX_OPENING_LINES] if content_type != formats.PDF else ():
        if len(line) > _MAX_TITLE_CHARACTERS or _SENTENCE.search(line):
            return ""
        if (
            not _MASTHEAD.search(line)
            and not _NUMBERED.match(line)
            and (title := clean_title(line))
        ):
            return title
    return ""


def clean_value(text: str) -> str:
    """The text on one line without markup, quotes around it and placeholders; may be empty."""
    text = _MARKS.sub("", _TAG.sub(lambda tag: "" if tag[1] else " ", html.unescape(text)))
    text = " ".join(text.split()).strip(_EDGES)
    for opening, closing in _PAIRS:
        if text.startswith(opening) and text.find(closing) == len(text) - 1:
            text = text[1:-1].strip(_EDGES)
    if _SPREAD.fullmatch(text):  # "통 합 재 정"
        text = text.replace(" ", "")
    return "" if _BLANK.match(text) else text[:MAX_VALUE_CHARACTERS]


def clean_title(text: str) -> str:
    """A title, without what programs write around it; empty for one that names nothing."""
    text = _SUFFIX.sub("", _PROGRAM.sub("", clean_value(text))).strip()
    letters = len(_LETTER.findall(text))
    return "" if letters < 2 or _NO_TITLE.match(text) else text


def clean_person(text: str) -> str:
    """A person's name; empty for accounts and job titles."""
    text = clean_value(text)
    return "" if _NO_PERSON.match(text) or not _LETTER.search(text) else text


def clean_name(text: str) -> str:
    """An organisation, a project, a department: anything with two letters."""
    text = clean_value(text)
    return text if len(_LETTER.findall(text)) > 1 else ""


def clean_number(text: str) -> str:
    """A notice number as authorities write it; contains digits."""
    text = clean_value(text)
    return text if len(text) <= 60 and any(character.isdigit() for character in text) else ""


def find_date(text: str) -> str:
    """The first date in the text as YYYY-MM-DD; empty without a plain one."""
    for pattern, order in (
        (_YEAR_FIRST, (1, 2, 3)),
        (_SOLID, (1, 2, 3)),
        (_MONTH_FIRST, (3, 1, 2)),
        (_DAY_FIRST, (3, 2, 1)),
    ):
        if match := pattern.search(text):
            return _to_iso(*(match[group] for group in order))
    return ""


def _to_iso(year: str, month: str, at: str) -> str:
    if not month.isdigit():
        month = str(_MONTHS.index(month[:3].lower()) + 1)
    try:
        return date(int(year), int(month), int(at)).isoformat()
    except ValueError:
        return ""


_CLEANERS: Mapping[str, Callable[[str], str]] = {
    "issuer": clean_name,
    "project_name": clean_name,
    "title": clean_title,
    "author": clean_person,
    "department": clean_name,
    "number": clean_number,
    "date": find_date,
}


def read_labels(text: str) -> dict[str, str]:
    """Key -> cleaned value. Labels count by their place in `LABELS`, then the first in the text.

    A label with a colon or in a table goes before one with a space, that before what else is seen.
    """
    found: _LabelValues = {}
    lines = [
        line[:_MAX_LINE_CHARACTERS].strip() for line in text[:MAX_BEGINNING_CHARACTERS].split("\n")
    ]
    for form, (label, value) in _find_pairs(lines):
        key, place = _KEYS.get(normalise_label(label), ("", 0))
        if key and normalise_label(value) not in _KEYS:
            _keep_best(found, key, (form, place), value)
    for line in lines:
        _read_unlabelled(found, line)
    return {key: value for key, (_, value) in found.items()}


def normalise_label(label: str) -> str:
    """A label without the spaces and marks that people set into it ("사 업 명")."""
    return re.sub(r"[\s*_\-()\[\]<>【】/.]|<br>", "", label).lower()


def _keep_best(found: _LabelValues, key: str, rank: tuple[int, int], value: str) -> None:
    clean = _CLEANERS[key](value)
    if clean and (key not in found or rank < found[key][0]):
        found[key] = rank, clean


def _find_pairs(lines: Sequence[str]) -> Iterator[tuple[int, tuple[str, str]]]:
    """Form (0 certain, 1 by a space alone) and label with value."""
    for at, line in enumerate(lines):
        if line.startswith("|"):
            yield from ((0, pair) for pair in _pair_cells(lines, at))
            continue
        parts = _GAP.split(line)
        for part in parts if all(map(_COLON.match, parts)) else [line]:
            match = _COLON.match(part)
            if match and normalise_label(match[1]) in _KEYS:
                yield 0, (match[1], _join_broken_value(match[2], lines[at + 1 : at + 2]))
            elif (match := _SPACED.match(part)) and not _PHRASE.search(match[2]):
                yield 1, (match[1], match[2] if len(match[2]) <= _MAX_SPACED_CHARACTERS else "")


def _join_broken_value(value: str, after: Sequence[str]) -> str:
    """An English value with its second line, where a narrow column broke it."""
    broken = value.isascii() and not value.endswith(".") and after and _CONTINUED.match(after[0])
    return f"{value} {after[0].rstrip('.')}" if broken else value


def _pair_cells(lines: Sequence[str], at: int) -> Iterator[tuple[str, str]]:
    """Pairs of a row: a label and the next cell, or the cell below it where labels head columns."""
    cells = _split_row(lines[at])
    labels = [normalise_label(cell) in _KEYS for cell in cells]
    below = next((line for line in lines[at + 1 : at + 3] if not _RULE.match(line)), "")
    filled = [place for place, cell in enumerate(cells) if cell]
    if sum(labels) > 1 and all(labels[place] for place in filled) and below.startswith("|"):
        yield from zip(cells, _split_row(below), strict=False)
        return
    for place, after in pairwise(filled):
        if labels[place] and not labels[after]:
            yield cells[place], cells[after]


def _split_row(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def _read_unlabelled(found: _LabelValues, line: str) -> None:
    """A line "인사혁신처 공고 제2023-311호", a signature "인 사 혁 신 처 장", a date alone."""
    if match := _NOTICE.match(line):
        _keep_best(found, "issuer", (2, 0), match[1])
        _keep_best(found, "number", (2, 0), re.sub(r"\s+", "", match[3]))
    elif match := _SIGNED.match(line.strip()):
        _keep_best(found, "issuer", (3, 0), re.sub(r"\s+", "", match[1]))
    if len(line) <= 30 and not _PHRASE.search(line):
        _keep_best(found, "date", (3, 0), line)
