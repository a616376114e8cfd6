"""Text as it is compared and as prompts show it; its sentences; its language.

A PDF prints "AES‑256" with U+2011 and breaks lines anywhere, but people type neither. Stored text
stays as it was printed, because offsets count its characters.
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
"""Characters without a space; longer words take the analyser too long."""
MAX_REPEATED_SIGNS = 32
"""Signs in a row: composing marks takes quadratic time, and dot leaders mean nothing."""
MAX_CACHED_CLUSTERS = 1 << 12
MAX_CACHED_CHARACTERS = 16

MIN_WRAPPED_CHARACTERS = 15
"""Characters below which a line may be a label or a cell rather than a wrapped line."""
MIN_WRAPPED_COLUMNS = 32
"""The same if nothing else shows that a line continues; a Hangul syllable is two columns wide."""
MIN_FULL_SHARE = 0.75
"""A line of at least this share of the width of those around it was broken at the margin."""
WIDEST_QUANTILE = 0.8
"""Share of lines that are no wider than the text; a few may stick out."""
MIN_CODE_INDENT = 4

_INVISIBLE = (
    "\u00ad\u034f\u061c\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
    "\ufff9-\ufffc\ud800-\udfff\U000e0000-\U000e01ef"
)
_INVISIBLES = re.compile(f"[{_INVISIBLE}]")
_PLAIN_SIGNS = (
    "\t\n -~\u00a1-\u00a7\u00a9\u00ab\u00ac\u00ae\u00b0\u00b1\u00b6\u00b7\u00bb"
    "\u00bf-\u0131\u0134-\u013e\u0141-\u0148\u014a-\u017e\u0391-\u03a1\u03a3-\u03c9\u0410-\u044f"
    "\u2013\u2014\u2018-\u201d\u2020\u2021\u203b\u2190-\u21ff\u25a0-\u25ff\u3001-\u3003\u3008-\u3011"
    "\u3014\u3015\u3041-\u3096\u30a1-\u30fa\u30fc\u3400-\u4dbf\u4e00-\u9fff가-힣"
)
"""Signs that are already in normal form, whatever precedes them."""
_SPECIAL_SIGN = re.compile(f"[^{_PLAIN_SIGNS}\ufdfa\ufdfb]")
"""All others. Most texts have none, and finding that out takes an eighth of the search for runs.

U+FDFA and U+FDFB are left alone: their normal forms are whole sentences, many times as long.
"""
_SPECIAL_RUN = re.compile(f"[{_PLAIN_SIGNS}]?{_SPECIAL_SIGN.pattern}+")
"""Special signs in a row, with the sign before them, with which a mark may combine."""
_LEADS = "ㄱㄲㄴㄷㄸㄹㅁㅂㅃㅅㅆㅇㅈㅉㅊㅋㅌㅍㅎ"
_TAILS = " ㄱㄲㄳㄴㄵㄶㄷㄹㄺㄻㄼㄽㄾㄿㅀㅁㅂㅄㅅㅆㅇㅈㅊㅋㅌㅍㅎ"
_SPELLED_SYLLABLE = re.compile(rf"([{_LEADS}])([ㅏ-ㅣ])([{_TAILS[1:]}](?![ㅏ-ㅣ]))?")

_BLANKS = (
    "\x1f\xa0\u115f\u1160\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u202f\u205f\u2800\u3000\u3164\uffa0"
)
_EQUIVALENT_SIGNS = str.maketrans(
    {
        **dict.fromkeys("\u318d\u119e\u2022\u2027\u2219\u22c5\u30fb\uff65", "·"),
        **dict.fromkeys("\u223c\u301c", "~"),
        **dict.fromkeys("\u2010\u2011\u2012\u2212\ufe63\uff0d", "-"),
        **dict.fromkeys(_BLANKS, " "),
    }
)
"""Signs that are written for one another: HWP has ㆍ and ∼ where people type · and ~."""
_WIDE_OR_JOINED = map(chr, (*range(0xFF01, 0xFF5F), *range(0xFB00, 0xFB07)))
_DISPLAY_SIGNS = {
    **{sign: unicodedata.normalize("NFKC", sign) for sign in _WIDE_OR_JOINED},
    **dict.fromkeys("\u2010\u2011\u2012", "-"),
    **dict.fromkeys(_BLANKS, " "),
}
"""Signs that only look different. Nothing else is replaced: "10²" must not be shown as "102"."""
_REPLACED_FOR_DISPLAY = re.compile(f"[{''.join(map(re.escape, _DISPLAY_SIGNS))}]")

_LINE_END = re.compile("\r\n?|[\x0b\x0c\x1c-\x1e\x85\u2028\u2029]|\u00ad(?=[ \t]*[\r\n])")
_SIGN_PILE = re.compile(rf"([^\w\s]{{{MAX_REPEATED_SIGNS}}})[^\w\s]+")
_ENDLESS_WORD = re.compile(rf"\b\w{{{MAX_WORD_CHARACTERS + 1},}}")
_DASH = re.compile(r"\u2013(?<=\w\u2013)(?=\w)")
"""Between letters or digits: a hyphen that a word processor lengthened ("3–5", "AES–256")."""
_COMPOUND = re.compile(r"[^\W\d_]+-[^\W\d_]+")
_HYPHENATED = re.compile(r"[-\u2013](?<=\w[-\u2013])[ \t]*\n[ \t]*(?=\w)")
_FIRST_WORD = re.compile(r"[^\W\d_]+")
_BROKEN_BETWEEN_HANGUL = re.compile(r"\n(?<=[가-힣]\n)(?=[가-힣])")
_SYLLABLES = re.compile(r"[가-힣]+\.?")
_MAX_WORD_PART_CHARACTERS = 64
"""Characters on either side of a line end that may belong to the word there."""
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
"""Words whose full stop does not end a sentence."""
_ABBREVIATION = rf"\b(?:{'|'.join(map(re.escape, ABBREVIATIONS))})|\b[A-Z]"

Edit = tuple[int, int, str]
"""Start and end of what is replaced, and the replacement."""


def normalise_text(text: str) -> str:
    """The text as it is searched and compared: texts that read the same become the same.

    NFKC, with Hangul composed even if its letters were typed one by one; hyphens U+2010 to U+2012,
    the minus sign and a dash between letters or digits become "-"; ㆍ and the like "·"; blanks of
    any width " ". Invisible characters are removed, and words broken at the end of a line are
    joined; other line ends stay. Piles of signs are cut, and endless words get spaces. Idempotent,
    never raises, takes linear time.
    """
    text = _SIGN_PILE.sub(r"\1", _LINE_END.sub(_restore_hyphen, text))
    if _SPECIAL_SIGN.search(text):
        text = _SIGN_PILE.sub(r"\1", _SPECIAL_RUN.sub(_normalise_run, text))
    text = _DASH.sub("-", _apply_edits(text, _find_broken_words(text)))
    return _ENDLESS_WORD.sub(_split_endless_word, text)


def to_letters(text: str) -> str:
    """Only letters and digits, in lower case, for comparing names."""
    return _NO_LETTERS.sub("", text).casefold()


def find_words_across_lines(text: str) -> Iterator[tuple[str, str]]:
    r"""Both readings of the words at the ends of lines: as two words, and as one.

    `text` is normalised. Hangul breaks anywhere, and nothing shows whether "정보\n보호" is one
    word. Words that `normalise_text` has joined are no longer at a line end.
    """
    for match in _BROKEN_BETWEEN_HANGUL.finditer(text):
        line_end = match.start()
        line = text.rfind("\n", max(0, line_end - MIN_WRAPPED_CHARACTERS), line_end)
        if line >= 0 or line_end < MIN_WRAPPED_CHARACTERS:
            continue
        before = text[max(0, line_end - _MAX_WORD_PART_CHARACTERS) : line_end].rsplit(maxsplit=1)[
            -1
        ]
        after = text[line_end + 1 : line_end + _MAX_WORD_PART_CHARACTERS].split(None, 1)[0]
        if not _BLOCK_START.match(after):
            yield f"{before} {after}", before + after


@functools.lru_cache(maxsize=4096)  # a passage is rendered to judge it, to choose it and to show it
def to_prompt_text(text: str, kind: Kind = Kind.TEXT) -> str:
    """The text as a prompt or a page shows it: each sentence on one line, where that is certain.

    Lines broken at the margin are joined with a space, or without one (before Hangul tails such as
    "을", in Chinese and Japanese, in hyphenated words). List items, table rows, headings, quotes,
    fenced or indented code, tables of contents and lines that end a sentence keep their line ends;
    in tables and code (`kind`) all lines do. Hyphens, blanks, full-width letters and ligatures
    become plain ones, and invisible characters are removed; other signs stay as printed.
    """
    text = _LINE_END.sub(_restore_hyphen, text)
    text = unicodedata.normalize("NFC", _SIGN_PILE.sub(_shorten_pile, text))
    text = _REPLACED_FOR_DISPLAY.sub(lambda sign: _DISPLAY_SIGNS[sign[0]], text)
    text = _INVISIBLES.sub("", text)
    as_printed = kind in {Kind.TABLE, Kind.CODE}
    return text if as_printed else _apply_edits(text, _find_wrapped_line_ends(text))


# --- characters ---------------------------------------------------------------------------------


def _restore_hyphen(match: re.Match[str]) -> str:
    """A plain line end, or the hyphen that a soft hyphen at the end of a line shows as."""
    return "-" if match[0] == "\u00ad" else "\n"


def _shorten_pile(match: re.Match[str]) -> str:
    """Cut a pile of combining marks; rules, dot leaders and drawings stay."""
    return match[1] if unicodedata.combining(match[0][-1]) else match[0]


def _normalise_run(match: re.Match[str]) -> str:
    return (
        _normalise_signs(match[0])
        if len(match[0]) <= MAX_CACHED_CHARACTERS
        else _normalise_signs_uncached(match[0])
    )


def _normalise_signs_uncached(run: str) -> str:
    """Normalise until nothing changes, as removed signs may have separated others."""
    while True:
        text = _SPELLED_SYLLABLE.sub(_compose_syllable, _INVISIBLES.sub("", run)).translate(
            _EQUIVALENT_SIGNS
        )
        text = _INVISIBLES.sub("", unicodedata.normalize("NFKC", text)).translate(_EQUIVALENT_SIGNS)
        if text == run:
            return text
        run = text


_normalise_signs = functools.lru_cache(maxsize=MAX_CACHED_CLUSTERS)(_normalise_signs_uncached)


def _compose_syllable(letters: re.Match[str]) -> str:
    """Compose letters typed one by one (U+3131 ff.) to the syllable that they spell."""
    lead, vowel, tail = letters.groups(default=" ")
    code = _LEADS.index(lead) * 21 + ord(vowel) - ord("ㅏ")
    return chr(ord("가") + code * 28 + _TAILS.index(tail))


def _split_endless_word(match: re.Match[str]) -> str:
    word = match[0]
    return " ".join(
        word[start : start + MAX_WORD_CHARACTERS]
        for start in range(0, len(word), MAX_WORD_CHARACTERS)
    )


# --- words broken at the end of a line ----------------------------------------------------------


def _find_broken_words(text: str) -> Iterator[Edit]:
    """Edits that join hyphenated words, and Hangul words whose second part cannot be a word."""
    if "\n" in text:
        yield from sorted((*_find_hyphenated_words(text), *_find_broken_tails(text)))


def _find_hyphenated_words(text: str) -> Iterator[Edit]:
    compounds: set[str] | None = None
    for match in _HYPHENATED.finditer(text):
        start, end = match.span()
        after = _FIRST_WORD.match(text, end, end + _MAX_WORD_PART_CHARACTERS)
        replacement = text[start]
        if replacement == "-" and after and after[0][0].islower():
            before = (
                text[max(0, start - _MAX_WORD_PART_CHARACTERS) : start]
                .rsplit(maxsplit=1)[-1]
                .lstrip(_OPENING)
            )
            if compounds is None:
                compounds = set(_COMPOUND.findall(text))
            if before.isalpha() and f"{before}-{after[0]}" not in compounds:
                replacement = ""
        yield start, end, replacement


def _find_broken_tails(text: str) -> Iterator[Edit]:
    """Edits that remove the line ends before words that can only be the end of the one before."""
    joined: dict[int, str] = {}
    for match in reversed([*_BEFORE_TAIL.finditer(text)]):  # a tail may itself be broken
        line_end = match.start()
        syllables = _SYLLABLES.match(text, line_end + 1, line_end + MAX_TAIL_CHARACTERS + 2)
        word = syllables[0] + joined.get(syllables.end(), "") if syllables else ""
        if (word in _TAIL_WORDS or word.rstrip(".") in _TAIL_WORDS) and is_fitting_particle(
            text[line_end - 1], word
        ):
            joined[line_end] = word
            yield line_end, line_end + 1, ""


# --- code between fences ------------------------------------------------------------------------

_FENCE = re.compile(r"`{3,}(?=[^`]*$)|~{3,}")


def track_code_fences(lines: Iterable[str]) -> Iterator[tuple[str, str, bool]]:
    """Each line, the fence of the code block that it is in ("": none), and whether it is a fence.

    As in CommonMark, except that indentation is ignored, and so are fences in quotes.
    """
    fence = ""
    for line in lines:
        stripped = line.strip()
        if fence:
            closes = len(stripped) >= len(fence) and not stripped.strip(fence[0])
            yield line, fence, closes
            fence = "" if closes else fence
        elif mark := _FENCE.match(stripped):
            fence = mark[0]
            yield line, fence, True
        else:
            yield line, "", False


# --- lines broken by the margin -----------------------------------------------------------------

_BLOCK_START = re.compile(
    r"(?:[-*+•·∙‣○◦●▪■□◆◇▶▷❍❖➢ㅇ◎※→☞](?=\s|$)|[(\[]?(?:\d{1,3}(?:의\d+)?|[가-하a-zA-Z]|[ivxIVX]{1,4})"
    r"\\?[.)\]](?=\s|$)|제\s?\d+\s?(?:편|장|절|관|조|항|호)|[①-⑳㉠-㉭ⓐ-ⓩⅠ-Ⅻ❶-❿]|[|#>=]|[-_*]{3,}|"
    r"부\s?칙|별\s?표|[^\s:：]{1,12}\s?[:：](?!//)\s?\S|(?:https?|ftp)://)"
)
"""Begins a line of its own: an item, article, heading, row, quote, label or address."""
_SENTENCE_STOP = re.compile(r"[.!?。？！…:：;|][\"'”’」』)\]]*$")
_LEADERS = re.compile(r"[.·…‥ㆍ]{4,}|(?: \.){4,}")
_ABBREVIATION_END = re.compile(rf"(?:{_ABBREVIATION})\.$")
_YEAR = re.compile(r"\b(?:19|20)\d\d\.$")
_MONTH = re.compile(r"\d{1,2}\.")
_DATE = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}\b")
_PROSE_LETTER = re.compile("[a-z\u00df-\u00ff\u0400-\u04ff\u3040-\u30ff\u3400-\u9fff가-힣]")
MIN_PROSE_SHARE = 0.5
"""Share of lower-case letters and syllables from which a line is prose, not a row of figures."""
_CODE_ENDS = frozenset("{}=<>\\|*#")
_NO_SPACE_BEFORE = frozenset(".,;:!?)]}」』》〉”’。、，")
_NO_SPACE_AFTER = frozenset("([{「『《〈“‘")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff]")


Line = tuple[int, str]
"""The offset of a line of a paragraph, and the line."""


def _find_wrapped_line_ends(text: str) -> Iterator[Edit]:
    """Edits that join lines within sentences."""
    if "\n" not in text:
        return
    broken = {
        start: (start, end, replacement) for start, end, replacement in _find_broken_words(text)
    }
    for paragraph in _split_paragraphs(text):
        full_columns = _estimate_columns(paragraph)
        for (start, line), (next_start, next_line) in pairwise(paragraph):
            end = start + len(line.rstrip())
            if edit := broken.get(end) or broken.get(end - 1):
                yield edit
            elif full_columns and _is_continued(
                line := line.strip(), next_stripped := next_line.lstrip(), full_columns
            ):
                yield (
                    end,
                    next_start + len(next_line) - len(next_stripped),
                    _choose_joint(line[-1], next_stripped[0]),
                )


def _split_paragraphs(text: str) -> Iterator[list[Line]]:
    """Runs of at least two lines of prose, without blank lines, rows, headings or code."""
    paragraph: list[Line] = []
    start = 0
    for line, fence, _ in track_code_fences(text.split("\n")):
        first_sign = line.lstrip()[:1]
        if (
            first_sign
            and first_sign not in "|#>"
            and not fence
            and (paragraph or not _is_code(line))
        ):
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
    """Whether a line is indented like code; it must not follow a line that it could continue."""
    return line[0] in " \t" and len(line.expandtabs(4)) - len(line.lstrip()) >= MIN_CODE_INDENT


def _count_columns(line: str) -> int:
    """The width of a line, estimated from its UTF-8: a letter is one byte, a syllable three."""
    return (len(line.encode("utf-8", "replace")) + len(line)) // 2


def _estimate_columns(paragraph: Sequence[Line]) -> int:
    """The width of the text in columns; 0 if no line is wide enough to have been broken."""
    if max(len(line) for _start, line in paragraph) < MIN_WRAPPED_CHARACTERS:
        return 0
    widths = sorted(_count_columns(line.strip()) for _start, line in paragraph)
    return widths[round(WIDEST_QUANTILE * (len(widths) - 1))] if len(widths) > 4 else widths[-1]


def _is_continued(line: str, next_line: str, full_columns: int) -> bool:
    """Whether a line was broken at the margin, so that its sentence continues in the next line."""
    columns = _count_columns(line)
    if columns < MIN_WRAPPED_COLUMNS or columns < full_columns * MIN_FULL_SHARE:
        return False
    if line[-1] in _CODE_ENDS or _LEADERS.search(line):
        return False
    if _SENTENCE_STOP.search(line) and not _ABBREVIATION_END.search(line):
        return bool(_YEAR.search(line) and _MONTH.match(next_line))
    if _BLOCK_START.match(next_line) or _DATE.match(next_line):
        return False
    return len(_PROSE_LETTER.findall(line)) >= MIN_PROSE_SHARE * len("".join(line.split()))


def _choose_joint(last: str, first: str) -> str:
    if first in _NO_SPACE_BEFORE or last in _NO_SPACE_AFTER or last == "/":
        return ""
    return "" if _UNSPACED.match(last) and _UNSPACED.match(first) else " "


def _apply_edits(text: str, edits: Iterable[Edit]) -> str:
    parts: list[str] = []
    position = 0
    for start, end, replacement in edits:
        parts += (text[position:start], replacement)
        position = end
    return "".join((*parts, text[position:])) if parts else text


# --- sentences ----------------------------------------------------------------------------------

_SENTENCE_END = re.compile(
    r"(?<=[.!?。？！…])[\"'”’)\]]*\s+|(?<=[다요죠음함임])\.(?=[가-힣A-Z\"“'])|\n\s*\n|\n(?=\s*(?:[-*•·○●□■]|\d{1,3}[.)]|[가-하][.)]|제\d+조|#))|(?<!,)\n(?=\s*\d{4,}[.)])"
)
"""Behind a comma, a year at the beginning of a line ends a date that was broken there."""
_BULLET = re.compile(r"^\s*(?:[-*•·○●□■#>|]+\s+)+")
_LABEL = re.compile(r"(?:\d+|[가-하])\.")
_NUMBER_END = re.compile(r"\b\d{1,4}\.$")
_DATE_END = re.compile(
    r"\b(?:(?:19|20)\d\d\.(?:\s?\d{1,2}\.){1,2}|\d\d\.\s?\d{1,2}\.\s?\d{1,2}\.)$"
)
_MONTH_END = re.compile(r"\b(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.$")
_MAX_LOOKBACK_CHARACTERS = 24
"""Characters before a full stop that decide whether it ends a sentence: enough for any date."""


def split_sentences(text: str) -> list[str]:
    """The sentences of Korean and English prose, Markdown and lists, in order.

    White space is collapsed; list marks and empty sentences are dropped. Dates ("2024. 3. 4.") stay
    whole.
    """
    sentence_start, parts = 0, []
    for end in (match.end() for match in _SENTENCE_END.finditer(text)):
        tail = text[max(sentence_start, end - _MAX_LOOKBACK_CHARACTERS) : end]
        text_before = tail.rstrip()
        is_label = sentence_start >= end - _MAX_LOOKBACK_CHARACTERS and _LABEL.fullmatch(
            text_before.lstrip()
        )
        if (
            is_label
            or _ABBREVIATION_END.search(text_before)
            or _is_in_date(text_before, tail[len(text_before) :], text[end : end + 1])
        ):
            continue
        parts.append(text[sentence_start:end])
        sentence_start = end
    parts.append(text[sentence_start:])
    clean = (" ".join(_BULLET.sub("", part).split()) for part in parts)
    return [part for part in clean if part]


def _is_in_date(text_before: str, gap: str, following: str) -> bool:
    """Whether the full stop that ends `text_before` belongs to a date.

    `gap` is the white space after it. A new line may be an item, so that only a year continues in
    it.
    """
    lines = gap.count("\n")
    number = (_NUMBER_END, _YEAR)[lines].search(text_before) if lines < 2 else None
    if following.isdigit() and (number or (not lines and _MONTH_END.search(text_before))):
        return True
    return not lines and _DATE_END.search(text_before) is not None


# --- what has power in a prompt -----------------------------------------------------------------

_INVISIBLE_MARKS = re.compile(
    "[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\x00]"
)
_ANGLE_MARKS = re.compile(
    r"<(\|[^<>\n]{1,40}\||/?s|/?(?:bos|eos|pad|unk)|(?:start|end)_of_turn|/?(?:think|tool_call|tool_response)|"
    r"｜[^<>\n]{1,40}｜)>",
    re.IGNORECASE,
)
_SYSTEM_MARKS = re.compile(r"<<(/?SYS)>>", re.IGNORECASE)
_SQUARE_MARKS = re.compile(r"\[(/?INST)\]", re.IGNORECASE)


def neutralise_text(text: str) -> str:
    """Make a text safe for a prompt: no marks that a chat template or a model would obey.

    Invisible characters are removed, and special tokens get other brackets, which read the same.
    """
    text = _SYSTEM_MARKS.sub(r"‹\1›", _INVISIBLE_MARKS.sub("", text))
    return _SQUARE_MARKS.sub(r"(\1)", _ANGLE_MARKS.sub(r"‹\1›", text))


# --- which language it is -----------------------------------------------------------------------

_HANGUL = re.compile("[가-힣ㄱ-ㅎㅏ-ㅣ]")
_LATIN = re.compile("[A-Za-zÀ-ɏ]")
_OTHER = re.compile("[\u0370-\u10ff\u1200-\u1fff\u3040-\u30ff\u3400-\u9fff]")
LETTERS_PER_SYLLABLE = 2.5
"""A Hangul syllable counts as much as this many Latin letters."""
ALL_LANGUAGES = "*"


def measure_scripts(text: str) -> dict[str, float]:
    """The shares of Korean ("ko"), Latin ("en") and other scripts in a text; 0 without letters."""
    weights = {
        "ko": len(_HANGUL.findall(text)) * LETTERS_PER_SYLLABLE,
        "en": float(len(_LATIN.findall(text))),
        "other": len(_OTHER.findall(text)) * LETTERS_PER_SYLLABLE,
    }
    total = sum(weights.values())
    return {name: weight / total if total else 0.0 for name, weight in weights.items()}


def choose_reply_language(text: str) -> str:
    """The language to answer in, "ko" or "en": Korean if the question contains any to speak of."""
    return "ko" if measure_scripts(text)["ko"] > 0.15 else "en"


def estimate_dense_weight(text: str, languages: AbstractSet[str]) -> float:
    """How far the vectors of an embedder that knows `languages` can be trusted for a text, 0..1.

    It grows with the share of known scripts, but is 0 up to one half: to an English model, a Korean
    sentence with one English word is noise, which costs more than it gains
    (docs/notes/retrieval.md).
    """
    if ALL_LANGUAGES in languages:
        return 1.0
    known_share = sum(share for name, share in measure_scripts(text).items() if name in languages)
    return max(0.0, 2 * known_share - 1)
