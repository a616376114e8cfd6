"""Values of metadata: what may stand as a title, a name, a date; the rest is nothing."""

import html
import re
from datetime import date

LONGEST = 300
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


def value(text: str) -> str:
    """The text on one line without markup, quotes around it and placeholders; may be empty."""
    text = _MARKS.sub("", _TAG.sub(lambda tag: "" if tag[1] else " ", html.unescape(text)))
    text = " ".join(text.split()).strip(_EDGES)
    for opening, closing in _PAIRS:
        if text.startswith(opening) and text.find(closing) == len(text) - 1:
            text = text[1:-1].strip(_EDGES)
    if _SPREAD.fullmatch(text):  # "통 합 재 정"
        text = text.replace(" ", "")
    return "" if _BLANK.match(text) else text[:LONGEST]


def title(text: str) -> str:
    """A title, without what programs write around it; empty for one that names nothing."""
    text = _SUFFIX.sub("", _PROGRAM.sub("", value(text))).strip()
    letters = len(_LETTER.findall(text))
    return "" if letters < 2 or _NO_TITLE.match(text) else text


def person(text: str) -> str:
    """A person's name; empty for accounts and job titles."""
    text = value(text)
    return "" if _NO_PERSON.match(text) or not _LETTER.search(text) else text


def name(text: str) -> str:
    """An organisation, a project, a department: anything with two letters."""
    text = value(text)
    return text if len(_LETTER.findall(text)) > 1 else ""


def number(text: str) -> str:
    """A number as authorities give it: digits stand in it."""
    text = value(text)
    return text if len(text) <= 60 and any(character.isdigit() for character in text) else ""


def day(text: str) -> str:
    """The first date in the text as YYYY-MM-DD; empty without a plain one."""
    for pattern, order in (
        (_YEAR_FIRST, (1, 2, 3)),
        (_SOLID, (1, 2, 3)),
        (_MONTH_FIRST, (3, 1, 2)),
        (_DAY_FIRST, (3, 2, 1)),
    ):
        if match := pattern.search(text):
            return _iso(*(match[group] for group in order))
    return ""


def _iso(year: str, month: str, at: str) -> str:
    if not month.isdigit():
        month = str(_MONTHS.index(month[:3].lower()) + 1)
    try:
        return date(int(year), int(month), int(at)).isoformat()
    except ValueError:
        return ""
