"""Extracts what users say about themselves, by rules: statements, and wishes to remember or forget.

Only the user's own words count: no quotations, no pasted text, no questions or suppositions, and
nothing about other people unless the user asks for it. How people put it is data
(`rag/lexicon/profile.toml`), and so is what is worth keeping (`rag/memory/packs`).
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
"""The kind of statements that no other rule covers."""
MAX_SENTENCE_CHARACTERS = 300
MAX_VALUE_CHARACTERS = 200
MAX_WISH_CHARACTERS = 1000
MAX_ITEMS = 8
MAX_STATEMENTS = 20
MIN_QUOTED_LETTERS = 12
"""Shortest sentence that is recognised as a quotation from a text that is not the user's."""
MIN_FACT_LETTERS = 3
MIN_TAIL_CHARACTERS = 8
"""Shorter text after "기억해" is its own ending; longer text is what to remember."""
NEAR_CHARACTERS = 30
"""Distance before an English match within which a word such as "not" negates it."""
MAX_METRES = 3
"""A height below this is in metres."""

MAX_READ_CHARACTERS = 1500
READ_TOKENS = 300
MODEL_CERTAINTY = 0.6
"""Certainty of what a model noted; the rules are more reliable."""
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
_FIRST_PERSON = re.compile(
    r"(?<![가-힣])(?:나|저|내|제|우리|저희|전|난)(?:는|도|의|가|한테|에게|\s)|\b(?:i|my|our|we)\b|\bi['’]",
    re.IGNORECASE,
)
"""The model is asked only about messages in which users speak of themselves."""

_ENDING_POLICIES = frozenset((Policy.PROTECTED, Policy.ACCUMULATE, Policy.FADING, Policy.TIMELINE))
_KINDS_WITHOUT_NEGATION = frozenset((FACT, "contraindication", "preference", "demographic"))
"""Kinds for whose rules a negated clause is not looked for: they handle negation themselves."""
_NATIVE_WORDS = (
    "열 스물 스무 서른 마흔 쉰 예순 일흔 여든 아흔 "
    "하나 한 둘 두 셋 세 넷 네 다섯 여섯 일곱 여덟 아홉"
)
_NATIVE_VALUES = (10, 20, 20, 30, 40, 50, 60, 70, 80, 90, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9)
_NATIVE_NUMBERS = dict(zip(_NATIVE_WORDS.split(), _NATIVE_VALUES, strict=True))
_OBLIGATION = re.compile(r"\s?(?:둬|두어|아|어)?야?\s?(?:할|하는|될|되는|하기|한다는)\s")
_REPORTED_SPEECH = re.compile(
    r"(?:두|둬|놔|놓)?(?:라|다|자|달라)?고\s?(?:말|했|하|부탁|시|전)|(?:는|던|은|을)\s"
)
_BARE_REMEMBER = re.compile(r"(?:기억|저장|메모|기록)해\s*$")
_WRITING = re.compile(r"(?:적어|써)\s?(?:줘|주세요)$")
"""May be about how answers are written as well as about something to remember."""
_REQUEST_PREFIX_EN = re.compile(
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
_DOING_ENDING = re.compile(r"하(?:니까|거든|는데|니)\s*,?$")
_REASON_ENDING = re.compile(
    r"(?:으니까|이니까|니까|거든|인데|는데)\s*,?\s*(?:이거|이걸|그거|그걸|꼭|좀)?$"
)
_REQUEST_KO = re.compile(
    r"(?:줘|주세요|주십시오|주라|줄래\S*|주실래\S*|주시겠\S*|달라|해라|하세요|해봐|마|말아|라|세요|부탁\S*|써|바라\S*|바랍니다|원해\S*|원합니다|좋겠\S*)\s*[.!~?]*$"
)
_POLITE_REQUEST_EN = re.compile(r"\b(?:can|could|would|will) you\b|\bplease\b", re.IGNORECASE)
_LOOK_UP_KO = re.compile(
    r"(?:알려|찾아|보여|골라|설명|정리|요약|말|비교|뽑아|나열|확인|계산|추려)\S*\s?(?:줘|주세요|주십시오|줄래|주실|주시)"
)
"""May ask about documents: "앞으로 남은 일정을 알려줘" is no wish for all future answers."""
_LASTING_TAIL = re.compile(r"[\s,]+(?:쭉|계속|내내)\s*[.!~]*$")
_STATEMENT_START_EN = re.compile(r"\s*(?:i|my|our|we|it|the|this|that|hi|hello)\b", re.IGNORECASE)
_SUBJECT_START_EN = re.compile(
    r"\s*(?:i|my|we|our|he|she|they|it)\b(?!.{0,6}(?:prefer|like))", re.IGNORECASE
)
_PERSON_EN = re.compile(
    r"\b(?:my|our|the) (?:mother|father|mom|dad|wife|husband|son|daughter|friend|brother|sister"
    r"|boss|colleague|partner|patient|dog|cat|grand\w+|uncle|aunt|child|baby)\b"
    r"|\b(?:he|she|they)\b",
    re.IGNORECASE,
)
_FIRST_PERSON_EN = re.compile(r"\bi\b|\bi['’]", re.IGNORECASE)
_FIRST_PERSON_KO = re.compile(r"(?<![가-힣])(?:저는|나는|난|전|제가|내가|저|나)\s")
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
    """What a message asks for apart from an answer."""

    REMEMBER = "remember"
    FORGET = "forget"


@dataclass(frozen=True, slots=True)
class Extraction:
    """What a message contributes to the profile.

    `forgets` are the topics to forget (empty: whatever was said last); `forgets_everything`: the
    user wants all of it forgotten. `wish` is set if the message is nothing but a wish and needs no
    other answer.
    """

    statements: tuple[Statement, ...] = ()
    forgets: tuple[str, ...] = ()
    forgets_everything: bool = False
    wish: Wish | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to keep or forget."""
        return not (self.statements or self.forgets or self.forgets_everything)


def extract_statements(text: str, packs: Packs, *, foreign: Collection[str] = ()) -> Extraction:
    """The statements and wishes of a message.

    `foreign` are texts that are not the user's own: documents and answers shown before.
    """
    return _MessageReader(packs, [to_letters(one) for one in foreign]).read(text)


def find_wish(text: str, packs: Packs) -> Extraction | None:
    """The content of a message that is nothing but a wish; None if it asks for anything else."""
    patterns = load_patterns("profile")
    if len(text) > MAX_WISH_CHARACTERS or not any(
        patterns[f"{name}_{language}"].search(text)
        for name in ("remember", "forget", "standing")
        for language in ("ko", "en")
    ):
        return None
    extraction = extract_statements(text, packs)
    return extraction if extraction.wish else None


class _MessageReader:
    """Reads one message from its first sentence to its last."""

    def __init__(self, packs: Packs, foreign: Sequence[str]) -> None:
        self._packs = packs
        self._foreign = [text for text in foreign if text]
        self._patterns = load_patterns("profile")
        self._is_about_others = False
        self._statements: list[Statement] = []
        self._forgets: list[str] = []
        self._forgets_everything = False
        self._wishes: list[Wish] = []
        self._other_sentences: list[str] = []
        """Sentences so far without a wish."""
        self._needs_no_answer = True
        """Whether nothing so far needs an answer."""
        self._awaits_content = False
        """Whether a wish to remember came before what is to be remembered."""

    def read(self, text: str) -> Extraction:
        own_text = find_own_words(text)
        if any(self._patterns[f"remember_not_{one}"].search(own_text) for one in ("ko", "en")):
            sentences = [one for one in split_sentences(own_text) if self._may_ask_to_forget(one)]
            return Extraction(forgets=tuple(_extract_forget_topic(one) for one in sentences))
        for sentence in map(str.strip, split_sentences(own_text)):
            if len(sentence) <= MAX_SENTENCE_CHARACTERS:
                self._collect_from_sentence(sentence, is_about_text=self._is_about_text(own_text))
            if self._is_about_text(sentence):
                break  # the rest is the pasted text
        merged = _merge_statements(self._statements)
        wish = self._wishes[0] if self._wishes and self._needs_no_answer else None
        if wish is Wish.REMEMBER and not merged:
            wish = None
        statements = tuple(merged[:MAX_STATEMENTS])
        return Extraction(statements, tuple(self._forgets), self._forgets_everything, wish)

    # one sentence

    def _collect_from_sentence(self, sentence: str, *, is_about_text: bool) -> None:
        language = detect_language(sentence)
        if _is_foreign(sentence, self._foreign):
            self._needs_no_answer = False
            return
        if self._patterns["standing_alone"].match(sentence):
            self._awaits_content = False
            if self._other_sentences and self._collect_standing_wish(
                f"{sentence} {self._other_sentences.pop()}", language
            ):
                self._wishes.append(Wish.REMEMBER)
            return
        if self._collect_forget_wish(sentence, language):
            return
        body, is_explicit = self._remove_remember_wish(sentence, language)
        if is_explicit and not body:
            self._collect_remember_wish()
        elif not is_explicit and (
            is_about_text or self._patterns[f"remembers_{language}"].search(sentence)
        ):
            self._needs_no_answer = False
        elif not is_explicit and self._patterns["reports"].search(sentence):
            self._needs_no_answer = False
            if statement := self._find_statement_before_report(sentence, language):
                self._collect_statements(statement, language, explicit=False)
        else:
            if self._awaits_content and not is_explicit:
                is_explicit, self._awaits_content = True, False
            self._collect_statements(body, language, explicit=is_explicit)

    def _collect_statements(self, body: str, language: str, *, explicit: bool) -> None:
        """Keep what a sentence says; its wish to remember is already removed."""
        if explicit:
            self._wishes.append(Wish.REMEMBER)
        if self._collect_standing_wish(body, language):
            self._wishes.append(Wish.REMEMBER)
            return
        count_before = len(self._statements)
        clauses = list(split_clauses(body, language))
        for clause in clauses:
            self._collect_from_clause(clause, explicit=explicit)
        if explicit and len(self._statements) == count_before:
            self._collect_fact(body, language)
        elif not explicit:
            if any(clause.asks for clause in clauses) or len(self._statements) == count_before:
                self._needs_no_answer = self._needs_no_answer and self._is_plain_statement(
                    body, language
                )
            self._other_sentences.append(body)

    def _find_statement_before_report(self, sentence: str, language: str) -> str:
        """The words before the clause that refers to a text: only they may be the user's own."""
        report = self._patterns["reports"].search(sentence)
        report_start = report.start() if report else 0
        clauses = split_clauses(sentence, language)
        return max(
            (clause.before for clause in clauses if len(clause.before) <= report_start),
            key=len,
            default="",
        )

    def _is_plain_statement(self, sentence: str, language: str) -> bool:
        """Whether a sentence only states something and needs no answer."""
        if is_asking(sentence, language):
            return False
        if language == "ko":
            return not _REQUEST_KO.search(sentence)
        return bool(_STATEMENT_START_EN.match(sentence))

    def _is_about_text(self, text: str) -> bool:
        """Whether something is to be done with a text; a wish for all answers does not count."""
        is_handled = any(
            self._patterns[f"handles_{language}"].search(text) for language in ("ko", "en")
        )
        return is_handled and not self._is_standing_wish(text)

    # wishes

    def _collect_forget_wish(self, sentence: str, language: str) -> bool:
        patterns = self._patterns
        match = patterns[f"forget_{language}"].search(sentence)
        if not match and self._may_ask_to_forget(sentence):
            self._forgets.append(_extract_forget_topic(sentence))
            self._needs_no_answer = False
            return True
        if not match:
            return False
        if language == "ko":
            is_question = is_asking(sentence, "ko") and not re.search(r"줄래|줄\s?수", sentence)
            if is_question or patterns["forget_not_ko"].search(sentence):
                return False
            topic = _FORGETTING.sub(" ", sentence)
        else:
            topic = sentence[match.end() :].strip(" .!?,")
            if not patterns["forget_en_object"].search(topic):
                return False
        self._wishes.append(Wish.FORGET)
        if patterns[f"everything_{language}"].search(sentence):
            self._forgets_everything = True
            return True
        topic = _extract_forget_topic(topic)
        if not topic and self._statements:  # "...야. 아니다, 잊어줘": what was just said
            self._statements.clear()
        else:
            self._forgets.append(topic)
        return True

    def _may_ask_to_forget(self, sentence: str) -> bool:
        """Whether a sentence may ask to forget something that is remembered."""
        perhaps = self._patterns["forget_perhaps_ko"].search(sentence)
        return bool(perhaps) and not self._patterns["forget_not_ko"].search(sentence)

    def _remove_remember_wish(self, sentence: str, language: str) -> tuple[str, bool]:
        """The sentence without its wish to remember, and whether it had one."""
        patterns = self._patterns
        asks_back = patterns[f"remembers_{language}"].search(sentence)
        if asks_back and not re.search(
            r"줄래|줄\s?수|줘|주세요|둬|고\s?(?:계세요|계셔|있으세요)|that (?:i|my)", sentence
        ):
            return sentence, False
        matches = list(patterns[f"remember_{language}"].finditer(sentence))
        if not matches or _OBLIGATION.match(sentence[matches[-1].end() :]):
            return sentence, False
        if language == "ko" and self._is_remembered_by_others(sentence, matches[-1]):
            return sentence, False
        if _WRITING.search(matches[-1][0]) and self._is_standing_wish(sentence):
            return sentence, False
        head, tail = sentence[: matches[-1].start()], sentence[matches[-1].end() :]
        if language == "en":
            body = f"{_REQUEST_PREFIX_EN.sub('', head)} {tail}".strip(" .!?,:~")
            return ("" if _EMPTY_EN.fullmatch(body) else body), True
        tail = tail if len(tail) >= MIN_TAIL_CHARACTERS else ""
        body = f"{head} {tail}".strip(" .!?,:~…")
        body = _DOING_ENDING.sub("함", _QUOTED_FACT.sub(_complete_reported_ending, body))
        body = _REASON_ENDING.sub("", body).strip()
        return ("" if _EMPTY_KO.fullmatch(body) else body), True

    def _is_remembered_by_others(self, sentence: str, wish: re.Match[str]) -> bool:
        """Whether somebody else remembers or is to remember, so that it is no wish to Nura."""
        if _REPORTED_SPEECH.match(sentence[wish.end() :]):
            return True
        other_person = self._patterns["person_anywhere_ko"].search(sentence[: wish.start()])
        return bool(other_person) and _BARE_REMEMBER.search(wish[0]) is not None

    def _collect_remember_wish(self) -> None:
        """Apply a bare "기억해줘" to what was said before it, or else to what comes next."""
        self._wishes.append(Wish.REMEMBER)
        self._awaits_content = not (self._other_sentences or self._statements)
        self._statements = [
            replace(statement, explicit=True, certainty=1.0, known_only=False)
            for statement in self._statements
        ]
        if self._other_sentences and not self._statements:
            language = detect_language(self._other_sentences[-1])
            if self._is_plain_statement(self._other_sentences[-1], language):
                self._collect_fact(self._other_sentences[-1], language)
                self._needs_no_answer = True

    def _is_standing_wish(self, text: str) -> bool:
        """Whether a text contains a wish for all future answers."""
        for language in ("ko", "en"):
            match = self._patterns[f"standing_{language}"].search(text)
            if not match or not self._patterns[f"tells_{language}"].search(text):
                continue
            if language == "en":
                return not is_asking(text, "en") or bool(_POLITE_REQUEST_EN.search(text))
            return not (_LOOK_UP_KO.search(text) and is_about_time(text[match.end() :]))
        return False

    def _collect_standing_wish(self, body: str, language: str) -> bool:
        """Keep a wish for all future answers as a preference; False if there is none."""
        if not self._is_standing_wish(body) or "preference" not in self._packs.kinds:
            return False
        count_before = len(self._statements)
        clause = Clause(body, body, language)
        rules = [rule for rule in self._packs.rules if rule.language == language]
        for rule in rules:
            if rule.standing:
                self._collect_by_rule(rule, clause, explicit=True)
        if len(self._statements) > count_before:
            return True
        is_address = any(rule.key == "address" and rule.match.search(body) for rule in rules)
        wish = " ".join(self._patterns[f"standing_{language}"].sub(" ", body).split())
        wish = _LASTING_TAIL.sub("", wish).strip(" .!,")
        is_request = (
            _REQUEST_KO.search(wish) if language == "ko" else not _SUBJECT_START_EN.match(body)
        )
        if is_address or not is_request:
            return False
        self._statements.append(
            Statement(
                "preference",
                _find_wish_topic(wish, language),
                wish[:MAX_VALUE_CHARACTERS],
                sentence=body,
                certainty=1.0,
                explicit=True,
            )
        )
        return True

    def _collect_fact(self, body: str, language: str) -> None:
        """Keep what no rule covers: its topic and what is said about it."""
        if FACT not in self._packs.kinds or len(to_letters(body)) < MIN_FACT_LETTERS:
            return
        key, value = _split_fact(body, language)
        self._statements.append(
            Statement(
                FACT,
                key[:MAX_VALUE_CHARACTERS],
                value[:MAX_VALUE_CHARACTERS],
                sentence=body,
                certainty=1.0,
                explicit=True,
                corrects=bool(self._patterns["corrects"].search(body)),
            )
        )

    # clauses

    def _collect_from_clause(self, clause: Clause, *, explicit: bool) -> None:
        if clause.language == "ko":
            self._track_subject(clause)
        elif _PERSON_EN.search(clause.text):
            self._is_about_others = True
        elif _FIRST_PERSON_EN.search(clause.text):
            self._is_about_others = False
        if clause.asks and not explicit:
            return
        count_before = len(self._statements)
        rules = [rule for rule in self._packs.rules if rule.language == clause.language]
        for rule in sorted(rules, key=lambda rule: rule.kind == FACT):
            # a clause that matched another rule is not kept as a fact, too
            if not rule.standing and not (
                rule.kind == FACT and len(self._statements) > count_before
            ):
                self._collect_by_rule(rule, clause, explicit=explicit)

    def _track_subject(self, clause: Clause) -> None:
        """Note whom the following clauses are about unless they say so themselves."""
        others = [topic for topic in clause.topics if self._is_person(topic)]
        named_person = self._patterns["person_anywhere_ko"].search(clause.text)
        if clause.is_about_self or any(
            topic.own and topic not in others for topic in clause.topics
        ):
            self._is_about_others = False
        elif others or (named_person and not clause.topics and not _COMPANION.search(clause.text)):
            self._is_about_others = True

    def _is_person(self, topic: NounPhrase) -> bool:
        is_named = any(self._patterns["person_ko"].search(word) for word in topic.words)
        return is_named or bool(self._patterns["animal_ko"].search(topic.head))

    def _collect_by_rule(self, rule: ProfileRule, clause: Clause, *, explicit: bool) -> None:
        """Keep what the first valid match of a rule in the clause says."""
        if clause.supposes and not rule.supposes:
            return
        for match in rule.match.finditer(clause.text):
            items = self._find_items(rule, clause, match)
            if not items or not self._is_about_user(rule, clause, match):
                continue
            is_denied = self._is_denied(rule, clause, match)
            if is_denied and not self._can_end(rule):
                continue
            statements = [self._to_statement(rule, clause, match, item) for item in items]
            self._statements += [
                replace(
                    statement,
                    effect=Effect.END if is_denied else statement.effect,
                    explicit=explicit,
                    known_only=rule.known_only and not explicit,
                )
                for statement in statements
                if statement is not None
            ]
            return

    def _can_end(self, rule: ProfileRule) -> bool:
        """Whether the negation of a rule means that something no longer holds."""
        policy = self._packs.kinds[rule.kind].policy
        return rule.deniable or (
            policy in _ENDING_POLICIES and rule.kind not in _KINDS_WITHOUT_NEGATION
        )

    def _is_denied(self, rule: ProfileRule, clause: Clause, match: re.Match[str]) -> bool:
        """Whether the clause negates what the rule matched."""
        if rule.effect is Effect.END or rule.standing:
            return False
        if rule.kind in _KINDS_WITHOUT_NEGATION and not rule.deniable:
            return False
        if clause.language == "en":
            near = clause.text[max(0, match.start() - NEAR_CHARACTERS) : match.end() + 12]
            return bool(self._patterns["denies_en"].search(near))
        item = match.groupdict().get("item") or ""
        return bool(self._patterns["denies_ko"].search(clause.text[match.start() + len(item) :]))

    def _is_about_user(self, rule: ProfileRule, clause: Clause, match: re.Match[str]) -> bool:
        """Whether the clause is about the user."""
        if clause.language == "en" or rule.standing:
            return not (rule.kind in {"vital", "lab"} and self._is_about_others)
        topics = [topic for topic in clause.topics if topic.start < match.end()]
        if any(self._is_other_topic(topic, rule, match) for topic in topics):
            return False
        is_own = clause.is_about_self or any(topic.own for topic in topics)
        other_person = self._patterns["person_anywhere_ko"].search(clause.text[: match.start()])
        if not is_own and (self._is_about_others or other_person):
            return False
        if is_modifying_noun(clause, match.end()):
            return False
        if rule.needs_self and not is_own:
            by_professional = rule.professional and _PROFESSIONAL.search(clause.sentence)
            return bool(by_professional or _FIRST_PERSON_KO.search(clause.before))
        return True

    def _is_other_topic(self, topic: NounPhrase, rule: ProfileRule, match: re.Match[str]) -> bool:
        """Whether a topic is neither the user nor the thing that the rule matched."""
        if self._is_person(topic):
            # "우리 팀장은 ..." may only change a fact that the user had remembered
            return not (rule.known_only and rule.kind == FACT)
        if (
            topic.own
            or topic.end > match.start()
            or self._patterns["neutral_ko"].search(topic.head)
        ):
            return False
        is_item = rule.item == "before" and topic.end >= match.start() - 1
        return not (is_item or rule.known_only)

    # from match to statement

    def _find_items(self, rule: ProfileRule, clause: Clause, match: re.Match[str]) -> list[str]:
        """The things that a match is about; empty if the rule accepts none of them."""
        groups = {name: (text or "").strip() for name, text in match.groupdict().items()}
        refused = rule.item_refuses
        if not rule.item:
            texts = (groups.get("key", ""), groups.get("value", ""))
            return [] if refused and any(map(refused.search, texts)) else [""]
        if rule.item == "before":
            items = find_items_before(clause, match.start())
        else:
            items = split_items(groups.get("item", ""), clause.language)
        if any(self._patterns["person_ko"].search(item.split()[0]) for item in items):
            return []
        return [
            item.split()[-1] if rule.last_word else item
            for item in items[:MAX_ITEMS]
            if (rule.item_match is None or rule.item_match.search(item))
            and not (refused and refused.search(item))
            and (not rule.proper or is_proper_name(item))
        ]

    def _to_statement(
        self, rule: ProfileRule, clause: Clause, match: re.Match[str], item: str
    ) -> Statement | None:
        groups = {name: text.strip(" .,;") for name, text in match.groupdict().items() if text}
        key = rule.key or _look_up_caseless(rule.keys, groups.get("key", "")) or item
        if key.startswith(("Our ", "My ", "The ")):
            key = key[0].lower() + key[1:]
        unit = rule.unit
        if rule.kind == "medication" and rule.effect is Effect.SET:
            value = _render_dose(groups, clause.language)
        elif rule.value:
            sentence = clause.text.strip(" .,!")
            value = rule.value.replace("{item}", item).replace("{sentence}", sentence)
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
            corrects=rule.corrects or bool(self._patterns["corrects"].search(clause.text)),
        )


def _extract_forget_topic(sentence: str) -> str:
    """The topic of a wish to forget; empty if it means whatever was said last."""
    text = load_patterns("profile")["just_said"].sub(" ", sentence)
    topic = _FORGET_FILLERS.sub(" ", _FORGETTING.sub(" ", text))
    return " ".join(topic.split()).strip(" .!?,~")


# Values


def _look_up_caseless(table: Mapping[str, str], text: str) -> str:
    casefolded = {key.casefold(): value for key, value in table.items()}
    return casefolded.get(text.casefold(), text)


def _to_measure(rule: ProfileRule, key: str, value: str, unit: str) -> tuple[str, str]:
    """A figure converted to the unit of its kind; other values stay as they are."""
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
            # a negative factor stands for degrees Fahrenheit, whose zero differs
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
    minimum, maximum = rule.least, rule.most
    return (minimum is None or figure >= minimum) and (maximum is None or figure <= maximum)


def _render_dose(groups: Mapping[str, str], language: str) -> str:
    """Dose and frequency as one value."""
    dose = groups.get("value") or groups.get("value2") or ""
    dose = re.sub(r"(\d)\s?(?:㎎|밀리그램|밀리|mg)", r"\1 mg", dose, flags=re.IGNORECASE)
    dose = re.sub(r"(\d)(?=[a-z])", r"\1 ", dose)
    often = groups.get("often") or groups.get("often2") or ""
    text = " ".join(f"{dose} {often}".split())
    return text or ("복용 중" if language == "ko" else "taking")


def _read_native_number(text: str) -> int:
    rest, total = re.sub(r"\s|살", "", text), 0
    for word in sorted(_NATIVE_NUMBERS, key=len, reverse=True):
        if word in rest:
            total += _NATIVE_NUMBERS[word]
            rest = rest.replace(word, "", 1)
    return total


# Facts and wishes in free words


def _complete_reported_ending(match: re.Match[str]) -> str:
    """The ending of a reported sentence as a plain one: "...있다는 것" becomes "...있다"."""
    ending = match[0]
    if ending.startswith(("이라", "인")):
        return "이다"
    return "다" if ending.startswith(("라", "다")) else "는 것"


def _find_wish_topic(wish: str, language: str) -> str:
    """The topic of a wish for all answers: its first noun."""
    if language == "ko":
        nouns = [
            noun.form for noun in korean.analyse_question(wish) if noun.tag in {"NNG", "NNP", "SL"}
        ]
        return next((noun for noun in nouns if noun not in {"답변", "답", "대답", "때"}), wish[:20])
    words = re.findall(r"[a-z'-]+", wish.lower())
    return next((word for word in words if word not in _WISH_STOP_EN), wish[:20])


def _split_fact(body: str, language: str) -> tuple[str, str]:
    """A sentence as topic and statement; the whole sentence as both if it has no topic."""
    text = body.strip(" .!,~")
    if language == "en":
        match = _FACT_EN.match(text)
        if match and match[1].casefold() not in {"i", "it", "this", "that", "there"}:
            return match[1].strip(), match[2].strip()
        return text, text
    for clause in split_clauses(text, "ko"):
        for topic in clause.topics:
            if topic.head in {"나", "저", "내", "제"} or clause.before:
                continue
            key, rest = text[: topic.end].strip(), text[topic.end :].strip()
            key = korean.strip_particle(key)
            value = _PREDICATE.sub("", rest).strip() or rest
            if len(value) > 1:
                return key, value
            # "화요일에 회의가 있다": what there is, and when
            time_text = text[: topic.start].strip()
            name = korean.strip_particle(text[topic.start : topic.end].strip())
            return (name, time_text) if time_text else (text, text)
    bare = _BARE_FACT.match(text)
    return (bare[1], bare[2]) if bare else (text, text)


def _merge_statements(statements: Sequence[Statement]) -> list[Statement]:
    """One statement per thing: the latest, but for a medicine the most detailed."""
    merged: dict[tuple[str, str], Statement] = {}
    for statement in statements:
        key = (statement.kind, to_letters(statement.key) or statement.key)
        earlier = merged.get(key)
        is_same_medication = (
            earlier is not None
            and statement.kind == "medication"
            and earlier.effect is statement.effect
        )
        merged[key] = (
            earlier
            if earlier and is_same_medication and len(earlier.value) > len(statement.value)
            else statement
        )
    return list(merged.values())


# What the rules miss


async def read_by_model(
    text: str, packs: Packs, light: Light, *, foreign: Collection[str] = ()
) -> tuple[Statement, ...]:
    """What the light model finds in a message in which the rules found nothing.

    Counts only if it quotes a sentence of the user's literally that is no question. Raises what
    `Light.ask_json` raises.
    """
    own_text = find_own_words(text)
    foreign_letters = [to_letters(one) for one in foreign]
    if not packs.kinds or not _FIRST_PERSON.search(own_text):
        return ()
    language = detect_language(own_text)
    kinds = "\n".join(f"- {name}: {packs.get_kind_title(name, language)}" for name in packs.kinds)
    system = prompts.fill_prompt("read_profile", language, kinds=kinds)
    reply = await light.ask_json(
        system, own_text[:MAX_READ_CHARACTERS], max_tokens=READ_TOKENS, schema=READ_SCHEMA
    )
    facts = reply.get("facts") if isinstance(reply, dict) else None
    statements: list[Statement] = []
    for fact in facts[:MAX_STATEMENTS] if isinstance(facts, list) else ():
        statement = _to_supported_statement(fact, own_text, packs)
        if statement is None or _is_foreign(statement.sentence, foreign_letters):
            continue
        statements.append(statement)
    return tuple(_merge_statements(statements))


def _to_supported_statement(fact: object, own_text: str, packs: Packs) -> Statement | None:
    """A fact that a model noted; None unless the user's words support it."""
    if not isinstance(fact, dict):
        return None
    kind, key, value, sentence = (
        " ".join(str(fact.get(name) or "").split()) for name in ("kind", "key", "value", "sentence")
    )
    own_words = " ".join(own_text.split())
    if kind not in packs.kinds or not key or not value or not sentence or sentence not in own_words:
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


def _is_foreign(sentence: str, texts: Sequence[str]) -> bool:
    letters = to_letters(sentence)
    return len(letters) >= MIN_QUOTED_LETTERS and any(
        letters in other_letters for other_letters in texts
    )
