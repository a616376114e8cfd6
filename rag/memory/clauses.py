"""A message's own words, its clauses, and the noun phrases in them: grammar for `extract`.

Korean is read by its morphemes, English by its surface.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rag.lexicon import load_patterns
from rag.tokenize import korean
from rag.tokenize.korean import Morpheme

MAX_MESSAGE_CHARACTERS = 1500
"""A longer message includes a pasted text; only its first and last paragraph are read."""
MAX_PARAGRAPH_CHARACTERS = 400
MAX_QUOTED_CHARACTERS = 12
"""Longest quoted words that may be a name; longer ones are a quotation."""
MIN_SPEAKERS = 2
"""With this many speakers, "A: ... B: ..." is a transcript and not the user's own words."""
OMITTED = "…"
"""Replaces what was left out of a message."""

_NOUN_TAGS = frozenset("NNG NNP NNB NR SL SN SH XR XSN XPN SO W_SERIAL".split())  # noqa: SIM905
_JOINING_ENDS = frozenset("고 는데 은데 ᆫ데 지만 며 으며 거든 어서 아서 니까 으니까 다가 구".split())  # noqa: SIM905
_OWN_PRONOUNS = frozenset(("나", "저", "내", "제", "본인"))
_TOPIC_PARTICLES = frozenset(("은", "는", "ᆫ", "이", "가", "께서", "도"))
_JOINERS = frozenset(("와", "과", "랑", "이랑", "하고", "및", "또는", ",", "·", "/"))
_ASKING_ENDS = re.compile(r"(?:까|까요|니|냐|나|나요|가요|는가|은가|ᆫ가|ᆫ가요|느냐|을래|ᆯ래|으냐)$")
_POLITE_REQUEST = re.compile(r"(?:줄래|주실래|주시겠|줄\s?수\s?있)\S*\s*\?\s*$")
"""A question in form only: "불러줄래요?"."""
_SPAN = re.compile(r"\s*(?:약\s?)?\d+\s?(?:년|개월|달|주|일|분기|시간)")
_TIMES = frozenset(("때", "땐", "경우"))
_LASTING = frozenset(("편", "상태", "중", "지", "체질", "상황"))
"""Nouns after a predicate that only mark it as lasting: "먹고 있는 중"."""
_FENCE = re.compile(r"```.*?(?:```|\Z)|^\s*>.*$|^\s*\|.*\|\s*$", re.DOTALL | re.MULTILINE)
_QUOTE = re.compile(
    r"“([^”]*)”|\"([^\"\n]*)\"|「([^」]*)」|『([^』]*)』|‘([^’\n]{2,})’"
    r"|(?<!\w)'([^'\n]{2,})'(?!\w)"
)
_LIST_KO = re.compile(r"\s*(?:,|·|및|또는)\s*|(?<=[가-힣])(?:이랑|랑|하고|와|과)\s+")
_LIST_EN = re.compile(r"\s*,\s*(?:and|or|&)?\s*|\s+(?:and|or|&)\s+(?:also\s+)?", re.IGNORECASE)
_SPLIT_EN = re.compile(
    r"\s*;\s*|,?\s+(?:but|so|because|although|however|while|whereas)\s+(?=\w)"
    r"|,?\s+and\s+(?=(?:i|my|our|we|he|she|they|his|her|their|is|can|do|what|how|please|remember"
    r"|that)\b)"
    r"|,\s+(?=(?:i|my|our|he|she|is|can|could|do|does|what|how|should|so|please|am|are|will|would"
    r"|which|remember)\b)",
    re.IGNORECASE,
)
_ARTICLE_EN = re.compile(r"^(?:and|or|the|an?|any|all|most|some|also|to|both)\s+", re.IGNORECASE)
_TAIL_EN = re.compile(
    r"\s+(?:last|since|for|in|when|two|three|four|five|several|yesterday|recently|years?|months?"
    r"|ago|today|now|as|at|on|this|every|during|after|before|again|too|either|anymore|any more"
    r"|lately|badly|really|because|from|which|so)\b.*$",
    re.IGNORECASE,
)
_LEADING_KO = re.compile(
    r"^(?:저는|나는|전|난|제가|내가|나|저|저도|나도|우리|저희|요즘|요새|오늘|어제|그제|지금|현재|최근|작년"
    r"|올해|평소|원래|사실|아침|저녁|밤|낮|이번|지난달|지난주|예전|이전|옛날|항상|늘|계속|매일|그리고|그래서"
    r"|참|또|다시|이제|살|세|년|달|주|일|월|개월|전|부터|\d+(?:살|세|년|일|주|달|개월)\S*"
    r"|\S*(?:팀|본부|사업부|실))$"
)
"""Words before a thing that are not part of its name."""


@dataclass(frozen=True, slots=True)
class NounPhrase:
    """A topic or subject of a clause, from `start` to the end of its particle.

    `head` is its last word. `own`: it begins or ends with a first-person pronoun.
    """

    head: str
    words: tuple[str, ...]
    start: int
    end: int
    own: bool


@dataclass(frozen=True, slots=True)
class Clause:
    """A part of a sentence with one predicate; `before` is the sentence up to it."""

    text: str
    sentence: str
    language: str
    before: str = ""
    asks: bool = False
    supposes: bool = False
    morphemes: tuple[Morpheme, ...] = field(default=())
    topics: tuple[NounPhrase, ...] = field(default=())

    @property
    def is_about_self(self) -> bool:
        """Whether it contains a first-person pronoun."""
        return any(
            morpheme.form in _OWN_PRONOUNS
            and (morpheme.tag == "NP" or (not morpheme.start and morpheme.tag in {"IC", "MM"}))
            for morpheme in self.morphemes
        )


def find_own_words(text: str) -> str:
    """The message without quotations, code, tables and pasted text."""
    text = _FENCE.sub("\n", text)
    if len(text) > MAX_MESSAGE_CHARACTERS:
        parts = [part for part in re.split(r"\n\s*\n", text) if part.strip()]
        ends = [parts[0], parts[-1]] if len(parts) > 1 else []
        text = "\n\n".join(part for part in ends if len(part) <= MAX_PARAGRAPH_CHARACTERS)
    patterns = load_patterns("profile")
    introduction = patterns["brings"].search(text)
    if introduction:
        text = text[: introduction.end()]
    speakers = list(patterns["speaker"].finditer(text))
    if len({match["who"] for match in speakers}) >= MIN_SPEAKERS:
        text = text[: speakers[0].start("who")]
    return _QUOTE.sub(_keep_name, text)


def _keep_name(match: re.Match[str]) -> str:
    quoted_text = next((group for group in match.groups() if group), "")
    is_short = len(quoted_text) <= MAX_QUOTED_CHARACTERS and not re.search(
        r"[.!?]|\s\S+\s", quoted_text
    )
    return quoted_text if is_short else OMITTED


def detect_language(text: str) -> str:
    """The language whose rules apply to a sentence: "ko" if it contains Hangul, else "en"."""
    return "ko" if re.search("[가-힣]", text) else "en"


def is_asking(sentence: str, language: str) -> bool:
    """Whether a sentence is a question."""
    if language == "ko" and _POLITE_REQUEST.search(sentence):
        return False
    if load_patterns("profile")[f"asks_{language}"].search(sentence):
        return True
    if language != "ko":
        return False
    ends = [morpheme for morpheme in korean.analyse_question(sentence) if morpheme.tag == "EF"]
    return bool(ends and _ASKING_ENDS.search(ends[-1].form))


def is_about_time(text: str) -> bool:
    """Whether the words after "앞으로" or "항상" describe things instead of a wish of the speaker.

    They do if they are a verb that modifies a noun ("남은 일정", "지켜야 하는 수칙"), an indirect
    question ("어떻게 되는지") or a span of time ("3년간").
    """
    if _SPAN.match(text):
        return True
    morphemes = korean.analyse_question(text.strip())
    is_verb = False
    for index, morpheme in enumerate(morphemes):
        if morpheme.tag in {"VV", "XSV", "VX", "VV-I", "VV-R"}:
            is_verb = True
        elif morpheme.tag == "ETM" and is_verb:
            noun = morphemes[index + 1].form if index + 1 < len(morphemes) else ""
            return noun not in _TIMES
        elif morpheme.tag == "EC" and morpheme.form.endswith("지"):
            return True
        elif morpheme.tag in {"JKO", "JX", "JKB", "JKS", "VA", "EF"} or (
            morpheme.tag == "EC" and not morpheme.form.endswith(("어", "아", "야"))
        ):
            return False
    return False


def split_clauses(sentence: str, language: str) -> Iterator[Clause]:
    """The clauses of a sentence in order; in a question only the one that asks is marked."""
    patterns = load_patterns("profile")
    asks = is_asking(sentence, language)
    spans = list(_split_korean(sentence) if language == "ko" else _split_english(sentence))
    for start, end in spans:
        text = sentence[start:end]
        morphemes = tuple(korean.analyse_question(text)) if language == "ko" else ()
        has_condition = any(
            morpheme.tag == "EC" and morpheme.form.endswith("면") for morpheme in morphemes
        )
        is_asked = asks and (start, end) == spans[-1]
        yield Clause(
            text,
            sentence,
            language,
            before=sentence[:start],
            asks=is_asked or (language == "en" and bool(patterns["asks_en"].search(text))),
            supposes=has_condition or bool(patterns[f"supposes_{language}"].search(text)),
            morphemes=morphemes,
            topics=tuple(_find_topics(text, morphemes)),
        )


def _split_korean(sentence: str) -> Iterator[tuple[int, int]]:
    """Start and end of each clause: one ends after a connective that joins full clauses."""
    morphemes = korean.analyse_question(sentence)
    start = 0
    for morpheme, following in itertools.pairwise(morphemes):
        if morpheme.tag == "EC" and morpheme.form in _JOINING_ENDS:
            is_comma = following.tag == "SP"
            is_helped = following.tag == "VX" or following.form in {"있", "싶", "나", "보"}
            if (sentence[morpheme.end : following.start].isspace() or is_comma) and not is_helped:
                yield start, morpheme.end
                start = following.end if is_comma else following.start
        elif morpheme.tag == "MAJ" and morpheme.start > start:
            yield start, morpheme.start
            start = morpheme.start
        elif morpheme.tag in {"EF", "EC"} and following.form == ",":
            yield start, following.start
            start = following.end
    if start < len(sentence):
        yield start, len(sentence)


def _split_english(sentence: str) -> Iterator[tuple[int, int]]:
    start = 0
    for match in _SPLIT_EN.finditer(sentence):
        if match.start() > start:
            yield start, match.start()
        start = match.end()
    if start < len(sentence):
        yield start, len(sentence)


def _find_topics(text: str, morphemes: Sequence[Morpheme]) -> Iterator[NounPhrase]:
    """The noun phrases before topic and subject particles."""
    for index, morpheme in enumerate(morphemes):
        if morpheme.tag not in {"JX", "JKS"} or morpheme.form not in _TOPIC_PARTICLES:
            continue
        first = index
        while first and (
            morphemes[first - 1].tag in _NOUN_TAGS or morphemes[first - 1].tag in {"NP", "JKG"}
        ):
            first -= 1
        words = [item.form for item in morphemes[first:index] if item.tag not in {"JKG", "XSN"}]
        if not words:
            continue
        spelled_words = text[morphemes[first].start : morpheme.start].split()
        is_own = words[0] in _OWN_PRONOUNS or words[-1] in _OWN_PRONOUNS
        head = spelled_words[-1] if spelled_words else words[-1]
        yield NounPhrase(head, tuple(words), morphemes[first].start, morpheme.end, is_own)


def is_modifying_noun(clause: Clause, end: int) -> bool:
    """Whether the predicate that ends near `end` modifies a noun: "알레르기가 있는 사람".

    Not in "나는 서울에 사는 개발자야", which is about the user all the same.
    """
    ends = [
        index
        for index, morpheme in enumerate(clause.morphemes)
        if morpheme.start >= end - 1 and morpheme.tag in {"ETM", "EC", "EF", "ETN"}
    ]
    following = clause.morphemes[ends[0] + 1 :] if ends else ()
    if not following or clause.morphemes[ends[0]].tag != "ETM":
        return False
    if clause.is_about_self and _is_ending_in_copula(following):
        return False
    noun = following[0]
    is_own = noun.tag == "NP" and noun.form in _OWN_PRONOUNS
    return not (noun.tag == "NNB" or noun.form in _LASTING or is_own)


def _is_ending_in_copula(morphemes: Sequence[Morpheme]) -> bool:
    following = itertools.dropwhile(lambda morpheme: morpheme.tag in _NOUN_TAGS, morphemes)
    return next((morpheme.tag for morpheme in following), "") == "VCP"


# Things that are named


def find_items_before(clause: Clause, end: int) -> list[str]:
    """The things named directly before an offset: a noun phrase, or several joined ones."""
    if clause.language == "en":
        return split_items(clause.text[:end], "en")
    morphemes = [
        morpheme for morpheme in clause.morphemes if morpheme.end <= end and morpheme.start < end
    ]
    while morphemes and morphemes[-1].tag in {"JKO", "JX", "JKS", "JKB", "VCP"}:
        morphemes.pop()
    items: list[list[Morpheme]] = [[]]
    for morpheme in reversed(morphemes):
        current = items[-1]
        if morpheme.form in _JOINERS and current:
            items.append([])
        elif (
            morpheme.tag in _NOUN_TAGS
            or morpheme.tag == "SS"
            or (morpheme.tag == "ETM" and current)
        ):
            current.insert(0, morpheme)
        elif morpheme.tag in {"VA", "XSA"} and current and current[0].tag == "ETM":
            current.insert(0, morpheme)  # "매운 음식"
        else:
            break
    texts: list[str] = []
    for item in reversed(items):
        phrase = list(itertools.dropwhile(lambda morpheme: morpheme.tag in {"ETM", "SS"}, item))
        if phrase:
            texts.append(_clean_item(clause.text[phrase[0].start : phrase[-1].end]))
    return [one for one in texts if one]


def split_items(text: str, language: str) -> list[str]:
    """The items of an enumeration such as "A와 B" or "A, B and C"."""
    if language == "ko":
        return [clean for part in _LIST_KO.split(text) if (clean := _clean_item(part))]
    items = []
    for part in _LIST_EN.split(text):
        clean = _TAIL_EN.sub("", part).strip(" .,;:!?\"'")
        while (shorter := _ARTICLE_EN.sub("", clean)) != clean:
            clean = shorter
        if clean:
            items.append(clean)
    return items


def _clean_item(text: str) -> str:
    """An item without leading words for times or persons and without surrounding punctuation."""
    words = text.strip(" \"'“”‘’()[]·,.").split()
    while len(words) > 1 and _LEADING_KO.match(words[0]):
        words.pop(0)
    return " ".join(words)


def is_proper_name(item: str) -> bool:
    """Whether the last word of a Korean noun phrase is a name."""
    last = item.split()[-1:]
    return any(morpheme.tag == "NNP" for word in last for morpheme in korean.analyse_question(word))
