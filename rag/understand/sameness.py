"""Whether two questions ask the same, by their words: the lexical half of a near-equal question.

A stored answer is given to another question only if nothing that could change the answer differs.
An embedder puts "2023년 예산" beside "2024년 예산"; here they differ, as do other names, numbers,
units, negations, comparatives and question words. What is left out: politeness, endings, articles,
spaces, one noun's particle of subject or topic, and where a single date or question word stands.
"""

import functools
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rag import tokenize
from rag.lexicon import load_patterns, load_rules
from rag.tokenize import HANGUL, to_singular
from rag.tokenize.korean import Morpheme

MAX_CHARACTERS = 400
"""Of questions that are compared by their words; longer ones have to be written alike."""

MAX_SIGN_LETTERS = 3
"""Latin words of so many letters may be signs of units or countries."""

_LETTERS = re.compile(r"[A-Za-z]+")
_END = re.compile(r"[\s?!.。？！…~]+$")
_BLANKS = re.compile(r"\s+")
_IS = load_patterns("sameness")
_RULES = load_rules("sameness")
_EMPTY_KO = frozenset(_RULES["words"]["empty_ko"])
_EMPTY_EN = frozenset(_RULES["words"]["empty_en"])
_EMPTY_VERBS = frozenset(_RULES["words"]["empty_verbs"])


def _invert(lists: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {word: name for name, words in lists.items() for word in words}


_SAME_WORDS = _invert(_RULES["classes"])
_QUESTION_WORDS = _invert(_RULES["question_words"])


def fold_question(text: str) -> str:
    """A question as it is compared letter by letter: in small letters, no signs at its end.

    Short words keep their case but for the first: Mb is not MB, nor US us.
    """
    clean = _BLANKS.sub(" ", unicodedata.normalize("NFC", text)).strip()
    return _fold_case(_END.sub("", clean) or clean)


def _fold_case(text: str) -> str:
    return _LETTERS.sub(lambda found: _fold_word(found[0], is_first=not found.start()), text)


def _fold_word(word: str, *, is_first: bool) -> str:
    if len(word) > MAX_SIGN_LETTERS or (is_first and (len(word) == 1 or not word.isupper())):
        return word.lower()
    return word


def is_dependent_on_today(text: str) -> bool:
    """Whether the answer changes with the day on which the question is asked."""
    return bool(_IS["today"].search(text))


def is_same_question(one: str, other: str) -> bool:
    """Whether two questions ask the same, word by word. False where it cannot be told."""
    if fold_question(one) == fold_question(other):
        return True
    if max(len(one), len(other)) > MAX_CHARACTERS:
        return False
    first, second = _read_question(one), _read_question(other)
    if first is None or second is None:
        return False
    return (
        first.core == second.core
        and first.moving == second.moving
        and _is_role_consistent(first, second)
    )


@dataclass(frozen=True, slots=True)
class _ComparedQuestion:
    """What counts of a question, in order; apart from that what may stand anywhere.

    `roles` are what the particle behind each noun says of it, by its place among the letters of
    `core`: compounds are cut now here, now there.
    """

    core: str
    moving: tuple[str, ...]
    roles: Mapping[int, str]


_TOPIC = "topic"


def _is_role_consistent(first: _ComparedQuestion, second: _ComparedQuestion) -> bool:
    """Whether nobody does in one question what is done to him in the other.

    A subject or object may be the topic instead, and only one: two would be an exchange.
    """
    changed = 0
    for place in first.roles.keys() | second.roles.keys():
        mine, its = first.roles.get(place, _TOPIC), second.roles.get(place, _TOPIC)
        if mine == its:
            continue
        if _TOPIC not in (mine, its) or "place" in (mine, its):
            return False
        changed += 1
    return changed <= 1


@functools.lru_cache(maxsize=256)
def _read_question(text: str) -> _ComparedQuestion | None:
    """What counts of a question; None where nothing does, or the analyser is not there."""
    clean = _fold_case(unicodedata.normalize("NFC", text).strip())
    if not HANGUL.search(clean):
        return _read_words(clean)
    stripped = _IS["asking_ko"].sub("", clean, count=1)
    found = tokenize.analyse_morphemes(stripped)
    if (
        found and found[-1].tag == "EC"
    ):  # "...면 어떻게 되나요" asks more than that something is asked
        stripped, found = clean, tokenize.analyse_morphemes(clean)
    if not found:
        return None
    return _to_compared_question([*_read_morphemes(found, asks=stripped == clean)])


@dataclass(frozen=True, slots=True)
class _Piece:
    """A word or a sign of its relation. `kind`: "word", "mark", "question", "date" or "role"."""

    text: str
    kind: str = "word"


_BEHIND = frozenset(("<부터>", "<까지>", "<에서>", "<에게>", "<로>", "<와>", "<보다>"))
"""What moves with the word before it: "언제까지"."""
_IMPLIED = {"<past>": "date", "<says>": "question"}
"""Signs that tell nothing beside a date that says when, or a word that asks."""


def _to_compared_question(pieces: Sequence[_Piece]) -> _ComparedQuestion | None:
    """A single date and a single question word may stand anywhere; of several the order counts."""
    kinds = [piece.kind for piece in pieces]
    free = {kind for kind in ("question", "date") if kinds.count(kind) == 1}
    core, moving, roles, place = list[str](), list[str](), dict[int, str](), 0
    moves = False
    for piece in pieces:
        if _IMPLIED.get(piece.text) in kinds:
            continue
        if piece.kind in free:
            moves = True
        elif piece.kind == "role":
            if not moves:
                roles[place] = piece.text
            if not moves or piece.text == "place":  # "2024년에" is "2024년"
                continue
        elif not (moves and piece.text in _BEHIND):
            moves = False
        if moves:
            moving.append(piece.text)
        else:
            core.append(piece.text)
            place += len(piece.text)
    return _ComparedQuestion("".join(core), tuple(moving), roles) if core or moving else None


# Korean

_KEPT = frozenset(
    ("NNG", "NNP", "NR", "XR", "SL", "SH", "SN", "NNB", "XPN", "MM", "MAG", "MAJ", "VV", "VA", "NP")
) | {"SW", "SO", "UN", "W_SERIAL", "W_URL", "W_EMAIL", "W_HASHTAG", "W_MENTION", "IC"}
_DATE_UNITS = frozenset(("년", "년도", "월", "일", "분기", "학년도", "회계연도"))
_SUFFIXES = frozenset(("XSN", "XSV", "XSA", "XSM"))
_GIVING = frozenset(("주", "드리"))
_REQUESTS = frozenset(
    ("어", "어요", "세요", "으세요", "십시오", "시", "ᆯ래", "ᆯ래요", "ᆯ까", "ᆯ까요", "라", "오")
)
"""What stands behind 주 in "해 줘", which only asks: "빌려주나요" is another verb."""
_ENDINGS = {
    **dict.fromkeys(("면", "으면", "ᆫ다면", "다면", "는다면", "라면", "이라면"), "<if>"),
    **dict.fromkeys(("어야", "아야", "여야", "어야지"), "<must>"),
    **dict.fromkeys(("어도", "아도", "여도", "더라도"), "<even>"),
    **dict.fromkeys(("려면", "으려면"), "<for>"),
    **dict.fromkeys(("어", "아", "여", "게", "지", "고", "며", "는데", "ᆫ데", "은데", "어서"), ""),
}
_NEGATIONS = frozenset(("안", "못", "않", "말", "못하", "아니"))
_TENSES = {"었": "<past>", "았": "<past>", "겠": "<will>"}
_TIMES = {"던": "<past>", "ᆫ": "<done>", "은": "<done>", "ᆯ": "<will>", "을": "<will>"}
_PARTICLES = {
    **dict.fromkeys(("은", "는", "요", "이요", "의"), ""),
    **dict.fromkeys(("와", "과", "랑", "이랑", "하고"), "<와>"),
    **dict.fromkeys(("에게", "한테", "께", "에게로"), "<에게>"),
    **dict.fromkeys(("로", "으로"), "<로>"),
    **dict.fromkeys(("나", "이나"), "<나>"),
    **dict.fromkeys(("에서", "서"), "<에서>"),
}
_ROLES = {
    **dict.fromkeys(("이", "가", "께서"), "subject"),
    **dict.fromkeys(("을", "를"), "object"),
    "에": "place",
}


def _read_morphemes(found: Sequence[Morpheme], *, asks: bool) -> Iterator[_Piece]:
    """What counts of a question's morphemes. `asks`: its end was not taken off as mere asking."""
    for at, (form, tag, *_) in enumerate(found):
        after = found[at + 1] if at + 1 < len(found) else None
        before = found[at - 1] if at else None
        if tag in _KEPT:
            yield from _read_word(form, tag, before, after)
        elif tag in {"VX", "VCN"}:
            yield from _read_auxiliary(form, after)
        elif tag in _SUFFIXES and form not in {"하", "들"}:
            yield _Piece(f"<{form}>", "mark")
        elif tag in {"JKS", "JKO"} or (tag == "JKB" and form == "에"):
            yield _Piece(_ROLES.get(form, form), "role")
        elif tag == "EF" and asks:
            yield _Piece("<says>", "mark")
        elif sign := _find_sign(form, tag, before, after):
            yield _Piece(sign, "mark")


def _read_auxiliary(form: str, after: Morpheme | None) -> Iterator[_Piece]:
    is_request = after is not None and after.form in _REQUESTS
    if form in _NEGATIONS:
        yield _Piece("<not>", "mark")
    elif form not in _EMPTY_VERBS and not (form in _GIVING and is_request):
        yield _Piece(form)


def _find_sign(form: str, tag: str, before: Morpheme | None, after: Morpheme | None) -> str:
    """What a particle or an ending says beside its word; empty for those that only join."""
    if tag in {"JX", "JKB", "JC", "JKG", "JKQ"}:
        return _PARTICLES.get(form, f"<{form}>")
    if tag == "EC":
        return _ENDINGS.get(form, f"<{form}>")
    if tag == "EP":
        return _TENSES.get(form, "")
    if tag == "ETM" and before is not None and before.tag in {"VV", "XSV", "VX"}:
        is_able = after is not None and after.form == "수"  # 할 수 있다 tells no time
        return "" if is_able else _TIMES.get(form, "")
    return ""


def _read_word(
    form: str, tag: str, before: Morpheme | None, after: Morpheme | None
) -> Iterator[_Piece]:
    if form in _NEGATIONS and tag == "MAG":
        yield _Piece("<not>", "mark")
    elif form in _QUESTION_WORDS and tag in {"NP", "NNG", "MAG", "MM", "VA"}:
        yield _Piece(f"<{_QUESTION_WORDS[form]}>", "question")
    elif tag == "SN" and after is not None and after.form in _DATE_UNITS:
        yield _Piece(f" {form}{after.form} ", "date")
    elif not _is_empty(form, tag, before):
        written = _SAME_WORDS.get(form, form)
        yield _Piece(written if HANGUL.fullmatch(written) else f" {written} ")


def _is_empty(form: str, tag: str, before: Morpheme | None) -> bool:
    if tag == "VV" and form in {"하", "되"}:
        obliges = (
            before is not None and before.tag == "EC" and _ENDINGS.get(before.form) == "<must>"
        )
        return form == "하" or obliges  # "해야 되나" is "해야 하나"
    if tag == "NNB" and form in _DATE_UNITS:
        return before is not None and before.tag == "SN"  # it went with its number
    return form in _EMPTY_KO or (tag == "XPN" and form == "제")


# Languages that write blanks between words

_WORD = re.compile(r"[^\W_]+(?:[.,'’/&-][^\W_]+)*(?:\+\+|[#%])?|[^\w\s?!.,;:\"“”()…]")
_NOT = re.compile(r"n['’]t$|(?<=^can)not$")
_CUT = {"ca": "can", "wo": "will", "sha": "shall"}
_SHORT = re.compile(r"['’](?:s|re|ll|ve|d|m)$")
_HOW = frozenset(("much", "many", "long", "often", "far", "old", "big", "soon", "late"))
_QUESTIONS_EN = frozenset(("when", "who", "whom", "whose", "where", "why", "which", "what", "how"))
_YEAR = re.compile(r"(?:19|20)\d\d")
_BEING = {"is": "be", "are": "be", "am": "be", "'s": "be", "were": "was"}
_OWN = frozenset(("i", "we", "me", "us", "my", "our"))
_OTHERS = frozenset(("you", "your"))
_NO_PLURALS = frozenset(
    (
        "customs",
        "goods",
        "damages",
        "arms",
        "premises",
        "savings",
        "means",
        "news",
        "minutes",
        "works",
    )
)
"""Words that mean something else than what they would be the plural of."""


def _read_words(text: str) -> _ComparedQuestion | None:
    """What counts of a question in words between blanks; endings of verbs do."""
    said = list(_split_words(_IS["asking_en"].sub("", text, count=1)))
    is_exchange = not _OWN.isdisjoint(said) and not _OTHERS.isdisjoint(said)
    pieces: list[_Piece] = []
    for at, word in enumerate(said):
        after = said[at + 1] if at + 1 < len(said) else ""
        if word in _EMPTY_EN or (word in _OWN | _OTHERS and not is_exchange):
            continue
        if word in {"in", "for"} and _YEAR.fullmatch(after):
            continue  # "the budget in 2023", "the 2023 budget"
        if _YEAR.fullmatch(word):
            pieces.append(_Piece(f" {word}", "date"))
        elif word in _QUESTIONS_EN:
            pieces.append(_Piece(f" {word}{after if after in _HOW else ''}", "question"))
        else:
            is_plain = word in _NO_PLURALS or not word.isalpha()
            pieces.append(_Piece(f" {word if is_plain else to_singular(word)}"))
    return _to_compared_question(pieces)


def _split_words(text: str) -> Iterator[str]:
    for found in _WORD.finditer(text):
        word = found[0].lower() if found[0].lower() in _SMALL_WORDS else found[0]
        if _NOT.search(word):
            cut = _NOT.sub("", word)
            yield from (_CUT.get(cut, _BEING.get(cut, cut)), "not")
            continue
        bare = _SHORT.sub("", word)
        yield _BEING.get(bare, bare)
        if bare in _QUESTIONS_EN and word.endswith(("'s", "’s")):
            yield "be"


_SMALL_WORDS = _EMPTY_EN | _OWN | _OTHERS | _QUESTIONS_EN
