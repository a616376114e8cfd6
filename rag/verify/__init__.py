"""Each sentence of an answer against the passages that it cites, and what follows from that."""

import functools
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import structlog

from rag import tokenize
from rag.errors import EngineUnavailable
from rag.ports import Inference, Verifier
from rag.tokenize.text import choose_reply_language, to_letters
from rag.types import AnswerLabel, CheckedSentence, Citation, Evidence, Span, Verdict
from rag.verify import claims, sentences
from rag.verify.claims import (
    Date,
    Details,
    Figure,
    Known,
    SentenceFacts,
    analyse_morphemes,
    find_bounds,
    is_bound_opposed,
    is_date_told,
    read_details,
    read_sentence,
    to_known,
)
from rag.verify.sentences import Form, Sentence, to_span

logger = structlog.get_logger()

MAX_ANSWER_CHARACTERS, MAX_EVIDENCE_CHARACTERS = 20_000, 60_000
"""Characters of an answer, and of all passages together, that are looked at."""
MAX_SENTENCES, MAX_UNITS = 300, 3000
"""Sentences of an answer that are checked, and units of a passage that they are checked against."""
MAX_FIGURES = 40
"""Figures and dates of a sentence that are looked at."""
MAX_TOLD_SENTENCES = 20
"""Doubted sentences that a trace names."""
MIN_CLAIM_WORDS = 2
"""Words that a sentence without markers, figures and names must have to claim something."""
MIN_TERMS_SHARE = 0.4
"""Share of a sentence's terms that must stand in its passages."""
MIN_GAIN_ELSEWHERE = 0.2
"""How much more of it a unit of a passage may hold that it does not cite."""
MIN_BEARING_SHARE = 0.25
"""Share of a sentence's terms that a stretch must hold to bear it, if both are of one language."""
MIN_LACKING_SHARE, MIN_REST_SHARE = 0.1, 0.5
"""Where the best unit lacks this share of a sentence, the one that holds most of it counts, too."""
MIN_EARLIER_SHARE = 0.5
"""Share of an answer's claims that must stand in earlier turns for it to rest on them."""
DETAIL_REASONS = frozenset({"number", "date", "name"})
MAX_FOREIGN_SHARE = 0.5
"""Share of an answer's claims whose details may be missing from what tools told, for it to be taken
as told by them."""
MAX_PREMISES = 8
"""Passages that a model reads a sentence against."""
MIN_LIKELIHOOD = 0.5
"""Probability from which on a model's reading counts."""
MAX_REMEMBERED_PASSAGES = 512
"""An answer is checked anew for each sentence that is rewritten, and questions follow each other on
the same passages; most of a check is reading these."""
_BEFORE_STOP = re.compile(r" (?=[.,!?])")
"""What a marker leaves behind."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What the check of an answer found.

    Its sentences in order, the label of the whole, of each passage cited (by `Evidence.number`) the
    stretches that bear what cites it, and the citations with those of them that bear each.
    """

    checks: tuple[CheckedSentence, ...]
    spans: Mapping[int, tuple[Span, ...]]
    label: AnswerLabel
    citations: tuple[Citation, ...] = ()

    @property
    def doubted(self) -> tuple[CheckedSentence, ...]:
        """The sentences that nothing supports."""
        return tuple(item for item in self.checks if item.verdict is Verdict.UNSUPPORTED)


@dataclass(frozen=True, slots=True)
class Grounds:
    """What is known of an answer beside its sentences.

    `asked`: it was asked of documents. `lacks`: it says itself that something is not to be found.
    `earlier`: what it says stands in earlier turns. `tools`: it may be from what tools told.
    `model`: a model wrote it; else it is made of found passages.
    """

    asked: bool = False
    lacks: bool = False
    earlier: bool = False
    tools: bool = False
    model: bool = True


def verify_answer(  # noqa: PLR0913 - one question, by name
    text: str,
    citations: Sequence[Citation],
    evidence: Sequence[Evidence],
    *,
    grounds: Grounds,
    earlier: Sequence[str] = (),
    tools: Sequence[str] = (),
    verifier: Verifier | None = None,
) -> Verification:
    """Check every sentence of an answer and say what the whole rests on.

    A sentence that cites is checked against the passages that it cites, one that does not against
    all. `earlier` are the turns that the model could read, `tools` what tools told it: an answer
    that cites nothing may rest on either, and `grounds` are completed by that and by what the
    answer says itself. `verifier` reads the sentences instead of the rules, which stay for where
    it fails.
    """
    found = sentences.tie_citations(sentences.split_answer(text[:MAX_ANSWER_CHARACTERS]), citations)
    said = _read_claims(found)
    held = list(_pair_with_premises(said, _read_evidence(evidence))) if said else []
    slots = {item.number: item.slot for item in evidence}
    reasons = _infer_reasons(held, evidence, verifier) if verifier else None
    if reasons is None:
        reasons = _find_reasons(held)
    checks = tuple(_to_checked(one, reasons.get(one), slots) for one in found)
    lacks = any(sentences.is_lack(one.text, cites=bool(one.numbers)) for one in found)
    rests = not citations and bool(earlier) and _is_from_earlier_turns(said, earlier)
    is_from_tools = not citations and bool(tools) and _is_from_tools(said, tools)
    told = replace(grounds, lacks=lacks, earlier=rests, tools=is_from_tools)
    bearing = _find_bearing_places(held)
    places = {
        item.number: sorted(
            {one for (_, n), found in bearing.items() if n == item.number for one in found}
        )
        for item in evidence
    }
    spans = {
        item.number: tuple(to_span(item, *place) for place in places[item.number])
        for item in evidence
        if places[item.number]
    }
    tied = tuple(_tie_spans(citations, found, bearing, places))
    return Verification(checks, spans, decide_label(checks, told), tied)


def summarise_verification(verification: Verification) -> dict[str, object]:
    """How many sentences have which verdict, and the doubted ones, as plain JSON for a trace."""
    checks = verification.checks
    counts = {verdict.value: sum(item.verdict is verdict for item in checks) for verdict in Verdict}
    doubted = [
        {"start": item.start, "end": item.end, "slots": [*item.slots], "reasons": [*item.reasons]}
        for item in verification.doubted[:MAX_TOLD_SENTENCES]
    ]
    return {**counts, "doubted": doubted, "label": verification.label.value}


@dataclass(frozen=True, slots=True)
class _EvidenceUnit:
    """A sentence, item or row of a passage.

    `start`..`end` are offsets in the text of its `Evidence`; both 0 in the header of its table,
    which is no part of that.
    """

    start: int
    end: int
    read: SentenceFacts


@dataclass(frozen=True, slots=True)
class _Premise:
    """A passage read; `bare` is its text as names are looked for (`to_letters`)."""

    number: int
    language: str
    bare: str
    terms: frozenset[str]
    units: tuple[_EvidenceUnit, ...]
    figures: Known
    dates: frozenset[Date]
    weekdays: frozenset[int]
    numbers: frozenset[float]

    def compute_share(self, terms: frozenset[str]) -> float:
        """The largest share of the terms that a unit of it holds."""
        return max((len(terms & unit.read.terms) for unit in self.units), default=0) / len(terms)


@dataclass(frozen=True, slots=True)
class _ReadClaim:
    """A sentence beside the passages that it cites; beside all where it cites none."""

    sentence: Sentence
    read: SentenceFacts
    details: Details
    premises: tuple[_Premise, ...] = ()
    others: tuple[_Premise, ...] = ()

    @property
    def is_foreign(self) -> bool:
        """Written in another language than its passages: words cannot be compared, figures can."""
        return all(premise.language != self.read.language for premise in self.premises)

    @property
    def names(self) -> list[str]:
        """Its names that its passages could hold as they are written."""
        names = self.details.names
        if not self.is_foreign:
            return list(names)
        return [name for name in names if name.isascii() and self.read.language == "ko"]

    @property
    def units(self) -> Iterator[_EvidenceUnit]:
        """Those of its passages."""
        return chain.from_iterable(premise.units for premise in self.premises)


def _read_evidence(evidence: Sequence[Evidence]) -> list[_Premise]:
    """All passages, as far as `MAX_EVIDENCE_CHARACTERS` reaches."""
    left, found = MAX_EVIDENCE_CHARACTERS, []
    for item in evidence:
        about = f"{item.passage.document_name} {item.passage.section}"
        header, text = item.passage.header[:left], item.text[:left]
        premise = _read_premise(text, header=header, about=about)
        found.append(replace(premise, number=item.number))
        left = max(0, left - len(item.content))
    return found


@functools.lru_cache(maxsize=MAX_REMEMBERED_PASSAGES)
def _read_premise(text: str, *, header: str = "", about: str = "") -> _Premise:
    """A text cut into units, without a number.

    `header` is read before it, `about` says what document it is of.
    """
    about = tokenize.normalise(about)
    above = claims.read_terms(about)
    units: list[_EvidenceUnit] = []
    parts = ((0, one) for one in sentences.split_answer(header, wrapped=True))
    for place, one in chain(
        parts, ((1, one) for one in sentences.split_answer(text, wrapped=True))
    ):
        said = tokenize.normalise(one.text)
        if one.form is Form.TITLE:
            above = claims.read_terms(f"{about} {said}")
        read = read_sentence(said, about=above)
        units.append(_EvidenceUnit(one.start * place, one.end * place, read))
        if len(units) == MAX_UNITS:
            break
    all_read = [read_sentence(about), *(unit.read for unit in units)]
    dates = frozenset(date for read in all_read for date in read.dates)
    figures = [figure for read in all_read for figure in read.figures]
    figures += [Figure(part, "", part) for date in dates for part in date if part]
    whole = tokenize.normalise(f"{header}\n{text}")
    return _Premise(
        0,
        choose_reply_language(whole),
        to_letters(f"{about} {whole}"),
        frozenset[str]().union(*(unit.read.terms for unit in units)),
        tuple(units),
        to_known(figures),
        dates,
        claims.read_weekdays(f"{about} {whole}"),
        frozenset(figure.raw for figure in figures),
    )


def _read_claims(split: Sequence[Sentence]) -> list[_ReadClaim]:
    """The sentences that may claim something, read, beside no passages yet."""
    telling = [one for one in split if not sentences.is_without_claim(one)][:MAX_SENTENCES]
    texts = [claims.to_plain(one.text) for one in telling]
    return [
        _ReadClaim(sentence, read_sentence(text, found), read_details(text, found))
        for sentence, text, found in zip(telling, texts, analyse_morphemes(texts), strict=True)
    ]


def _pair_with_premises(
    said: Sequence[_ReadClaim], premises: Sequence[_Premise]
) -> Iterator[_ReadClaim]:
    """The sentences that claim something, beside their passages."""
    for one in said:
        numbers = one.sentence.numbers
        cited = [item for item in premises if not numbers or item.number in numbers]
        others = [item for item in premises if item not in cited]
        held = replace(one, premises=tuple(cited), others=tuple(others))
        if _has_claim(held):
            yield held


def _has_claim(held: _ReadClaim) -> bool:
    """Whether there is enough in a sentence to be checked."""
    if held.read.figures or held.read.dates or held.names:
        return True
    fewest = 1 if held.sentence.numbers else MIN_CLAIM_WORDS
    return not held.is_foreign and len(held.details.words) >= fewest and bool(held.read.terms)


def _find_bearing(terms: frozenset[str], units: Iterable[_EvidenceUnit]) -> list[_EvidenceUnit]:
    """The unit that holds most of the terms, and the one that holds most of what it lacks."""
    known = list(units)
    if not known or not terms:
        return []
    best = max(known, key=lambda unit: len(terms & unit.read.terms))
    left = terms - best.read.terms
    if len(left) >= MIN_LACKING_SHARE * len(terms):
        other = max(known, key=lambda unit: len(left & unit.read.terms))
        if len(left & other.read.terms) >= MIN_REST_SHARE * len(left):
            return [best, other]
    return [best]


def _find_reasons(held: Sequence[_ReadClaim]) -> Mapping[Sentence, tuple[str, ...]]:
    """What speaks against each sentence by the rules."""
    near = [_find_bearing(item.read.terms, item.units) for item in held]
    texts = list(dict.fromkeys(unit.read.text for units in near for unit in units))
    details = dict(zip(texts, map(read_details, texts, analyse_morphemes(texts)), strict=True))
    return {
        item.sentence: tuple(
            dict.fromkeys(
                _find_contradictions(item, units, [details[unit.read.text] for unit in units])
            )
        )
        for item, units in zip(held, near, strict=True)
    }


def _find_contradictions(
    held: _ReadClaim, near: Sequence[_EvidenceUnit], details: Sequence[Details]
) -> Iterator[str]:
    """Why the passages do not bear out a sentence, each kind of reason perhaps several times."""
    if not held.is_foreign and _is_unsupported(held):
        yield "overlap"
    for date in held.read.dates[:MAX_FIGURES]:
        if not any(is_date_told(date, one.dates, one.numbers) for one in held.premises):
            yield "date"
    yield from _find_figure_contradictions(held, near)
    bare = " ".join(one.bare for one in held.premises)
    if claims.read_weekdays(held.read.text).difference(*(one.weekdays for one in held.premises)):
        yield "date"
    if claims.find_missing(held.names, bare):
        yield "name"
    if claims.is_sign_turned(held.details.signs, claims.join_signs(one.signs for one in details)):
        yield "negation"
    if details and claims.is_name_swapped(held.details.words, details[0].words):
        yield "name"


def _find_figure_contradictions(held: _ReadClaim, near: Sequence[_EvidenceUnit]) -> Iterator[str]:
    beside = to_known(other for unit in near for other in unit.read.figures)
    for figure in held.read.figures[:MAX_FIGURES]:
        told = set[str]().union(*(find_bounds(figure, one.figures) for one in held.premises))
        if not told:
            yield "number"
        elif is_bound_opposed(figure, find_bounds(figure, beside) or told):
            yield "negation"


def _is_unsupported(held: _ReadClaim) -> bool:
    """Whether too few of its terms stand in its passages, or many more in others."""
    terms = held.read.terms
    if not terms:
        return False
    there = frozenset[str]().union(*(terms & one.terms for one in held.premises))
    best = max((one.compute_share(terms) for one in held.premises), default=0.0)
    elsewhere = max((one.compute_share(terms) for one in held.others), default=0.0)
    return len(there) < MIN_TERMS_SHARE * len(terms) or elsewhere - best > MIN_GAIN_ELSEWHERE


def _infer_reasons(
    held: Sequence[_ReadClaim], evidence: Sequence[Evidence], verifier: Verifier
) -> Mapping[Sentence, tuple[str, ...]] | None:
    """What speaks against each sentence by a model's reading; None where it fails.

    A sentence is checked against each passage that it cites, and against all of them together.
    """
    texts = {item.number: item.content for item in evidence}
    pairs: list[tuple[Sentence, str, str]] = []
    for item in held:
        numbers = [one.number for one in item.premises][:MAX_PREMISES]
        premises = [texts[number] for number in numbers]
        if 1 < len(premises) <= len(item.sentence.numbers):
            premises.append("\n".join(premises))
        said = _BEFORE_STOP.sub("", " ".join(item.read.text.split()))
        pairs += [(item.sentence, premise, said) for premise in premises]
    try:
        found = verifier.infer([(premise, said) for _, premise, said in pairs])
    except EngineUnavailable:
        logger.warning("verifier_failed", exc_info=True)
        return None
    read: dict[Sentence, list[Inference]] = {item.sentence: [] for item in held}
    for (sentence, _, _), inference in zip(pairs, found, strict=True):
        read[sentence].append(inference)
    return {sentence: tuple(_find_inferred_reason(several)) for sentence, several in read.items()}


def _find_inferred_reason(several: Sequence[Inference]) -> Iterator[str]:
    """The reason that inferences of one sentence give, if none of them bears it out."""
    if any(one.entailment >= MIN_LIKELIHOOD for one in several):
        return
    yield "negation" if any(one.contradiction >= MIN_LIKELIHOOD for one in several) else "overlap"


def _is_from_earlier_turns(said: Sequence[_ReadClaim], earlier: Sequence[str]) -> bool:
    """Whether most of what an answer claims stands in earlier turns."""
    premises = [
        replace(_read_premise(text), number=number) for number, text in enumerate(earlier, 1)
    ]
    reasons = _find_reasons(list(_pair_with_premises(said, premises))).values()
    return sum(not one for one in reasons) > MIN_EARLIER_SHARE * len(reasons)


def _is_from_tools(said: Sequence[_ReadClaim], tools: Sequence[str]) -> bool:
    """Whether most of the figures, dates and names of an answer stand in what tools told.

    Words are no measure here: tools answer tersely, and often in another language.
    """
    premises = [replace(_read_premise(text), number=number) for number, text in enumerate(tools, 1)]
    reasons = _find_reasons(list(_pair_with_premises(said, premises))).values()
    foreign = sum(any(reason in DETAIL_REASONS for reason in one) for one in reasons)
    return foreign <= MAX_FOREIGN_SHARE * len(reasons)


def _to_checked(
    sentence: Sentence, reasons: tuple[str, ...] | None, slots: Mapping[int, int]
) -> CheckedSentence:
    verdict = Verdict.UNSUPPORTED if reasons else Verdict.SUPPORTED
    if reasons is None:
        verdict = Verdict.PLAIN
    cited = tuple(dict.fromkeys(slots[number] for number in sentence.numbers if number in slots))
    return CheckedSentence(sentence.start, sentence.end, verdict, cited, reasons or ())


_Place = tuple[int, int]
"""Start and end in the text of a piece of evidence."""


def _find_bearing_places(held: Sequence[_ReadClaim]) -> Mapping[tuple[int, int], set[_Place]]:
    """The stretches that bear a sentence: by its start, and the number of a passage it cites."""
    places: dict[tuple[int, int], set[_Place]] = {}
    for item in held:
        terms = item.read.terms
        for premise in item.premises if terms and item.sentence.numbers else ():
            share = premise.compute_share(terms)
            if share and (item.is_foreign or share >= MIN_BEARING_SHARE):
                found = _find_bearing(terms, premise.units)
                places[item.sentence.start, premise.number] = {
                    (unit.start, unit.end) for unit in found if unit.end
                }
    return places


def _tie_spans(
    citations: Sequence[Citation],
    found: Sequence[Sentence],
    bearing: Mapping[tuple[int, int], set[_Place]],
    places: Mapping[int, Sequence[_Place]],
) -> Iterator[Citation]:
    """Each citation with the places, among those of its passage, that bear its sentence."""
    starts = [one.start for one in found]
    for citation in citations:
        at = bisect_right(starts, citation.offset) - 1
        own = bearing.get((starts[at], citation.number), set()) if at >= 0 else set()
        known = places.get(citation.number, ())
        yield replace(citation, spans=tuple(known.index(place) for place in sorted(own)))


# What an answer rests on, in one word: it follows from what it cites and from what holds


def decide_label(checks: Sequence[CheckedSentence], grounds: Grounds) -> AnswerLabel:
    """The label of an answer with these sentences."""
    if not any(item.slots for item in checks):
        return _decide_uncited_label(grounds)
    if not grounds.model:
        return AnswerLabel.PASSAGES
    claims = [item.verdict is Verdict.SUPPORTED for item in checks if item.verdict != Verdict.PLAIN]
    if claims and not any(claims):
        return AnswerLabel.INSUFFICIENT
    if not claims:  # a marker behind a sentence that only says what is missing
        return AnswerLabel.INSUFFICIENT if grounds.lacks else AnswerLabel.DOCUMENTS
    return AnswerLabel.DOCUMENTS if all(claims) else AnswerLabel.PARTIAL


def _decide_uncited_label(grounds: Grounds) -> AnswerLabel:
    if grounds.asked and grounds.lacks and not grounds.earlier:
        return AnswerLabel.INSUFFICIENT
    if grounds.tools:
        return AnswerLabel.TOOLS
    return AnswerLabel.CONVERSATION if grounds.earlier else AnswerLabel.GENERAL
