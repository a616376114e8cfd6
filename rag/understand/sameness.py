"""Whether two questions ask the same, judged by their words.

A stored answer is given to another question only if nothing that could change the answer differs.
An embedder puts "2023년 예산" close to "2024년 예산"; here they differ, as do other names, numbers,
units, negations, comparatives and question words. Politeness, endings, articles and spaces are not
compared, nor one noun's particle of subject or topic, nor the position of a single date or question
word.
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
"""Longest question that is compared by its words; longer ones must be spelled the same."""

MAX_SIGN_LETTERS = 3
"""Longest Latin word whose case matters: it may stand for a unit or a country."""

_LETTERS = re.compile(r"[A-Za-z]+")
_END = re.compile(r"[\s?!.。？！…~]+$")
_BLANKS = re.compile(r"\s+")
_PATTERNS = load_patterns("sameness")
_RULES = load_rules("sameness")
_EMPTY_KO = frozenset(_RULES["words"]["empty_ko"])
_EMPTY_EN = frozenset(_RULES["words"]["empty_en"])
_EMPTY_VERBS = frozenset(_RULES["words"]["empty_verbs"])


def _invert(lists: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {word: name for name, words in lists.items() for word in words}


_SAME_WORDS = _invert(_RULES["classes"])
_QUESTION_WORDS = _invert(_RULES["question_words"])


def fold_question(text: str) -> str:
    """A question in lower case and without signs at its end, to compare it letter by letter.

    Short words keep their case, except for the first: Mb is not MB, and US is not us.
    """
    clean = _BLANKS.sub(" ", unicodedata.normalize("NFC", text)).strip()
    return _fold_case(_END.sub("", clean) or clean)


def _fold_case(text: str) -> str:
    return _LETTERS.sub(lambda match: _fold_word(match[0], is_first=not match.start()), text)


def _fold_word(word: str, *, is_first: bool) -> str:
    if len(word) > MAX_SIGN_LETTERS or (is_first and (len(word) == 1 or not word.isupper())):
        return word.lower()
    return word


def is_dependent_on_today(text: str) -> bool:
    """Whether the answer depends on the day on which the question is asked."""
    return bool(_PATTERNS["today"].search(text))


def is_same_question(question: str, other_question: str) -> bool:
    """Whether two questions ask the same, word by word; False if in doubt."""
    if fold_question(question) == fold_question(other_question):
        return True
    if max(len(question), len(other_question)) > MAX_CHARACTERS:
        return False
    first, second = _read_question(question), _read_question(other_question)
    if first is None or second is None:
        return False
    return (
        first.core == second.core
        and first.movable == second.movable
        and _has_same_roles(first, second)
    )


@dataclass(frozen=True, slots=True)
class _ComparedQuestion:
    """The words of a question that are compared.

    `core` are those whose order matters, joined; `movable` may stand anywhere. `roles` are the
    roles of nouns, given by their particles, by offset in `core`: the offset is the same however
    compounds are split.
    """

    core: str
    movable: tuple[str, ...]
    roles: Mapping[int, str]


_TOPIC = "topic"


def _has_same_roles(first: _ComparedQuestion, second: _ComparedQuestion) -> bool:
    """Whether each noun has the same role in both questions.

    One subject or object may be the topic instead; with two, they may have changed places.
    """
    change_count = 0
    for place in first.roles.keys() | second.roles.keys():
        first_role, second_role = first.roles.get(place, _TOPIC), second.roles.get(place, _TOPIC)
        if first_role == second_role:
            continue
        if _TOPIC not in (first_role, second_role) or "place" in (first_role, second_role):
            return False
        change_count += 1
    return change_count <= 1


@functools.lru_cache(maxsize=256)
def _read_question(text: str) -> _ComparedQuestion | None:
    """The words of a question to compare; None if there are none or the analyser is missing."""
    clean = _fold_case(unicodedata.normalize("NFC", text).strip())
    if not HANGUL.search(clean):
        return _read_words(clean)
    stripped = _PATTERNS["asking_ko"].sub("", clean, count=1)
    morphemes = tokenize.analyse_morphemes(stripped)
    if (
        morphemes and morphemes[-1].tag == "EC"
    ):  # "...면 어떻게 되나요" does more than mark a question
        stripped, morphemes = clean, tokenize.analyse_morphemes(clean)
    if not morphemes:
        return None
    return _to_compared_question([*_read_morphemes(morphemes, has_ending=stripped == clean)])


@dataclass(frozen=True, slots=True)
class _Piece:
    """A word, or a sign for its particle or ending.

    `kind`: "word", "mark", "question", "date" or "role".
    """

    text: str
    kind: str = "word"


_ATTACHED_PARTICLES = frozenset(("<부터>", "<까지>", "<에서>", "<에게>", "<로>", "<와>", "<보다>"))
"""Particles that move with the word before them: "언제까지"."""
_IMPLIED_SIGNS = {"<past>": "date", "<says>": "question"}
"""Signs that add nothing if the question has a date, or a question word."""


def _to_compared_question(pieces: Sequence[_Piece]) -> _ComparedQuestion | None:
    """The question with these pieces. Only a single date or a single question word is movable."""
    kinds = [piece.kind for piece in pieces]
    free = {kind for kind in ("question", "date") if kinds.count(kind) == 1}
    core, movable, roles, place = list[str](), list[str](), dict[int, str](), 0
    is_moving = False
    for piece in pieces:
        if _IMPLIED_SIGNS.get(piece.text) in kinds:
            continue
        if piece.kind in free:
            is_moving = True
        elif piece.kind == "role":
            if not is_moving:
                roles[place] = piece.text
            if not is_moving or piece.text == "place":  # "2024년에" is "2024년"
                continue
        elif not (is_moving and piece.text in _ATTACHED_PARTICLES):
            is_moving = False
        if is_moving:
            movable.append(piece.text)
        else:
            core.append(piece.text)
            place += len(piece.text)
    return _ComparedQuestion("".join(core), tuple(movable), roles) if core or movable else None


# Korean

_CONTENT_TAGS = frozenset(
    ("NNG", "NNP", "NR", "XR", "SL", "SH", "SN", "NNB", "XPN", "MM", "MAG", "MAJ", "VV", "VA", "NP")
) | {"SW", "SO", "UN", "W_SERIAL", "W_URL", "W_EMAIL", "W_HASHTAG", "W_MENTION", "IC"}
_DATE_UNITS = frozenset(("년", "년도", "월", "일", "분기", "학년도", "회계연도"))
_SUFFIX_TAGS = frozenset(("XSN", "XSV", "XSA", "XSM"))
_GIVING_VERBS = frozenset(("주", "드리"))
_REQUEST_ENDINGS = frozenset(
    ("어", "어요", "세요", "으세요", "십시오", "시", "ᆯ래", "ᆯ래요", "ᆯ까", "ᆯ까요", "라", "오")
)
"""Endings of 주 in a mere request, "해 줘"; in "빌려주나요" it is part of another verb."""
_ENDINGS = {
    **dict.fromkeys(("면", "으면", "ᆫ다면", "다면", "는다면", "라면", "이라면"), "<if>"),
    **dict.fromkeys(("어야", "아야", "여야", "어야지"), "<must>"),
    **dict.fromkeys(("어도", "아도", "여도", "더라도"), "<even>"),
    **dict.fromkeys(("려면", "으려면"), "<for>"),
    **dict.fromkeys(("어", "아", "여", "게", "지", "고", "며", "는데", "ᆫ데", "은데", "어서"), ""),
}
_NEGATIONS = frozenset(("안", "못", "않", "말", "못하", "아니"))
_TENSES = {"었": "<past>", "았": "<past>", "겠": "<will>"}
_MODIFIER_TENSES = {"던": "<past>", "ᆫ": "<done>", "은": "<done>", "ᆯ": "<will>", "을": "<will>"}
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


def _read_morphemes(morphemes: Sequence[Morpheme], *, has_ending: bool) -> Iterator[_Piece]:
    """The pieces of a question's morphemes. `has_ending`: its question ending was not removed."""
    for index, (form, tag, *_) in enumerate(morphemes):
        after = morphemes[index + 1] if index + 1 < len(morphemes) else None
        before = morphemes[index - 1] if index else None
        if tag in _CONTENT_TAGS:
            yield from _read_word(form, tag, before, after)
        elif tag in {"VX", "VCN"}:
            yield from _read_auxiliary(form, after)
        elif tag in _SUFFIX_TAGS and form not in {"하", "들"}:
            yield _Piece(f"<{form}>", "mark")
        elif tag in {"JKS", "JKO"} or (tag == "JKB" and form == "에"):
            yield _Piece(_ROLES.get(form, form), "role")
        elif tag == "EF" and has_ending:
            yield _Piece("<says>", "mark")
        elif sign := _find_sign(form, tag, before, after):
            yield _Piece(sign, "mark")


def _read_auxiliary(form: str, after: Morpheme | None) -> Iterator[_Piece]:
    is_request = after is not None and after.form in _REQUEST_ENDINGS
    if form in _NEGATIONS:
        yield _Piece("<not>", "mark")
    elif form not in _EMPTY_VERBS and not (form in _GIVING_VERBS and is_request):
        yield _Piece(form)


def _find_sign(form: str, tag: str, before: Morpheme | None, after: Morpheme | None) -> str:
    """The sign for a particle or ending; empty for those that only join words."""
    if tag in {"JX", "JKB", "JC", "JKG", "JKQ"}:
        return _PARTICLES.get(form, f"<{form}>")
    if tag == "EC":
        return _ENDINGS.get(form, f"<{form}>")
    if tag == "EP":
        return _TENSES.get(form, "")
    if tag == "ETM" and before is not None and before.tag in {"VV", "XSV", "VX"}:
        is_able = after is not None and after.form == "수"  # 할 수 있다 tells no time
        return "" if is_able else _MODIFIER_TENSES.get(form, "")
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
    elif not _is_contentless(form, tag, before):
        written = _SAME_WORDS.get(form, form)
        yield _Piece(written if HANGUL.fullmatch(written) else f" {written} ")


def _is_contentless(form: str, tag: str, before: Morpheme | None) -> bool:
    if tag == "VV" and form in {"하", "되"}:
        is_obligation = (
            before is not None and before.tag == "EC" and _ENDINGS.get(before.form) == "<must>"
        )
        return form == "하" or is_obligation  # "해야 되나" is "해야 하나"
    if tag == "NNB" and form in _DATE_UNITS:
        return before is not None and before.tag == "SN"  # it went with its number
    return form in _EMPTY_KO or (tag == "XPN" and form == "제")


# Languages that put spaces between words

_WORD = re.compile(r"[^\W_]+(?:[.,'’/&-][^\W_]+)*(?:\+\+|[#%])?|[^\w\s?!.,;:\"“”()…]")
_NEGATION = re.compile(r"n['’]t$|(?<=^can)not$")
_CUT_AUXILIARIES = {"ca": "can", "wo": "will", "sha": "shall"}
_CONTRACTION = re.compile(r"['’](?:s|re|ll|ve|d|m)$")
_HOW_ADJECTIVES = frozenset(("much", "many", "long", "often", "far", "old", "big", "soon", "late"))
_QUESTION_WORDS_EN = frozenset(
    ("when", "who", "whom", "whose", "where", "why", "which", "what", "how")
)
_YEAR = re.compile(r"(?:19|20)\d\d")
_BE_FORMS = {"is": "be", "are": "be", "am": "be", "'s": "be", "were": "was"}
_FIRST_PERSON = frozenset(("i", "we", "me", "us", "my", "our"))
_SECOND_PERSON = frozenset(("you", "your"))
_NOT_PLURALS = frozenset(
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
"""Words in -s that mean something else than their apparent singular."""


def _read_words(text: str) -> _ComparedQuestion | None:
    """The words to compare of a question in such a language; endings of verbs are kept."""
    words = list(_split_words(_PATTERNS["asking_en"].sub("", text, count=1)))
    is_exchange = not _FIRST_PERSON.isdisjoint(words) and not _SECOND_PERSON.isdisjoint(words)
    pieces: list[_Piece] = []
    for index, word in enumerate(words):
        after = words[index + 1] if index + 1 < len(words) else ""
        if word in _EMPTY_EN or (word in _FIRST_PERSON | _SECOND_PERSON and not is_exchange):
            continue
        if word in {"in", "for"} and _YEAR.fullmatch(after):
            continue  # "the budget in 2023", "the 2023 budget"
        if _YEAR.fullmatch(word):
            pieces.append(_Piece(f" {word}", "date"))
        elif word in _QUESTION_WORDS_EN:
            pieces.append(_Piece(f" {word}{after if after in _HOW_ADJECTIVES else ''}", "question"))
        else:
            is_plain = word in _NOT_PLURALS or not word.isalpha()
            pieces.append(_Piece(f" {word if is_plain else to_singular(word)}"))
    return _to_compared_question(pieces)


def _split_words(text: str) -> Iterator[str]:
    for match in _WORD.finditer(text):
        word = match[0].lower() if match[0].lower() in _FUNCTION_WORDS else match[0]
        if _NEGATION.search(word):
            stem = _NEGATION.sub("", word)
            yield from (_CUT_AUXILIARIES.get(stem, _BE_FORMS.get(stem, stem)), "not")
            continue
        bare = _CONTRACTION.sub("", word)
        yield _BE_FORMS.get(bare, bare)
        if bare in _QUESTION_WORDS_EN and word.endswith(("'s", "’s")):
            yield "be"


_FUNCTION_WORDS = _EMPTY_EN | _FIRST_PERSON | _SECOND_PERSON | _QUESTION_WORDS_EN
