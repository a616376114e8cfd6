"""One form of a text for index, question and check; as a prompt shows it; sentences, language.

A PDF prints "AES‑256" with U+2011 and breaks its lines anywhere; people type neither. Stored text
stays as it is printed: offsets count it.
"""

import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise

from rag.lexicon import load_words
from rag.tokenize.korean import is_fitting_particle
from rag.types import Kind

MAX_WORD_CHARACTERS = 256
"""Characters without a space in between: what is longer costs the analyser too much."""
MAX_PILE_SIGNS = 32
"""Signs in a row: composing marks takes the square of their number, and leaders tell nothing."""
MAX_REMEMBERED_CLUSTERS = 1 << 12
MAX_REMEMBERED_CHARACTERS = 16

MIN_WRAPPED_CHARACTERS = 15
"""Characters below which a line may be a label or a cell rather than a wrapped line."""
MIN_WRAPPED_COLUMNS = 32
"""The same where nothing else tells that a line goes on; a Hangul syllable takes two columns."""
MIN_FULL_SHARE = 0.75
"""A line at least so full, against the others around it, was broken by the margin."""
WIDEST_QUANTILE = 0.8
"""The share of lines that are no wider than the text: a few may stick out."""
MIN_CODE_INDENT = 4

_INVISIBLE = (
    "\u00ad\u034f\u061c\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\ufff9-\ufffc\ud800-\udfff\U000e0000-\U000e01ef"
)
_INVISIBLES = re.compile(f"[{_INVISIBLE}]")
_PLAIN = (
    "\t\n -~\u00a1-\u00a7\u00a9\u00ab\u00ac\u00ae\u00b0\u00b1\u00b6\u00b7\u00bb"
    "\u00bf-\u0131\u0134-\u013e\u0141-\u0148\u014a-\u017e\u0391-\u03a1\u03a3-\u03c9\u0410-\u044f"
    "\u2013\u2014\u2018-\u201d\u2020\u2021\u203b\u2190-\u21ff\u25a0-\u25ff\u3001-\u3003\u3008-\u3011"
    "\u3014\u3015\u3041-\u3096\u30a1-\u30fa\u30fc\u3400-\u4dbf\u4e00-\u9fff가-힣"
)
"""Signs that are their own normal form whatever stands before them."""
_SPECIAL_SIGN = re.compile(f"[^{_PLAIN}\ufdfa\ufdfb]")
"""All else. Most texts hold none, which is seen in an eighth of the time of a look for runs.

U+FDFA and U+FDFB are left alone: their normal forms are whole sentences, many times as long.
"""
_SPECIAL = re.compile(f"[{_PLAIN}]?{_SPECIAL_SIGN.pattern}+")
"""Such signs in a row, with the sign before, that a mark may join."""
_LEADS = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"
_TAILS = " ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ"
_SPELT = re.compile(rf"([{_LEADS}])([ㅏ-ㅣ])([{_TAILS[1:]}](?![ㅏ-ㅣ]))?")

_BLANKS = (
    "\x1f\xa0\u115f\u1160\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u202f\u205f\u2800\u3000\u3164\uffa0"
)
_SAME = str.maketrans(
    {
        **dict.fromkeys("\u318d\u119e\u2022\u2027\u2219\u22c5\u30fb\uff65", "·"),
        **dict.fromkeys("\u223c\u301c", "~"),
        **dict.fromkeys("\u2010\u2011\u2012\u2212\ufe63\uff0d", "-"),
        **dict.fromkeys(_BLANKS, " "),
    }
)
"""Signs that people write for one another: HWP has ㆍ and ∼ where they type · and ~."""
_WIDE_OR_JOINED = map(chr, (*range(0xFF01, 0xFF5F), *range(0xFB00, 0xFB07)))
_SHOWN = {
    **{sign: unicodedata.normalize("NFKC", sign) for sign in _WIDE_OR_JOINED},
    **dict.fromkeys("\u2010\u2011\u2012", "-"),
    **dict.fromkeys(_BLANKS, " "),
}
"""What only looks different: "10²" must not become "102" where somebody reads it."""
_TO_BE_SHOWN = re.compile(f"[{''.join(map(re.escape, _SHOWN))}]")

_LINE_END = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]|\u00ad(?=[ \t]*[\r\n])")
_PILE = re.compile(rf"([^\w\s]{{{MAX_PILE_SIGNS}}})[^\w\s]+")
_ENDLESS = re.compile(rf"\b\w{{{MAX_WORD_CHARACTERS + 1},}}")
_DASH = re.compile(r"\u2013(?<=\w\u2013)(?=\w)")
"""Without blanks: a hyphen that a word processor made longer ("3–5", "AES–256")."""
_COMPOUND = re.compile(r"[^\W\d_]+-[^\W\d_]+")
_HYPHENATED = re.compile(r"[-\u2013](?<=\w[-\u2013])[ \t]*\n[ \t]*(?=\w)")
_FIRST_WORD = re.compile(r"[^\W\d_]+")
_BROKEN = re.compile(r"\n(?<=[가-힣]\n)(?=[가-힣])")
_SYLLABLES = re.compile(r"[가-힣]+\.?")
_NEAR = 64
"""Characters on either side of a line's end that can belong to the word there."""
_TAIL_WORDS = load_words("tails.ko")
MAX_TAIL_CHARACTERS = max(map(len, _TAIL_WORDS))
_BEFORE_TAIL = re.compile(
    rf"\n(?<=[가-힣]\n)(?=[{''.join(sorted({word[0] for word in _TAIL_WORDS}))}])"
)
_NO_LETTERS = re.compile(r"[\W_]+")
_OPENING = "([{<\"'“‘「『"


ABBREVIATIONS = (
    *("e.g", "i.e", "etc", "vs", "cf", "ca", "approx", "a.m", "p.m", "p", "pp"),
    *("Mr", "Mrs", "Ms", "Dr", "Prof", "Gen", "Gov", "Rep", "Rev", "Sen", "Jr", "Sr", "St"),
    *("No", "Fig", "Vol", "Sec", "Art", "Co", "Corp", "Inc", "Ltd"),
)
"""Words whose full stop ends no sentence."""
_SHORTENED = rf"\b(?:{'|'.join(map(re.escape, ABBREVIATIONS))})|\b[A-Z]"

Edit = tuple[int, int, str]
"""From where to where something is replaced, and by what, which then stands at its beginning."""


def normalise_text(text: str) -> str:
    """The text as it is searched and compared: two that read the same are the same.

    NFKC with Hangul composed, also where its letters were typed one by one; hyphens U+2010 to
    U+2012, the minus sign, and a dash between letters or digits as "-"; ㆍ and its like as "·";
    blanks of any width as " "; nothing invisible; words broken at the end of a line whole. Other
    line ends stay. Piles of signs are cut and endless words get spaces. Idempotent, never raises,
    linear in time.
    """
    text = _PILE.sub(r"\1", _LINE_END.sub(_restore_hyphen, text))
    if _SPECIAL_SIGN.search(text):
        text = _PILE.sub(r"\1", _SPECIAL.sub(_normalise_run, text))
    text = _DASH.sub("-", _apply_edits(text, _join_broken_words(text)))
    return _ENDLESS.sub(_split_endless_word, text)


def to_letters(text: str) -> str:
    """Letters and digits alone, in small letters: as names are compared."""
    return _NO_LETTERS.sub("", text).casefold()


def find_words_across_lines(text: str) -> Iterator[tuple[str, str]]:
    r"""The other reading of each word at the end of a line: (as it is read, as it might be).

    `text` is normalised. Hangul breaks anywhere, and the line does not tell whether "정보\n보호"
    is one word. Those read as one by `normalise_text` stand in no line end any more.
    """
    for found in _BROKEN.finditer(text):
        at = found.start()
        line = text.rfind("\n", max(0, at - MIN_WRAPPED_CHARACTERS), at)
        if line >= 0 or at < MIN_WRAPPED_CHARACTERS:
            continue
        before = text[max(0, at - _NEAR) : at].rsplit(maxsplit=1)[-1]
        after = text[at + 1 : at + _NEAR].split(None, 1)[0]
        if not _BEGINS.match(after):
            yield f"{before} {after}", before + after


@functools.lru_cache(maxsize=4096)  # a passage is read to judge it, to choose it and to show it
def to_prompt_text(text: str, kind: Kind = Kind.TEXT) -> str:
    """The text as a prompt or a page shows it: a sentence on one line, as far as that is sure.

    Lines that the margin broke are joined, with a space, without one (Hangul tails such as "을",
    Chinese and Japanese), or by what their hyphen broke. List items, table rows, headings, quotes,
    code between fences or indented, tables of contents and lines that end a sentence keep their
    ends; of tables and code (`kind`) all lines do. Hyphens, blanks, full-width letters and
    ligatures are plain ones, nothing is invisible; other signs stay as they are printed.
    """
    text = _LINE_END.sub(_restore_hyphen, text)
    text = unicodedata.normalize("NFC", _PILE.sub(_shorten_pile, text))
    text = _TO_BE_SHOWN.sub(lambda sign: _SHOWN[sign[0]], text)
    text = _INVISIBLES.sub("", text)
    as_printed = kind in {Kind.TABLE, Kind.CODE}
    return text if as_printed else _apply_edits(text, _join_lines(text))


# --- characters ---------------------------------------------------------------------------------


def _restore_hyphen(found: re.Match[str]) -> str:
    """The soft hyphen at the end of a line shows as a hyphen."""
    return "-" if found[0] == "\u00ad" else "\n"


def _shorten_pile(pile: re.Match[str]) -> str:
    """A pile of marks cut; rules, leaders and drawings stay."""
    return pile[1] if unicodedata.combining(pile[0][-1]) else pile[0]


def _normalise_run(run: re.Match[str]) -> str:
    return _fold(run[0]) if len(run[0]) <= MAX_REMEMBERED_CHARACTERS else _fold_uncached(run[0])


def _fold_uncached(run: str) -> str:
    """The normal form; again until it stays, as what is removed may have kept others apart."""
    while True:
        text = _SPELT.sub(_compose_syllable, _INVISIBLES.sub("", run)).translate(_SAME)
        text = _INVISIBLES.sub("", unicodedata.normalize("NFKC", text)).translate(_SAME)
        if text == run:
            return text
        run = text


_fold = functools.lru_cache(maxsize=MAX_REMEMBERED_CLUSTERS)(_fold_uncached)


def _compose_syllable(letters: re.Match[str]) -> str:
    """Letters typed one by one (U+3131 ff.) as the syllable they spell."""
    lead, vowel, tail = letters.groups(default=" ")
    code = _LEADS.index(lead) * 21 + ord(vowel) - ord("ㅏ")
    return chr(ord("가") + code * 28 + _TAILS.index(tail))


def _split_endless_word(endless: re.Match[str]) -> str:
    word = endless[0]
    return " ".join(
        word[at : at + MAX_WORD_CHARACTERS] for at in range(0, len(word), MAX_WORD_CHARACTERS)
    )


# --- words broken at the end of a line ----------------------------------------------------------


def _join_broken_words(text: str) -> Iterator[Edit]:
    """Hyphenated words, and Hangul words whose second part cannot be a word."""
    if "\n" in text:
        yield from sorted((*_join_hyphenated(text), *_join_tails(text)))


def _join_hyphenated(text: str) -> Iterator[Edit]:
    compounds: set[str] | None = None
    for found in _HYPHENATED.finditer(text):
        start, end = found.span()
        after = _FIRST_WORD.match(text, end, end + _NEAR)
        by = text[start]
        if by == "-" and after and after[0][0].islower():
            before = text[max(0, start - _NEAR) : start].rsplit(maxsplit=1)[-1].lstrip(_OPENING)
            if compounds is None:
                compounds = set(_COMPOUND.findall(text))
            if before.isalpha() and f"{before}-{after[0]}" not in compounds:
                by = ""
        yield start, end, by


def _join_tails(text: str) -> Iterator[Edit]:
    """The ends of lines whose next word can only end the one before."""
    joined: dict[int, str] = {}
    for found in reversed([*_BEFORE_TAIL.finditer(text)]):  # a tail may itself be broken
        at = found.start()
        syllables = _SYLLABLES.match(text, at + 1, at + MAX_TAIL_CHARACTERS + 2)
        word = syllables[0] + joined.get(syllables.end(), "") if syllables else ""
        if (word in _TAIL_WORDS or word.rstrip(".") in _TAIL_WORDS) and is_fitting_particle(
            text[at - 1], word
        ):
            joined[at] = word
            yield at, at + 1, ""


# --- code between fences ------------------------------------------------------------------------

_FENCE = re.compile(r"`{3,}(?=[^`]*$)|~{3,}")


def track_code_fences(lines: Iterable[str]) -> Iterator[tuple[str, str, bool]]:
    """Each line with the fence of the code that it belongs to ("": none), and whether it is one.

    As in CommonMark but for indentation, which is of no account, and for fences in quotes.
    """
    fence = ""
    for line in lines:
        bare = line.strip()
        if fence:
            closes = len(bare) >= len(fence) and not bare.strip(fence[0])
            yield line, fence, closes
            fence = "" if closes else fence
        elif mark := _FENCE.match(bare):
            fence = mark[0]
            yield line, fence, True
        else:
            yield line, "", False


# --- lines broken by the margin -----------------------------------------------------------------

_BEGINS = re.compile(
    r"(?:[-*+•·∙‣○◦●▪■□◆◇▶▷❍❖➢ㅇ◎※→☞](?=\s|$)|[(\[]?(?:\d{1,3}(?:의\d+)?|[가-하a-zA-Z]|[ivxIVX]{1,4})"
    r"\\?[.)\]](?=\s|$)|제\s?\d+\s?(?:편|장|절|관|조|항|호)|[①-⑳㉠-㉭ⓐ-ⓩⅠ-Ⅻ❶-❿]|[|#>=]|[-_*]{3,}|"
    r"부\s?칙|별\s?표|[^\s:：]{1,12}\s?[:：](?!//)\s?\S|(?:https?|ftp)://)"
)
"""What begins a line of its own: items, articles, headings, rows, quotes, labels, addresses."""
_ENDED = re.compile(r"[.!?。？！…:：;|][\"'”’」』)\]]*$")
_LEADERS = re.compile(r"[.·…‥ㆍ]{4,}|(?: \.){4,}")
_ENDS_SHORTENED = re.compile(rf"(?:{_SHORTENED})\.$")
_YEAR = re.compile(r"\b(?:19|20)\d\d\.$")
_MONTH = re.compile(r"\d{1,2}\.")
_DATE = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}\b")
_OF_PROSE = re.compile("[a-z\u00df-\u00ff\u0400-\u04ff\u3040-\u30ff\u3400-\u9fff가-힣]")
MIN_PROSE_SHARE = 0.5
"""The share of small letters and syllables from which a line is prose, and no row of figures."""
_CODE_ENDS = frozenset("{}=<>\\|*#")
_NO_SPACE_BEFORE = frozenset(".,;:!?)]}」』》〉”’。、，")
_NO_SPACE_BEHIND = frozenset("([{「『《〈“‘")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff]")


Line = tuple[int, str]
"""Where a line of a paragraph begins, and the line."""


def _join_lines(text: str) -> Iterator[Edit]:
    """The line ends within sentences, and what they become."""
    if "\n" not in text:
        return
    broken = {start: (start, end, by) for start, end, by in _join_broken_words(text)}
    for paragraph in _split_paragraphs(text):
        full = _estimate_columns(paragraph)
        for (start, line), (below_start, below) in pairwise(paragraph):
            end = start + len(line.rstrip())
            if edit := broken.get(end) or broken.get(end - 1):
                yield edit
            elif full and _is_continued(line := line.strip(), bare := below.lstrip(), full):
                yield end, below_start + len(below) - len(bare), _choose_joint(line[-1], bare[0])


def _split_paragraphs(text: str) -> Iterator[list[Line]]:
    """Lines of prose without a blank one, a row, a heading or code between them; two at least."""
    paragraph: list[Line] = []
    start = 0
    for line, fence, _ in track_code_fences(text.split("\n")):
        first = line.lstrip()[:1]
        if first and first not in "|#>" and not fence and (paragraph or not _is_code(line)):
            paragraph.append((start, line))
            start += len(line) + 1
            continue
        if len(paragraph) > 1:
            yield paragraph
        paragraph = []
        start += len(line) + 1
    if len(paragraph) > 1:
        yield paragraph


def _is_code(line: str) -> bool:
    """Indented with nothing above that it could be the rest of."""
    return line[0] in " \t" and len(line.expandtabs(4)) - len(line.lstrip()) >= MIN_CODE_INDENT


def _count_columns(line: str) -> int:
    """How wide a line is: UTF-8 takes one byte for a Latin letter and three for a syllable."""
    return (len(line.encode("utf-8", "replace")) + len(line)) // 2


def _estimate_columns(paragraph: Sequence[Line]) -> int:
    """How wide the text is; 0 where no line is wide enough to go on."""
    if max(len(line) for _start, line in paragraph) < MIN_WRAPPED_CHARACTERS:
        return 0
    widths = sorted(_count_columns(line.strip()) for _start, line in paragraph)
    return widths[round(WIDEST_QUANTILE * (len(widths) - 1))] if len(widths) > 4 else widths[-1]


def _is_continued(line: str, below: str, full: int) -> bool:
    """Whether the margin broke the line, and its sentence goes on in the one below."""
    columns = _count_columns(line)
    if columns < MIN_WRAPPED_COLUMNS or columns < full * MIN_FULL_SHARE:
        return False
    if line[-1] in _CODE_ENDS or _LEADERS.search(line):
        return False
    if _ENDED.search(line) and not _ENDS_SHORTENED.search(line):
        return bool(_YEAR.search(line) and _MONTH.match(below))
    if _BEGINS.match(below) or _DATE.match(below):
        return False
    return len(_OF_PROSE.findall(line)) >= MIN_PROSE_SHARE * len("".join(line.split()))


def _choose_joint(last: str, first: str) -> str:
    if first in _NO_SPACE_BEFORE or last in _NO_SPACE_BEHIND or last == "/":
        return ""
    return "" if _UNSPACED.match(last) and _UNSPACED.match(first) else " "


def _apply_edits(text: str, edits: Iterable[Edit]) -> str:
    parts: list[str] = []
    at = 0
    for start, end, by in edits:
        parts += (text[at:start], by)
        at = end
    return "".join((*parts, text[at:])) if parts else text


# --- sentences ----------------------------------------------------------------------------------

_SENTENCE_END = re.compile(
    r"(?<=[.!?。？！…])[\"'”’)\]]*\s+|(?<=[다요죠음함임])\.(?=[가-힣A-Z\"“'])|\n\s*\n|\n(?=\s*(?:[-*•·○●□■]|\d+[.)]|[가-하][.)]|제\d+조|#))"
)
_BULLET = re.compile(r"^\s*(?:[-*•·○●□■#>|]+\s+)+")
_LABEL = re.compile(r"(?:\d+|[가-하])\.")
_NUMBER_END = re.compile(r"\b\d{1,4}\.$")
_DATE_END = re.compile(
    r"\b(?:(?:19|20)\d\d\.(?:\s?\d{1,2}\.){1,2}|\d\d\.\s?\d{1,2}\.\s?\d{1,2}\.)$"
)
_LOOKED_BACK = 24
"""Characters before a stop that tell whether it ends a sentence: the longest date fits in."""


def split_sentences(text: str) -> list[str]:
    """The sentences of Korean and English prose, Markdown and lists, in order.

    White space is folded, list marks and empty ones are left out. Dates ("2024. 3. 4.") stay whole.
    """
    begun, parts = 0, []
    for end in (match.end() for match in _SENTENCE_END.finditer(text)):
        tail = text[max(begun, end - _LOOKED_BACK) : end]
        said = tail.rstrip()
        is_label = begun >= end - _LOOKED_BACK and _LABEL.fullmatch(said.lstrip())
        if (
            is_label
            or _ENDS_SHORTENED.search(said)
            or _is_in_date(said, tail[len(said) :], text[end : end + 1])
        ):
            continue
        parts.append(text[begun:end])
        begun = end
    parts.append(text[begun:])
    clean = (" ".join(_BULLET.sub("", part).split()) for part in parts)
    return [part for part in clean if part]


def _is_in_date(said: str, gap: str, following: str) -> bool:
    """Whether the stop behind `said` belongs to a date, told by the white space that follows.

    A new line may be an item: only a year goes on in it.
    """
    lines = gap.count("\n")
    number = (_NUMBER_END, _YEAR)[lines].search(said) if lines < 2 else None
    if number and following.isdigit():
        return True
    return not lines and _DATE_END.search(said) is not None


# --- what has power in a prompt -----------------------------------------------------------------

_UNSEEN = re.compile(
    "[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\x00]"
)
_ANGLE = re.compile(
    r"<(\|[^<>\n]{1,40}\||/?s|/?(?:bos|eos|pad|unk)|(?:start|end)_of_turn|/?(?:think|tool_call|tool_response)|"
    r"｜[^<>\n]{1,40}｜)>",
    re.IGNORECASE,
)
_SYSTEM = re.compile(r"<<(/?SYS)>>", re.IGNORECASE)
_SQUARE = re.compile(r"\[(/?INST)\]", re.IGNORECASE)


def neutralise_text(text: str) -> str:
    """The text for a prompt, without the power of marks that a template or a reader would obey.

    No invisible signs, special tokens in other brackets: as a person would read it.
    """
    text = _SYSTEM.sub(r"‹\1›", _UNSEEN.sub("", text))
    return _SQUARE.sub(r"(\1)", _ANGLE.sub(r"‹\1›", text))


# --- which language it is -----------------------------------------------------------------------

_HANGUL = re.compile("[가-힣ㄱ-ㅎㅏ-ㅣ]")
_LATIN = re.compile("[A-Za-zÀ-ɏ]")
_OTHER = re.compile("[\u0370-\u10ff\u1200-\u1fff\u3040-\u30ff\u3400-\u9fff]")
LETTERS_PER_SYLLABLE = 2.5
"""A Hangul syllable says about as much as this many Latin letters."""
ALL_LANGUAGES = "*"


def measure_scripts(text: str) -> dict[str, float]:
    """The shares of Korean ("ko"), Latin ("en") and other writing in a text.

    All 0 where there are no letters.
    """
    weights = {
        "ko": len(_HANGUL.findall(text)) * LETTERS_PER_SYLLABLE,
        "en": float(len(_LATIN.findall(text))),
        "other": len(_OTHER.findall(text)) * LETTERS_PER_SYLLABLE,
    }
    total = sum(weights.values())
    return {name: weight / total if total else 0.0 for name, weight in weights.items()}


def choose_reply_language(text: str) -> str:
    """The language to answer in, "ko" or "en": Korean as soon as the question holds some."""
    return "ko" if measure_scripts(text)["ko"] > 0.15 else "en"


def estimate_dense_weight(text: str, languages: AbstractSet[str]) -> float:
    """How far an embedder that knows `languages` knows this text, 0..1.

    Proportional to the share of known writing, but nothing below a half: an English model reads a
    Korean sentence with one English word as noise, and noise costs more than it brings
    (docs/notes/retrieval.md).
    """
    if ALL_LANGUAGES in languages:
        return 1.0
    known = sum(share for name, share in measure_scripts(text).items() if name in languages)
    return max(0.0, 2 * known - 1)
