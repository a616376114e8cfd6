"""Title, issuer, project, number and date of a document, from its metadata and first lines.

Values are cleaned (whatever cannot be a title, name or date becomes empty), labels with their
values are read from the beginning of the text, and both are merged with the file's own metadata.
"""

import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from itertools import pairwise

from documents.parsers import formats

MAX_VALUE_CHARACTERS = 300
"""Characters of a value read from the text."""

_TAG = re.compile(
    r"<!--.*?-->|<(sup|sub)>.*?</\1>|"
    r"</?(?:[ovw]:\w+|a|b|big|br|center|code|del|div|em|font|h[1-6]|i|img|ins|kbd|li|mark|ol|p|s|small|"
    r"span|strong|sub|sup|table|td|th|tr|u|ul)(?:\s[^<>]{0,200})?/?>",
    re.IGNORECASE,
)
"""Markup; other words in angle brackets are text: "Rc<T>"."""
_MARKDOWN = re.compile(r"\\(?=[|*_.#-])|\*\*|~~|__(?=\S)|(?<=\S)__|`|!\[[^\]]*\]\([^)]*\)")
_EDGE_CHARACTERS = "*•·ㆍ:：,;|_ \t\n"
_QUOTES = (
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
_SPACED_LETTERS = re.compile(r"[가-힣](?: [가-힣]){2,}")
_LETTER = re.compile(r"[^\W\d_]")
_PLACEHOLDER = re.compile(
    r"^(?:[\W_ㅇoO0xX○◯●]*|해당\s*(?:사항\s*)?없음|없음|미정|미상|추후\s*\S*|별도\s*\S*|상동|생략|n/?a|none|tbd|null)$",
    re.IGNORECASE,
)
_PROGRAM_PREFIX = re.compile(
    r"^(?:microsoft\s*(?:word|powerpoint|excel)|powerpoint|워드|한글|hwp|아래한글)\s*[-–:]\s*",
    re.IGNORECASE,
)
_FILE_SUFFIX = re.compile(
    r"\.(?:hwpx?|docx?|pdf|pptx?|xlsx?|txt|rtf|odt|indd|ai|qxd|tex|dvi)$", re.IGNORECASE
)
_PLACEHOLDER_TITLE = re.compile(
    r"^(?:(?:제목|이름)\s*(?:없음|없는\s*\S*)|무제|빈\s*문서|새\s*문서|문서|보도\s*자료|untitled|no\s*title|document|"
    r"slide|layout|title|template|draft|blank|presentation|powerpoint\s*\S*|normal|doc|제목|서식|양식|표지|"
    r"목차|차례|파일|기본)[\s_\-\d().]*\d*$",
    re.IGNORECASE,
)
_ACCOUNT_NAME = re.compile(
    r"^(?:user|owner|admin\w*|administrator|root|guest|test\w*|anonymous|unknown|author|pc|hp|home|samsung|lg|"
    r"microsoft.*|python-docx|사용자|관리자|담당자|작성자|사무관|주무관|서기관|과장|팀장|대리|주임|[a-z]{1,3}\d*|\d+)$",
    re.IGNORECASE,
)
_YEAR_FIRST = re.compile(
    r"(?<!\d)((?:19|20)\d\d)\s*(?:[.\-/년]\s*|\s)(\d{1,2})\s*(?:[.\-/월]\s*|\s)(\d{1,2})(?!\d)"
)
_COMPACT_DATE = re.compile(r"(?<!\d)((?:19|20)\d\d)(\d\d)(\d\d)(?!\d)")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH = rf"({'|'.join(_MONTHS)})[a-z]*\.?"
_DAY, _YEAR = r"(\d{1,2})(?:st|nd|rd|th)?", r"((?:19|20)\d\d)"
_MONTH_FIRST = re.compile(rf"\b{_MONTH}\s+{_DAY},?\s+{_YEAR}\b", re.IGNORECASE)
_DAY_FIRST = re.compile(rf"\b{_DAY}\s+{_MONTH},?\s+{_YEAR}\b", re.IGNORECASE)

MAX_BEGINNING_CHARACTERS = 4_000
"""Characters of the text that are searched for metadata."""

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
"""Labels of each key by priority, in the form that `normalise_label` returns."""

_KEY_BY_LABEL = {
    label: (key, place) for key, labels in LABELS.items() for place, label in enumerate(labels)
}
_BULLET = r"[\s#>*•○□◦ㅇ❍▶■◇◆●\-–·※▪‣◎]{0,12}(?:\(?[0-9가-하]{1,2}[.)]\s{0,3})?[•○□◦ㅇ■◇◆●·-]?\s?"
_COLON_LABEL = re.compile(rf"^{_BULLET}([^:：|\n]{{2,24}}?)\s*[:：]\s*(\S[^\n]*)$")
_SPACE_LABEL = re.compile(
    rf"^{_BULLET}([가-힣]{{3,7}}|제\s?목|[가-힣](?:\s[가-힣]){{2,5}})\s+(\S[^\n]*)$"
)
_PAIR_SEPARATOR = re.compile(r"\s{3,}|\t+|\s+/\s+(?=[가-힣]{2,7}\s*[:：])")
_PHRASE = re.compile(r"(?:다|요|음|임)\.?$|[가-힣]+(?:은|는|을|를)\s")
_TABLE_RULE = re.compile(r"^[\s|:\-]+$")
_NOTICE = re.compile(
    r"^[\s(<\[「]*([가-힣][가-힣 ]{1,30}?)\s*(공고|고시|훈령|예규|지침|규칙|조례|법률|부령)\s*"
    r"(?:\(.{0,10}\)\s*)?(제\s*\d[\d\s\-–]*\s*호)"
)
_SIGNATURE = re.compile(
    r"^((?:[가-힣]\s?){2,14}?(?:부|처|청|원|회|시|도|군|구|국|공사|공단|재단|대학교|센터))\s?(?:장\s?관|장|이\s?사\s?장|총\s?장)$"
)
_CONTINUATION = re.compile(r"^[A-Za-z][^:\n]{0,60}\.$")

_MAX_LINE_CHARACTERS = 500
_MAX_SPACED_CHARACTERS = 60
"""Characters of a value that only a space separates from its label."""

_RankedValues = dict[str, tuple[tuple[int, int], str]]

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
    file_metadata: Mapping[str, str],
    beginning: str,
    headings: Sequence[str] = (),
    *,
    content_type: str = formats.MARKDOWN,
) -> dict[str, str]:
    """Merge the file's metadata with labels from its beginning; titles may come from headings.

    Front matter is written by people, so it overrides the labels and keeps its own keys. Properties
    of other formats are filled in by programs, so labels override them.
    """
    labelled = read_labels(beginning)
    if content_type == formats.MARKDOWN:
        front_matter = _read_front_matter(file_metadata)
        project = {"project_name": front_matter["title"]} if "title" in front_matter else {}
        fields = project | labelled | front_matter
    else:
        fields = _clean_properties(file_metadata) | labelled
        if content_type in {formats.HWP, formats.HWPX} and "title" not in labelled:
            fields["title"] = _keep_visible_title(fields.get("title", ""), beginning)
    if not fields.get("title"):
        headline = _find_headline(beginning, headings, content_type)
        fields["title"] = headline or clean_title(file_metadata.get("title", ""))
    return {key: value for key, value in fields.items() if value}


def _read_front_matter(file_metadata: Mapping[str, str]) -> dict[str, str]:
    """Front matter under its own keys (`소관부처`) and under the standard keys they map to."""
    cleaned = {key: clean_value(value) for key, value in file_metadata.items()}
    result = {key: value for key, value in cleaned.items() if value and key not in _CLEANERS}
    ranked = [(_KEY_BY_LABEL.get(normalise_label(key), ("", 0)), key) for key in cleaned]
    for (key, _), original in sorted(ranked, key=lambda item: (item[1] != item[0][0], item[0])):
        if key and key not in result and (clean := _CLEANERS[key](cleaned[original])):
            result[key] = clean
    return result


def _clean_properties(file_metadata: Mapping[str, str]) -> dict[str, str]:
    return {key: _CLEANERS.get(key, clean_value)(value) for key, value in file_metadata.items()}


def _keep_visible_title(title: str, beginning: str) -> str:
    """The title if it is also a line of the beginning, else "".

    Hangul fills it in from the first line that the document, or its template, ever had.
    """
    label = normalise_label(title)
    lines = (
        normalise_label(clean_value(line))
        for line in beginning[:MAX_BEGINNING_CHARACTERS].split("\n")
        if len(line) <= MAX_VALUE_CHARACTERS
    )
    return title if label in lines else ""


def _find_headline(beginning: str, headings: Sequence[str], content_type: str) -> str:
    """The first heading without a number; failing that, an opening line that looks like a title.

    Lines of a PDF are not considered: they come in drawing order.
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
    """The text on one line, without markup and enclosing quotes; "" for a placeholder."""
    text = _MARKDOWN.sub("", _TAG.sub(lambda tag: "" if tag[1] else " ", html.unescape(text)))
    text = " ".join(text.split()).strip(_EDGE_CHARACTERS)
    for opening, closing in _QUOTES:
        if text.startswith(opening) and text.find(closing) == len(text) - 1:
            text = text[1:-1].strip(_EDGE_CHARACTERS)
    if _SPACED_LETTERS.fullmatch(text):  # "통 합 재 정"
        text = text.replace(" ", "")
    return "" if _PLACEHOLDER.match(text) else text[:MAX_VALUE_CHARACTERS]


def clean_title(text: str) -> str:
    """A title without a program's prefix and file suffix; "" for a placeholder such as Untitled."""
    text = _FILE_SUFFIX.sub("", _PROGRAM_PREFIX.sub("", clean_value(text))).strip()
    letters = len(_LETTER.findall(text))
    return "" if letters < 2 or _PLACEHOLDER_TITLE.match(text) else text


def clean_person(text: str) -> str:
    """A person's name; "" for account names and job titles."""
    text = clean_value(text)
    return "" if _ACCOUNT_NAME.match(text) or not _LETTER.search(text) else text


def clean_name(text: str) -> str:
    """The name of an organisation, project or department; "" below two letters."""
    text = clean_value(text)
    return text if len(_LETTER.findall(text)) > 1 else ""


def clean_number(text: str) -> str:
    """A notice number as authorities write it; "" without digits or if too long."""
    text = clean_value(text)
    return text if len(text) <= 60 and any(character.isdigit() for character in text) else ""


def find_date(text: str) -> str:
    """The first date in the text as YYYY-MM-DD; "" if there is none, or it is invalid."""
    for pattern, order in (
        (_YEAR_FIRST, (1, 2, 3)),
        (_COMPACT_DATE, (1, 2, 3)),
        (_MONTH_FIRST, (3, 1, 2)),
        (_DAY_FIRST, (3, 2, 1)),
    ):
        if match := pattern.search(text):
            return _to_iso(*(match[group] for group in order))
    return ""


def _to_iso(year: str, month: str, day: str) -> str:
    if not month.isdigit():
        month = str(_MONTHS.index(month[:3].lower()) + 1)
    try:
        return date(int(year), int(month), int(day)).isoformat()
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
    """Read labels and their values from a text: key -> cleaned value.

    The most certain form wins (colon or table, then space, then no label at all), then the label
    that comes first in `LABELS`, then the first in the text.
    """
    ranked: _RankedValues = {}
    lines = [
        line[:_MAX_LINE_CHARACTERS].strip() for line in text[:MAX_BEGINNING_CHARACTERS].split("\n")
    ]
    for precision, (label, value) in _find_pairs(lines):
        key, priority = _KEY_BY_LABEL.get(normalise_label(label), ("", 0))
        if key and normalise_label(value) not in _KEY_BY_LABEL:
            _keep_best(ranked, key, (precision, priority), value)
    for line in lines:
        _read_unlabelled(ranked, line)
    return {key: value for key, (_, value) in ranked.items()}


def normalise_label(label: str) -> str:
    """A label in lower case, without spaces and punctuation ("사 업 명")."""
    return re.sub(r"[\s*_\-()\[\]<>【】/.]|<br>", "", label).lower()


def _keep_best(ranked: _RankedValues, key: str, rank: tuple[int, int], value: str) -> None:
    cleaned = _CLEANERS[key](value)
    if cleaned and (key not in ranked or rank < ranked[key][0]):
        ranked[key] = rank, cleaned


def _find_pairs(lines: Sequence[str]) -> Iterator[tuple[int, tuple[str, str]]]:
    """Each label with its value, and how certain the pair is: 0 certain, 1 only a space between."""
    for index, line in enumerate(lines):
        if line.startswith("|"):
            yield from ((0, pair) for pair in _pair_cells(lines, index))
            continue
        parts = _PAIR_SEPARATOR.split(line)
        for part in parts if all(map(_COLON_LABEL.match, parts)) else [line]:
            match = _COLON_LABEL.match(part)
            if match and normalise_label(match[1]) in _KEY_BY_LABEL:
                yield 0, (match[1], _join_broken_value(match[2], lines[index + 1 : index + 2]))
            elif (match := _SPACE_LABEL.match(part)) and not _PHRASE.search(match[2]):
                yield 1, (match[1], match[2] if len(match[2]) <= _MAX_SPACED_CHARACTERS else "")


def _join_broken_value(value: str, next_lines: Sequence[str]) -> str:
    """An English value, joined with its next line if a narrow column broke it."""
    continues = (
        value.isascii()
        and not value.endswith(".")
        and next_lines
        and _CONTINUATION.match(next_lines[0])
    )
    return f"{value} {next_lines[0].rstrip('.')}" if continues else value


def _pair_cells(lines: Sequence[str], index: int) -> Iterator[tuple[str, str]]:
    """Labels of a table row with the next cell, or the cell below if all cells are labels."""
    cells = _split_row(lines[index])
    is_label = [normalise_label(cell) in _KEY_BY_LABEL for cell in cells]
    next_row = next(
        (line for line in lines[index + 1 : index + 3] if not _TABLE_RULE.match(line)), ""
    )
    filled_columns = [column for column, cell in enumerate(cells) if cell]
    if (
        sum(is_label) > 1
        and all(is_label[column] for column in filled_columns)
        and next_row.startswith("|")
    ):
        yield from zip(cells, _split_row(next_row), strict=False)
        return
    for column, next_column in pairwise(filled_columns):
        if is_label[column] and not is_label[next_column]:
            yield cells[column], cells[next_column]


def _split_row(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def _read_unlabelled(ranked: _RankedValues, line: str) -> None:
    """Read "인사혁신처 공고 제2023-311호", a signature "인 사 혁 신 처 장", or a bare date."""
    if match := _NOTICE.match(line):
        _keep_best(ranked, "issuer", (2, 0), match[1])
        _keep_best(ranked, "number", (2, 0), re.sub(r"\s+", "", match[3]))
    elif match := _SIGNATURE.match(line.strip()):
        _keep_best(ranked, "issuer", (3, 0), re.sub(r"\s+", "", match[1]))
    if len(line) <= 30 and not _PHRASE.search(line):
        _keep_best(ranked, "date", (3, 0), line)
