"""What a user says of himself, by rules: statements, and wishes to remember or to forget.

Only his own words count: no quotations, no text that he brings to be worked on, no questions or
suppositions, nothing of other people unless he asks for it. What people say is data,
`rag/lexicon/profile.toml`; what is worth keeping of it is data too, `rag/memory/packs`.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from rag import prompts
from rag.adapters.light import Light
from rag.lexicon import load_patterns
from rag.memory.clauses import (
    OMITTED,
    Clause,
    NounPhrase,
    detect_language,
    find_items_before,
    find_own_words,
    is_about_time,
    is_asking,
    is_modifying_noun,
    is_proper_name,
    split_clauses,
    split_items,
)
from rag.memory.profile import Effect, Packs, Policy, ProfileRule, Statement
from rag.tokenize import korean
from rag.tokenize.text import neutralise_text, split_sentences, to_letters

FACT = "fact"
"""The kind of what no other rule knows."""
MAX_SENTENCE_CHARACTERS = 300
MAX_VALUE_CHARACTERS = 200
MAX_WISH_CHARACTERS = 1000
MAX_ITEMS = 8
MAX_STATEMENTS = 20
MIN_KNOWN_LETTERS = 12
"""Of a sentence that is looked for in texts that are not the user's."""
MIN_FACT_LETTERS = 3
MIN_AFTER_CHARACTERS = 8
"""What stands behind "기억해" may be its own ending, or what is to be remembered."""
NEAR_CHARACTERS = 30
"""Before what an English rule found, within which a word such as "not" denies it."""
MAX_METRES = 3
"""A height below it is one in metres."""

MAX_READ_CHARACTERS = 1500
READ_TOKENS = 300
MODEL_CERTAINTY = 0.6
"""Of what a model noted: the rules are surer of what they hear."""
READ_SCHEMA = {
    "title": "profile",
    "type": "object",
    "properties": {
        "facts": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    name: {"type": "string"} for name in ("kind", "key", "value", "sentence")
                },
                "required": ["kind", "key", "value", "sentence"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["facts"],
    "additionalProperties": False,
}
_SELF_SAID = re.compile(
    r"(?<![가-힣])(?:나|저|내|제|우리|저희|전|난)(?:는|도|의|가|한테|에게|\s)|\b(?:i|my|our|we)\b|\bi['’]",
    re.IGNORECASE,
)
"""Nobody is asked about a message in which the user does not speak of himself."""

_ENDING_POLICIES = frozenset((Policy.PROTECTED, Policy.ACCUMULATE, Policy.FADING, Policy.TIMELINE))
_UNDENIED_KINDS = frozenset((FACT, "contraindication", "preference", "demographic"))
"""Kinds whose rules say yes and no themselves."""
_NATIVE_WORDS = (
    "열 스물 스무 서른 마흔 쉰 예순 일흔 여든 아흔 "
    "하나 한 둘 두 셋 세 넷 네 다섯 여섯 일곱 여덟 아홉"
)
_NATIVE_VALUES = (10, 20, 20, 30, 40, 50, 60, 70, 80, 90, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9)
_NATIVE_NUMBERS = dict(zip(_NATIVE_WORDS.split(), _NATIVE_VALUES, strict=True))
_NEEDED = re.compile(r"\s?(?:둬|두어|아|어)?야?\s?(?:할|하는|될|되는|하기|한다는)\s")
_REPORTED = re.compile(
    r"(?:두|둬|놔|놓)?(?:라|다|자|달라)?고\s?(?:말|했|하|부탁|시|전)|(?:는|던|은|을)\s"
)
_BARE_REMEMBER = re.compile(r"(?:기억|저장|메모|기록)해\s*$")
_WRITING = re.compile(r"(?:적어|써)\s?(?:줘|주세요)$")
"""As likely about how answers are written as about what is to be remembered."""
_ASKED_EN = re.compile(
    r"(?:\b(?:please|can you|could you|would you|will you|and|so|but|also|just)\s*)+$",
    re.IGNORECASE,
)
_EMPTY_EN = re.compile(
    r"(?:please|this|that|it|these|thanks?|thank you|for me|for later|ok(?:ay)?|\W)*", re.IGNORECASE
)
_EMPTY_KO = re.compile(
    r"(?:이거|이걸|그거|그걸|이것|그것|이건|이\s?점|위\s?내용|이\s?내용|(?:다음|아래)\s?(?:사항|내용|정보|것|거)|방금\s?(?:말한|한)\s?(?:것|거|말)?)?"
    r"(?:을|를|도|은)?\s?(?:꼭|좀|잘)?"
)
_QUOTED_FACT = re.compile(
    r"(?:(?:이?라는|다는|는|인)\s?(?:것|거|걸|점|사실|게)(?:을|를|도|만)?|(?:다|이?라)고)\s*(?:꼭|좀|잘)?$"
)
_DOING = re.compile(r"하(?:니까|거든|는데|니)\s*,?$")
_BECAUSE = re.compile(
    r"(?:으니까|이니까|니까|거든|인데|는데)\s*,?\s*(?:이거|이걸|그거|그걸|꼭|좀)?$"
)
_REQUEST_KO = re.compile(
    r"(?:줘|주세요|주십시오|주라|줄래\S*|주실래\S*|주시겠\S*|달라|해라|하세요|해봐|마|말아|라|세요|부탁\S*|써|바라\S*|바랍니다|원해\S*|원합니다|좋겠\S*)\s*[.!~?]*$"
)
_ASKED_POLITELY_EN = re.compile(r"\b(?:can|could|would|will) you\b|\bplease\b", re.IGNORECASE)
_LOOK_UP_KO = re.compile(
    r"(?:알려|찾아|보여|골라|설명|정리|요약|말|비교|뽑아|나열|확인|계산|추려)\S*\s?(?:줘|주세요|주십시오|줄래|주실|주시)"
)
"""May be wanted of documents as well: "앞으로 남은 일정을 알려줘" is no wish for all answers."""
_LASTING_TAIL = re.compile(r"[\s,]+(?:쭉|계속|내내)\s*[.!~]*$")
_TELLING_EN = re.compile(r"\s*(?:i|my|our|we|it|the|this|that|hi|hello)\b", re.IGNORECASE)
_SAYING_EN = re.compile(
    r"\s*(?:i|my|we|our|he|she|they|it)\b(?!.{0,6}(?:prefer|like))", re.IGNORECASE
)
_PERSON_EN = re.compile(
    r"\b(?:my|our|the) (?:mother|father|mom|dad|wife|husband|son|daughter|friend|brother|sister"
    r"|boss|colleague|partner|patient|dog|cat|grand\w+|uncle|aunt|child|baby)\b"
    r"|\b(?:he|she|they)\b",
    re.IGNORECASE,
)
_SELF_EN = re.compile(r"\bi\b|\bi['’]", re.IGNORECASE)
_SELF_BEFORE = re.compile(r"(?<![가-힣])(?:저는|나는|난|전|제가|내가|저|나)\s")
_PROFESSIONAL = re.compile(r"의사|약사|주치의|병원에서|간호사|한의사|선생님")
_COMPANION = re.compile(r"(?:와|과|랑|하고)\s")
_FORGETTING = re.compile(
    r"(?:잊|지워|삭제|없애|제거|초기화|빼)\S*|(?:기억|저장)하지\s?(?:마|말)\S*"
    r"|\b(?:forget|erase|delete|remove|clear|wipe|please)\b",
    re.IGNORECASE,
)
_FORGET_FILLERS = re.compile(
    r"(?<![가-힣])(?:그건|그거|이건|이거|그걸|이걸|그것|이것|아까|줘|주세요|버려|줄래|달라|내|제|나의|저의"
    r"|내가|제가|나|저|말한|얘기한|이야기한|했던|말했던|기억|기억에서|프로필에서|이제|좀|그냥|정보|거|것|걸|건"
    r"|는|은|을|를|있다는|이라는|라는|다는|위치|내용|사실|하지|마세요|마|말고|말아)(?![가-힣])"
    r"|\b(?:that|i['’]m|i|am|my|have|about|me|is|the|your|memory|from|please|it|fact|an?)\b",
    re.IGNORECASE,
)
_BARE_FACT = re.compile(r"^(.+?)\s(\S*\d\S*?)(?:이야|야|이에요|예요|입니다|이다|다)?$")
_FACT_EN = re.compile(
    r"(?:that\s+)?(.{2,60}?)\s+(?:is|are|was|has|have|starts?|ends?|lives?|opens?|closes?)\s+(.+)",
    re.IGNORECASE,
)
_NOW = re.compile(r"^(?:이제|지금은|오늘부터|앞으로는?|now)\s+", re.IGNORECASE)
_PREDICATE = re.compile(
    r"(?:에\s?있(?:습니다|어요?|음|다)|(?:이라|라|다|라고|이라고)는\s?(?:것|거|걸|점|사실)(?:을|를|은)?"
    r"|이?(?:야|에요|예요|입니다|임|다)|이고|인데|는\s?(?:것|거|걸)(?:을|를)?|(?:이라|라|다)고|이?라|을|를)"
    r"\s*[.!,~]*$"
)
_WISH_STOP_EN = frozenset(
    "please answer reply your with the when you use answers add include me to my a an don't do not"  # noqa: SIM905
    " i it".split()
)


class Wish(StrEnum):
    """What a message asks for beside any answer."""

    REMEMBER = "remember"
    FORGET = "forget"


@dataclass(frozen=True, slots=True)
class Extraction:
    """What a message holds for the profile.

    `forgets` are the words of wishes to forget (empty: what was told last), `everything`: all that
    is known. `wish` is set where the message is nothing but a wish, so that no other answer is
    waited for.
    """

    statements: tuple[Statement, ...] = ()
    forgets: tuple[str, ...] = ()
    everything: bool = False
    wish: Wish | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be kept or forgotten."""
        return not (self.statements or self.forgets or self.everything)


def extract_statements(text: str, packs: Packs, *, foreign: Collection[str] = ()) -> Extraction:
    """What the user's message says of himself.

    `foreign` are texts that are not his: documents and answers that he was shown.
    """
    return _MessageReader(packs, [to_letters(one) for one in foreign]).read(text)


def find_wish(text: str, packs: Packs) -> Extraction | None:
    """What a message holds that is nothing but a wish; None where something else is wanted."""
    known = load_patterns("profile")
    if len(text) > MAX_WISH_CHARACTERS or not any(
        known[f"{name}_{language}"].search(text)
        for name in ("remember", "forget", "standing")
        for language in ("ko", "en")
    ):
        return None
    read = extract_statements(text, packs)
    return read if read.wish else None


class _MessageReader:
    """Reads one message from its first sentence to its last."""

    def __init__(self, packs: Packs, foreign: Sequence[str]) -> None:
        self._packs = packs
        self._foreign = [one for one in foreign if one]
        self._known = load_patterns("profile")
        self._of_others = False
        self._found: list[Statement] = []
        self._forgets: list[str] = []
        self._everything = False
        self._wishes: list[Wish] = []
        self._told: list[str] = []
        """Sentences so far that no wish was in."""
        self._is_plain = True
        """Nothing so far has to be answered."""
        self._is_awaited = False
        """A wish stood before what it is about."""

    def read(self, text: str) -> Extraction:
        own = find_own_words(text)
        if any(self._known[f"remember_not_{one}"].search(own) for one in ("ko", "en")):
            named = [one for one in split_sentences(own) if self._is_naming_forgotten(one)]
            return Extraction(forgets=tuple(_to_forgotten(one) for one in named))
        for sentence in map(str.strip, split_sentences(own)):
            if len(sentence) <= MAX_SENTENCE_CHARACTERS:
                self._read_sentence(sentence, is_about_text=self._is_about_text(own))
            if self._is_about_text(sentence):
                break  # what follows is the text
        found = _merge_statements(self._found)
        wish = self._wishes[0] if self._wishes and self._is_plain else None
        if wish is Wish.REMEMBER and not found:
            wish = None
        statements = tuple(found[:MAX_STATEMENTS])
        return Extraction(statements, tuple(self._forgets), self._everything, wish)

    # one sentence

    def _read_sentence(self, sentence: str, *, is_about_text: bool) -> None:
        language = detect_language(sentence)
        if _is_shown(sentence, self._foreign):
            self._is_plain = False
            return
        if self._known["standing_alone"].match(sentence):
            self._is_awaited = False
            if self._told and self._read_standing_wish(f"{sentence} {self._told.pop()}", language):
                self._wishes.append(Wish.REMEMBER)
            return
        if self._read_forgetting(sentence, language):
            return
        body, explicit = self._find_remembered(sentence, language)
        if explicit and not body:
            self._apply_wish()
        elif not explicit and (
            is_about_text or self._known[f"remembers_{language}"].search(sentence)
        ):
            self._is_plain = False
        elif not explicit and self._known["reports"].search(sentence):
            self._is_plain = False
            if told := self._find_statement_before_report(sentence, language):
                self._extract_statements(told, language, explicit=False)
        else:
            if self._is_awaited and not explicit:
                explicit, self._is_awaited = True, False
            self._extract_statements(body, language, explicit=explicit)

    def _extract_statements(self, body: str, language: str, *, explicit: bool) -> None:
        """Keep what a sentence says, its wish to be remembered taken off."""
        if explicit:
            self._wishes.append(Wish.REMEMBER)
        if self._read_standing_wish(body, language):
            self._wishes.append(Wish.REMEMBER)
            return
        before = len(self._found)
        clauses = list(split_clauses(body, language))
        for clause in clauses:
            self._read_clause(clause, explicit=explicit)
        if explicit and len(self._found) == before:
            self._keep_fact(body, language)
        elif not explicit:
            if any(clause.asks for clause in clauses) or len(self._found) == before:
                self._is_plain = self._is_plain and self._is_plain_statement(body, language)
            self._told.append(body)

    def _find_statement_before_report(self, sentence: str, language: str) -> str:
        """What stands before the clause that names a text: only that may be the user's own."""
        report = self._known["reports"].search(sentence)
        place = report.start() if report else 0
        clauses = split_clauses(sentence, language)
        return max((one.before for one in clauses if len(one.before) <= place), key=len, default="")

    def _is_plain_statement(self, sentence: str, language: str) -> bool:
        """Whether a sentence only tells something: nothing has to be answered."""
        if is_asking(sentence, language):
            return False
        if language == "ko":
            return not _REQUEST_KO.search(sentence)
        return bool(_TELLING_EN.match(sentence))

    def _is_about_text(self, text: str) -> bool:
        """Whether something is wanted with a text; a wish for all answers is not that."""
        handled = any(self._known[f"handles_{one}"].search(text) for one in ("ko", "en"))
        return handled and not self._is_standing_wish(text)

    # wishes

    def _read_forgetting(self, sentence: str, language: str) -> bool:
        known = self._known
        found = known[f"forget_{language}"].search(sentence)
        if not found and self._is_naming_forgotten(sentence):
            self._forgets.append(_to_forgotten(sentence))
            self._is_plain = False
            return True
        if not found:
            return False
        if language == "ko":
            asks = is_asking(sentence, "ko") and not re.search(r"줄래|줄\s?수", sentence)
            if asks or known["forget_not_ko"].search(sentence):
                return False
            wanted = _FORGETTING.sub(" ", sentence)
        else:
            wanted = sentence[found.end() :].strip(" .!?,")
            if not known["forget_en_object"].search(wanted):
                return False
        self._wishes.append(Wish.FORGET)
        if known[f"everything_{language}"].search(sentence):
            self._everything = True
            return True
        wanted = _to_forgotten(wanted)
        if not wanted and self._found:  # "...야. 아니다, 잊어줘": what was just said
            self._found.clear()
        else:
            self._forgets.append(wanted)
        return True

    def _is_naming_forgotten(self, sentence: str) -> bool:
        """Whether a sentence may ask for something to be forgotten that is remembered."""
        perhaps = self._known["forget_perhaps_ko"].search(sentence)
        return bool(perhaps) and not self._known["forget_not_ko"].search(sentence)

    def _find_remembered(self, sentence: str, language: str) -> tuple[str, bool]:
        """The sentence without its wish to be remembered, and whether it had one."""
        known = self._known
        asks_back = known[f"remembers_{language}"].search(sentence)
        if asks_back and not re.search(
            r"줄래|줄\s?수|줘|주세요|둬|고\s?(?:계세요|계셔|있으세요)|that (?:i|my)", sentence
        ):
            return sentence, False
        places = list(known[f"remember_{language}"].finditer(sentence))
        if not places or _NEEDED.match(sentence[places[-1].end() :]):
            return sentence, False
        if language == "ko" and self._is_of_other_memory(sentence, places[-1]):
            return sentence, False
        if _WRITING.search(places[-1][0]) and self._is_standing_wish(sentence):
            return sentence, False
        before, after = sentence[: places[-1].start()], sentence[places[-1].end() :]
        if language == "en":
            body = f"{_ASKED_EN.sub('', before)} {after}".strip(" .!?,:~")
            return ("" if _EMPTY_EN.fullmatch(body) else body), True
        after = after if len(after) >= MIN_AFTER_CHARACTERS else ""
        body = f"{before} {after}".strip(" .!?,:~…")
        body = _DOING.sub("함", _QUOTED_FACT.sub(_complete_reported_ending, body))
        body = _BECAUSE.sub("", body).strip()
        return ("" if _EMPTY_KO.fullmatch(body) else body), True

    def _is_of_other_memory(self, sentence: str, wish: re.Match[str]) -> bool:
        """Whether it tells what somebody else remembers or is asked to: no wish of the user's."""
        if _REPORTED.match(sentence[wish.end() :]):
            return True
        by_others = self._known["person_anywhere_ko"].search(sentence[: wish.start()])
        return bool(by_others) and _BARE_REMEMBER.search(wish[0]) is not None

    def _apply_wish(self) -> None:
        """What stands before "기억해줘" is what is to be remembered, or else what comes next."""
        self._wishes.append(Wish.REMEMBER)
        self._is_awaited = not (self._told or self._found)
        self._found = [
            replace(one, explicit=True, certainty=1.0, known_only=False) for one in self._found
        ]
        if self._told and not self._found:
            language = detect_language(self._told[-1])
            if self._is_plain_statement(self._told[-1], language):
                self._keep_fact(self._told[-1], language)
                self._is_plain = True

    def _is_standing_wish(self, text: str) -> bool:
        """Whether a text holds a wish for all answers to come."""
        for language in ("ko", "en"):
            when = self._known[f"standing_{language}"].search(text)
            if not when or not self._known[f"tells_{language}"].search(text):
                continue
            if language == "en":
                return not is_asking(text, "en") or bool(_ASKED_POLITELY_EN.search(text))
            return not (_LOOK_UP_KO.search(text) and is_about_time(text[when.end() :]))
        return False

    def _read_standing_wish(self, body: str, language: str) -> bool:
        """Preferences of answers; False where the sentence wishes for none."""
        if not self._is_standing_wish(body) or "preference" not in self._packs.kinds:
            return False
        before = len(self._found)
        clause = Clause(body, body, language)
        rules = [rule for rule in self._packs.rules if rule.language == language]
        for rule in rules:
            if rule.standing:
                self._apply_rule(rule, clause, explicit=True)
        if len(self._found) > before:
            return True
        names = any(rule.key == "address" and rule.match.search(body) for rule in rules)
        told = " ".join(self._known[f"standing_{language}"].sub(" ", body).split())
        told = _LASTING_TAIL.sub("", told).strip(" .!,")
        asks = _REQUEST_KO.search(told) if language == "ko" else not _SAYING_EN.match(body)
        if names or not asks:
            return False
        self._found.append(
            Statement(
                "preference",
                _find_wish_topic(told, language),
                told[:MAX_VALUE_CHARACTERS],
                sentence=body,
                certainty=1.0,
                explicit=True,
            )
        )
        return True

    def _keep_fact(self, body: str, language: str) -> None:
        """What is to be remembered and no rule knows: its topic and what is said of it."""
        if FACT not in self._packs.kinds or len(to_letters(body)) < MIN_FACT_LETTERS:
            return
        key, value = _split_fact(body, language)
        self._found.append(
            Statement(
                FACT,
                key[:MAX_VALUE_CHARACTERS],
                value[:MAX_VALUE_CHARACTERS],
                sentence=body,
                certainty=1.0,
                explicit=True,
                corrects=bool(self._known["corrects"].search(body)),
            )
        )

    # clauses

    def _read_clause(self, clause: Clause, *, explicit: bool) -> None:
        if clause.language == "ko":
            self._track_subject(clause)
        elif _PERSON_EN.search(clause.text):
            self._of_others = True
        elif _SELF_EN.search(clause.text):
            self._of_others = False
        if clause.asks and not explicit:
            return
        before = len(self._found)
        rules = [one for one in self._packs.rules if one.language == clause.language]
        for rule in sorted(rules, key=lambda one: one.kind == FACT):
            # a clause that says something known says no fact besides
            if not rule.standing and not (rule.kind == FACT and len(self._found) > before):
                self._apply_rule(rule, clause, explicit=explicit)

    def _track_subject(self, clause: Clause) -> None:
        """Whom the clauses to come speak of, where they do not say."""
        others = [topic for topic in clause.topics if self._is_person(topic)]
        named = self._known["person_anywhere_ko"].search(clause.text)
        if clause.is_about_self or any(
            topic.own and topic not in others for topic in clause.topics
        ):
            self._of_others = False
        elif others or (named and not clause.topics and not _COMPANION.search(clause.text)):
            self._of_others = True

    def _is_person(self, topic: NounPhrase) -> bool:
        named = any(self._known["person_ko"].search(word) for word in topic.words)
        return named or bool(self._known["animal_ko"].search(topic.head))

    def _apply_rule(self, rule: ProfileRule, clause: Clause, *, explicit: bool) -> None:
        """Keep what the first place in the clause that a rule fits says."""
        if clause.supposes and not rule.supposes:
            return
        for found in rule.match.finditer(clause.text):
            items = self._find_items(rule, clause, found)
            if not items or not self._is_of_user(rule, clause, found):
                continue
            denied = self._is_denied(rule, clause, found)
            if denied and not self._can_end(rule):
                continue
            said = [self._to_statement(rule, clause, found, item) for item in items]
            self._found += [
                replace(
                    one,
                    effect=Effect.END if denied else one.effect,
                    explicit=explicit,
                    known_only=rule.known_only and not explicit,
                )
                for one in said
                if one is not None
            ]
            return

    def _can_end(self, rule: ProfileRule) -> bool:
        """Whether its contrary says that something holds no more."""
        policy = self._packs.kinds[rule.kind].policy
        return rule.deniable or (policy in _ENDING_POLICIES and rule.kind not in _UNDENIED_KINDS)

    def _is_denied(self, rule: ProfileRule, clause: Clause, found: re.Match[str]) -> bool:
        """Whether the clause says the contrary of its rule."""
        if rule.effect is Effect.END or rule.standing:
            return False
        if rule.kind in _UNDENIED_KINDS and not rule.deniable:
            return False
        if clause.language == "en":
            near = clause.text[max(0, found.start() - NEAR_CHARACTERS) : found.end() + 12]
            return bool(self._known["denies_en"].search(near))
        item = found.groupdict().get("item") or ""
        return bool(self._known["denies_ko"].search(clause.text[found.start() + len(item) :]))

    def _is_of_user(self, rule: ProfileRule, clause: Clause, found: re.Match[str]) -> bool:
        """Whether the user is whom the clause speaks of."""
        if clause.language == "en" or rule.standing:
            return not (rule.kind in {"vital", "lab"} and self._of_others)
        topics = [topic for topic in clause.topics if topic.start < found.end()]
        if any(self._is_other(topic, rule, found) for topic in topics):
            return False
        is_own = clause.is_about_self or any(topic.own for topic in topics)
        named = self._known["person_anywhere_ko"].search(clause.text[: found.start()])
        if not is_own and (self._of_others or named):
            return False
        if is_modifying_noun(clause, found.end()):
            return False
        if rule.needs_self and not is_own:
            told = rule.professional and _PROFESSIONAL.search(clause.sentence)
            return bool(told or _SELF_BEFORE.search(clause.before))
        return True

    def _is_other(self, topic: NounPhrase, rule: ProfileRule, found: re.Match[str]) -> bool:
        """Whether a topic is somebody or something else than the user and what he tells."""
        if self._is_person(topic):
            # "우리 팀장은 ...": that changes what the user had remembered, and tells nothing else
            return not (rule.known_only and rule.kind == FACT)
        if topic.own or topic.end > found.start() or self._known["neutral_ko"].search(topic.head):
            return False
        is_item = rule.item == "before" and topic.end >= found.start() - 1
        return not (is_item or rule.known_only)

    # what was found

    def _find_items(self, rule: ProfileRule, clause: Clause, found: re.Match[str]) -> list[str]:
        """The things that a rule is about; empty where it is about nothing that it may be."""
        groups = {name: (text or "").strip() for name, text in found.groupdict().items()}
        refused = rule.item_refuses
        if not rule.item:
            told = (groups.get("key", ""), groups.get("value", ""))
            return [] if refused and any(map(refused.search, told)) else [""]
        if rule.item == "before":
            items = find_items_before(clause, found.start())
        else:
            items = split_items(groups.get("item", ""), clause.language)
        if any(self._known["person_ko"].search(item.split()[0]) for item in items):
            return []
        return [
            item.split()[-1] if rule.last_word else item
            for item in items[:MAX_ITEMS]
            if (rule.item_match is None or rule.item_match.search(item))
            and not (refused and refused.search(item))
            and (not rule.proper or is_proper_name(item))
        ]

    def _to_statement(
        self, rule: ProfileRule, clause: Clause, found: re.Match[str], item: str
    ) -> Statement | None:
        groups = {name: text.strip(" .,;") for name, text in found.groupdict().items() if text}
        key = rule.key or _look_up_caseless(rule.keys, groups.get("key", "")) or item
        if key.startswith(("Our ", "My ", "The ")):
            key = key[0].lower() + key[1:]
        unit = rule.unit
        if rule.kind == "medication" and rule.effect is Effect.SET:
            value = _render_dose(groups, clause.language)
        elif rule.value:
            told = clause.text.strip(" .,!")
            value = rule.value.replace("{item}", item).replace("{sentence}", told)
            value = value.replace("{value}", groups.get("value", ""))
        else:
            value = _look_up_caseless(rule.values, groups.get("value", "")) or item
            value, unit = _to_measure(rule, key, value, groups.get("unit", ""))
        if rule.kind == FACT:
            value = _NOW.sub("", value)
        if value in {"", OMITTED} or not _is_within(rule, value):
            return None
        return Statement(
            kind=rule.kind,
            key=neutralise_text(key)[:MAX_VALUE_CHARACTERS],
            value=neutralise_text(value)[:MAX_VALUE_CHARACTERS],
            unit=unit,
            sentence=clause.sentence,
            effect=rule.effect,
            corrects=rule.corrects or bool(self._known["corrects"].search(clause.text)),
        )


def _to_forgotten(sentence: str) -> str:
    """The words of a wish to forget; empty where it means what was told last."""
    named = load_patterns("profile")["just_said"].sub(" ", sentence)
    wanted = _FORGET_FILLERS.sub(" ", _FORGETTING.sub(" ", named))
    return " ".join(wanted.split()).strip(" .!?,~")


# Values


def _look_up_caseless(table: Mapping[str, str], text: str) -> str:
    known = {key.casefold(): value for key, value in table.items()}
    return known.get(text.casefold(), text)


def _to_measure(rule: ProfileRule, key: str, value: str, unit: str) -> tuple[str, str]:
    """A figure in the unit that its kind is kept in; other values stay."""
    if key == "age" and not value.isdigit():
        return str(_read_native_number(value)), rule.unit
    if key == "blood_pressure":
        return re.sub(r"\s?(?:/|에|-|,|over)\s?", "/", value), rule.unit
    if rule.least is None and not rule.units and not unit:
        return value, rule.unit
    try:
        figure = float(value)
    except ValueError:
        return value, rule.unit
    for name, (target, factor) in rule.units.items():
        if name.casefold() == unit.casefold():
            # a negative factor stands for degrees Fahrenheit, which have another zero
            figure = (figure - 32) / 1.8 if factor < 0 else figure * factor
            return f"{figure:.1f}".removesuffix(".0"), target
    if key == "height" and figure < MAX_METRES:
        figure *= 100
    return f"{figure:.2f}".rstrip("0").rstrip("."), rule.unit or unit


def _is_within(rule: ProfileRule, value: str) -> bool:
    try:
        figure = float(value)
    except ValueError:
        return True
    least, most = rule.least, rule.most
    return (least is None or figure >= least) and (most is None or figure <= most)


def _render_dose(groups: Mapping[str, str], language: str) -> str:
    """Dose and frequency as one value."""
    dose = groups.get("value") or groups.get("value2") or ""
    dose = re.sub(r"(\d)\s?(?:㎎|밀리그램|밀리|mg)", r"\1 mg", dose, flags=re.IGNORECASE)
    dose = re.sub(r"(\d)(?=[a-z])", r"\1 ", dose)
    often = groups.get("often") or groups.get("often2") or ""
    told = " ".join(f"{dose} {often}".split())
    return told or ("복용 중" if language == "ko" else "taking")


def _read_native_number(text: str) -> int:
    rest, total = re.sub(r"\s|살", "", text), 0
    for word in sorted(_NATIVE_NUMBERS, key=len, reverse=True):
        if word in rest:
            total += _NATIVE_NUMBERS[word]
            rest = rest.replace(word, "", 1)
    return total


# Facts and wishes in free words


def _complete_reported_ending(found: re.Match[str]) -> str:
    """The end of "...있다는 것" as that of the sentence that it reports: "...있다"."""
    said = found[0]
    if said.startswith(("이라", "인")):
        return "이다"
    return "다" if said.startswith(("라", "다")) else "는 것"


def _find_wish_topic(told: str, language: str) -> str:
    """What a wish for all answers is about: its first noun."""
    if language == "ko":
        nouns = [
            one.form for one in korean.analyse_question(told) if one.tag in {"NNG", "NNP", "SL"}
        ]
        return next((one for one in nouns if one not in {"답변", "답", "대답", "때"}), told[:20])
    words = re.findall(r"[a-z'-]+", told.lower())
    return next((word for word in words if word not in _WISH_STOP_EN), told[:20])


def _split_fact(body: str, language: str) -> tuple[str, str]:
    """A sentence as its topic and what it says of it; the whole as both where it has none."""
    whole = body.strip(" .!,~")
    if language == "en":
        found = _FACT_EN.match(whole)
        if found and found[1].casefold() not in {"i", "it", "this", "that", "there"}:
            return found[1].strip(), found[2].strip()
        return whole, whole
    for clause in split_clauses(whole, "ko"):
        for topic in clause.topics:
            if topic.head in {"나", "저", "내", "제"} or clause.before:
                continue
            key, rest = whole[: topic.end].strip(), whole[topic.end :].strip()
            key = korean.strip_particle(key)
            value = _PREDICATE.sub("", rest).strip() or rest
            if len(value) > 1:
                return key, value
            when = whole[: topic.start].strip()  # "화요일에 회의가 있다": what there is, and when
            named = korean.strip_particle(whole[topic.start : topic.end].strip())
            return (named, when) if when else (whole, whole)
    bare = _BARE_FACT.match(whole)
    return (bare[1], bare[2]) if bare else (whole, whole)


def _merge_statements(found: Sequence[Statement]) -> list[Statement]:
    """Each thing once: the later of two statements of it; of a medicine what says more."""
    kept: dict[tuple[str, str], Statement] = {}
    for one in found:
        place = (one.kind, to_letters(one.key) or one.key)
        before = kept.get(place)
        same = before is not None and one.kind == "medication" and before.effect is one.effect
        kept[place] = before if before and same and len(before.value) > len(one.value) else one
    return list(kept.values())


# What rules do not know


async def read_by_model(
    text: str, packs: Packs, light: Light, *, foreign: Collection[str] = ()
) -> tuple[Statement, ...]:
    """What the light model finds in a message of which the rules heard nothing.

    Only what a sentence of the user's own says, word for word, that is no question. Raises what
    `Light.ask_json` raises.
    """
    own = find_own_words(text)
    shown = [to_letters(one) for one in foreign]
    if not packs.kinds or not _SELF_SAID.search(own):
        return ()
    language = detect_language(own)
    kinds = "\n".join(f"- {name}: {packs.get_kind_title(name, language)}" for name in packs.kinds)
    system = prompts.fill_prompt("read_profile", language, kinds=kinds)
    reply = await light.ask_json(
        system, own[:MAX_READ_CHARACTERS], max_tokens=READ_TOKENS, schema=READ_SCHEMA
    )
    told = reply.get("facts") if isinstance(reply, dict) else None
    found: list[Statement] = []
    for one in told[:MAX_STATEMENTS] if isinstance(told, list) else ():
        statement = _to_read_statement(one, own, packs)
        if statement is None or _is_shown(statement.sentence, shown):
            continue
        found.append(statement)
    return tuple(_merge_statements(found))


def _to_read_statement(told: object, own: str, packs: Packs) -> Statement | None:
    """What a model noted, as far as the user's words bear it out."""
    if not isinstance(told, dict):
        return None
    kind, key, value, sentence = (
        " ".join(str(told.get(name) or "").split()) for name in ("kind", "key", "value", "sentence")
    )
    plain = " ".join(own.split())
    if kind not in packs.kinds or not key or not value or not sentence or sentence not in plain:
        return None
    if is_asking(sentence, detect_language(sentence)):
        return None
    return Statement(
        kind=kind,
        key=neutralise_text(key)[:MAX_VALUE_CHARACTERS],
        value=neutralise_text(value)[:MAX_VALUE_CHARACTERS],
        sentence=sentence[:MAX_SENTENCE_CHARACTERS],
        certainty=MODEL_CERTAINTY,
    )


def _is_shown(sentence: str, shown: Sequence[str]) -> bool:
    letters = to_letters(sentence)
    return len(letters) >= MIN_KNOWN_LETTERS and any(letters in one for one in shown)
