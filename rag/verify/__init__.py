"""Checks each sentence of an answer against the passages it cites, and labels the answer."""

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
from rag.retrieve.evidence import to_span
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
    is_date_stated,
    read_details,
    read_sentence,
    to_known,
)
from rag.verify.sentences import Form, Sentence

logger = structlog.get_logger()

MAX_ANSWER_CHARACTERS, MAX_EVIDENCE_CHARACTERS = 20_000, 60_000
"""Characters of an answer, and of all passages together, that are read."""
MAX_SENTENCES, MAX_UNITS = 300, 3000
"""Sentences of an answer that are checked, and units of a passage to check them against."""
MAX_FIGURES = 40
"""Figures and dates of a sentence that are checked."""
MAX_TOLD_SENTENCES = 20
"""Unsupported sentences listed in a trace."""
MIN_CLAIM_WORDS = 2
"""Words that a sentence without citations, figures and names needs to be a claim."""
MIN_TERMS_SHARE = 0.4
"""Share of a sentence's terms that must occur in its passages."""
MIN_GAIN_ELSEWHERE = 0.2
"""How much larger that share may be in a unit of a passage that it does not cite."""
MIN_SUPPORTING_SHARE = 0.25
"""Share of a sentence's terms that a supporting unit must contain, if the languages match."""
MIN_LACKING_SHARE, MIN_REST_SHARE = 0.1, 0.5
"""If the best unit lacks the first share of a sentence's terms, a second unit counts as well if it
contains the second share of the missing ones."""
MIN_EARLIER_SHARE = 0.5
"""Share of an answer's claims that earlier turns must support for it to rest on them."""
DETAIL_REASONS = frozenset({"number", "date", "name"})
MAX_FOREIGN_SHARE = 0.5
"""Share of an answer's claims whose details may be missing from the tools' results, for it to rest
on them."""
MAX_PREMISES = 8
"""Passages that a model checks a sentence against."""
MIN_LIKELIHOOD = 0.5
"""Probability from which a model's inference counts."""
MAX_CACHED_PASSAGES = 512
"""Passages kept as read: an answer is checked again after each rewritten sentence, consecutive
questions share passages, and reading them is most of a check."""
_BEFORE_STOP = re.compile(r" (?=[.,!?])")
"""The blank that a removed marker leaves before punctuation."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of checking an answer.

    `checks` are its sentences in order and `label` that of the whole. `spans` are the supporting
    places of each cited passage, by `Evidence.number`; each of the `citations` refers to those that
    support it.
    """

    checks: tuple[CheckedSentence, ...]
    spans: Mapping[int, tuple[Span, ...]]
    label: AnswerLabel
    citations: tuple[Citation, ...] = ()

    @property
    def doubted(self) -> tuple[CheckedSentence, ...]:
        """The unsupported sentences."""
        return tuple(item for item in self.checks if item.verdict is Verdict.UNSUPPORTED)


@dataclass(frozen=True, slots=True)
class Grounds:
    """What is known about an answer besides its sentences.

    `asked`: documents were searched for it. `lacks`: it says itself that something was not found.
    `earlier`: earlier turns support it. `tools`: the results of tools may support it. `model`: a
    model wrote it; otherwise it consists of passages.
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
    """Check every sentence of an answer and decide what the whole rests on.

    A sentence with citations is checked against the passages it cites, any other against all.
    `earlier` are the turns that the model could read and `tools` the results of its tools; an
    answer without citations may rest on either. That, and what the answer says itself, completes
    `grounds`. `verifier` checks sentences instead of the rules, which are used if it fails.
    """
    split = sentences.assign_citations(
        sentences.split_answer(text[:MAX_ANSWER_CHARACTERS]), citations
    )
    all_claims = _read_claims(split)
    checkable = (
        list(_pair_with_premises(all_claims, _read_evidence(evidence))) if all_claims else []
    )
    slots = {item.number: item.slot for item in evidence}
    reasons = _infer_reasons(checkable, evidence, verifier) if verifier else None
    if reasons is None:
        reasons = _find_reasons(checkable)
    checks = tuple(_to_checked(sentence, reasons.get(sentence), slots) for sentence in split)
    lacks = any(
        sentences.admits_lack(sentence.text, cites=bool(sentence.numbers)) for sentence in split
    )
    rests_on_turns = not citations and bool(earlier) and _is_from_earlier_turns(all_claims, earlier)
    is_from_tools = not citations and bool(tools) and _is_from_tools(all_claims, tools)
    completed_grounds = replace(grounds, lacks=lacks, earlier=rests_on_turns, tools=is_from_tools)
    supporting_places = _find_supporting_places(checkable)
    places = {
        item.number: sorted(
            {
                place
                for (_, number), supported in supporting_places.items()
                if number == item.number
                for place in supported
            }
        )
        for item in evidence
    }
    spans = {
        item.number: tuple(to_span(item, *place) for place in places[item.number])
        for item in evidence
        if places[item.number]
    }
    tied = tuple(_tie_spans(citations, split, supporting_places, places))
    return Verification(checks, spans, decide_label(checks, completed_grounds), tied)


def summarise_verification(verification: Verification) -> dict[str, object]:
    """The number of sentences by verdict and the unsupported ones, as plain JSON for a trace."""
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

    `start` and `end` are offsets in the text of its `Evidence`; both are 0 for its table's header,
    which is not part of that text.
    """

    start: int
    end: int
    facts: SentenceFacts


@dataclass(frozen=True, slots=True)
class _Premise:
    """A passage as read; `letters` is its text for finding names (see `to_letters`)."""

    number: int
    language: str
    letters: str
    terms: frozenset[str]
    units: tuple[_EvidenceUnit, ...]
    figures: Known
    dates: frozenset[Date]
    weekdays: frozenset[int]
    numbers: frozenset[float]

    def compute_share(self, terms: frozenset[str]) -> float:
        """The largest share of the terms in any of its units."""
        return max((len(terms & unit.facts.terms) for unit in self.units), default=0) / len(terms)


@dataclass(frozen=True, slots=True)
class _ReadClaim:
    """A sentence with the passages that it cites, or with all if it cites none."""

    sentence: Sentence
    facts: SentenceFacts
    details: Details
    premises: tuple[_Premise, ...] = ()
    others: tuple[_Premise, ...] = ()

    @property
    def is_foreign(self) -> bool:
        """Whether its passages are in another language: figures can be compared, words cannot."""
        return all(premise.language != self.facts.language for premise in self.premises)

    @property
    def names(self) -> list[str]:
        """Its names, as far as its passages would spell them the same way."""
        names = self.details.names
        if not self.is_foreign:
            return list(names)
        return [name for name in names if name.isascii() and self.facts.language == "ko"]

    @property
    def units(self) -> Iterator[_EvidenceUnit]:
        """The units of its passages."""
        return chain.from_iterable(premise.units for premise in self.premises)


def _read_evidence(evidence: Sequence[Evidence]) -> list[_Premise]:
    """All passages, as far as `MAX_EVIDENCE_CHARACTERS` reaches."""
    room, premises = MAX_EVIDENCE_CHARACTERS, []
    for item in evidence:
        source = f"{item.passage.document_name} {item.passage.section}"
        header, text = item.passage.header[:room], item.text[:room]
        premise = _read_premise(text, header=header, about=source)
        premises.append(replace(premise, number=item.number))
        room = max(0, room - len(item.content))
    return premises


@functools.lru_cache(maxsize=MAX_CACHED_PASSAGES)
def _read_premise(text: str, *, header: str = "", about: str = "") -> _Premise:
    """A text cut into units, without a number.

    `header` is read before it; `about` is the name of its document and its section.
    """
    about = tokenize.normalise(about)
    above = claims.read_terms(about)
    units: list[_EvidenceUnit] = []
    header_parts = ((0, sentence) for sentence in sentences.split_answer(header, wrapped=True))
    for factor, sentence in chain(
        header_parts, ((1, sentence) for sentence in sentences.split_answer(text, wrapped=True))
    ):
        unit_text = tokenize.normalise(sentence.text)
        if sentence.form is Form.TITLE:
            above = claims.read_terms(f"{about} {unit_text}")
        facts = read_sentence(unit_text, about=above)
        units.append(_EvidenceUnit(sentence.start * factor, sentence.end * factor, facts))
        if len(units) == MAX_UNITS:
            break
    all_read = [read_sentence(about), *(unit.facts for unit in units)]
    dates = frozenset(date for facts in all_read for date in facts.dates)
    figures = [figure for facts in all_read for figure in facts.figures]
    figures += [Figure(part, "", part) for date in dates for part in date if part]
    whole_text = tokenize.normalise(f"{header}\n{text}")
    return _Premise(
        0,
        choose_reply_language(whole_text),
        to_letters(f"{about} {whole_text}"),
        frozenset[str]().union(*(unit.facts.terms for unit in units)),
        tuple(units),
        to_known(figures),
        dates,
        claims.read_weekdays(f"{about} {whole_text}"),
        frozenset(figure.raw for figure in figures),
    )


def _read_claims(split: Sequence[Sentence]) -> list[_ReadClaim]:
    """The sentences that may be claims, read but not yet paired with passages."""
    claim_sentences = [sentence for sentence in split if not sentences.is_without_claim(sentence)][
        :MAX_SENTENCES
    ]
    texts = [claims.to_plain(sentence.text) for sentence in claim_sentences]
    return [
        _ReadClaim(sentence, read_sentence(text, morphemes), read_details(text, morphemes))
        for sentence, text, morphemes in zip(
            claim_sentences, texts, analyse_morphemes(texts), strict=True
        )
    ]


def _pair_with_premises(
    all_claims: Sequence[_ReadClaim], premises: Sequence[_Premise]
) -> Iterator[_ReadClaim]:
    """The claims, each with its passages."""
    for claim in all_claims:
        numbers = claim.sentence.numbers
        cited = [item for item in premises if not numbers or item.number in numbers]
        others = [item for item in premises if item not in cited]
        paired = replace(claim, premises=tuple(cited), others=tuple(others))
        if _has_claim(paired):
            yield paired


def _has_claim(claim: _ReadClaim) -> bool:
    """Whether a sentence contains enough to be checked."""
    if claim.facts.figures or claim.facts.dates or claim.names:
        return True
    min_words = 1 if claim.sentence.numbers else MIN_CLAIM_WORDS
    return (
        not claim.is_foreign and len(claim.details.words) >= min_words and bool(claim.facts.terms)
    )


def _find_supporting_units(
    terms: frozenset[str], units: Iterable[_EvidenceUnit]
) -> list[_EvidenceUnit]:
    """The unit with most of the terms, and the one with most of those it lacks."""
    candidates = list(units)
    if not candidates or not terms:
        return []
    best = max(candidates, key=lambda unit: len(terms & unit.facts.terms))
    missing = terms - best.facts.terms
    if len(missing) >= MIN_LACKING_SHARE * len(terms):
        other = max(candidates, key=lambda unit: len(missing & unit.facts.terms))
        if len(missing & other.facts.terms) >= MIN_REST_SHARE * len(missing):
            return [best, other]
    return [best]


def _find_reasons(checkable: Sequence[_ReadClaim]) -> Mapping[Sentence, tuple[str, ...]]:
    """The reasons to doubt each sentence, by the rules."""
    units_by_claim = [_find_supporting_units(item.facts.terms, item.units) for item in checkable]
    texts = list(dict.fromkeys(unit.facts.text for units in units_by_claim for unit in units))
    details = dict(zip(texts, map(read_details, texts, analyse_morphemes(texts)), strict=True))
    return {
        item.sentence: tuple(
            dict.fromkeys(
                _find_contradictions(item, units, [details[unit.facts.text] for unit in units])
            )
        )
        for item, units in zip(checkable, units_by_claim, strict=True)
    }


def _find_contradictions(
    claim: _ReadClaim, units: Sequence[_EvidenceUnit], details: Sequence[Details]
) -> Iterator[str]:
    """Reasons why the passages do not support a sentence; may repeat."""
    if not claim.is_foreign and _is_unsupported(claim):
        yield "overlap"
    for date in claim.facts.dates[:MAX_FIGURES]:
        if not any(
            is_date_stated(date, premise.dates, premise.numbers) for premise in claim.premises
        ):
            yield "date"
    yield from _find_figure_contradictions(claim, units)
    letters = " ".join(premise.letters for premise in claim.premises)
    if claims.read_weekdays(claim.facts.text).difference(
        *(premise.weekdays for premise in claim.premises)
    ):
        yield "date"
    if claims.find_missing(claim.names, letters):
        yield "name"
    if claims.is_polarity_reversed(
        claim.details.polarities, claims.merge_polarities(detail.polarities for detail in details)
    ):
        yield "negation"
    if details and claims.is_name_swapped(claim.details.words, details[0].words):
        yield "name"


def _find_figure_contradictions(claim: _ReadClaim, units: Sequence[_EvidenceUnit]) -> Iterator[str]:
    nearby_figures = to_known(other for unit in units for other in unit.facts.figures)
    for figure in claim.facts.figures[:MAX_FIGURES]:
        bounds = set[str]().union(
            *(find_bounds(figure, premise.figures) for premise in claim.premises)
        )
        if not bounds:
            yield "number"
        elif is_bound_opposed(figure, find_bounds(figure, nearby_figures) or bounds):
            yield "negation"


def _is_unsupported(claim: _ReadClaim) -> bool:
    """Whether too few of its terms occur in its passages, or many more in others."""
    terms = claim.facts.terms
    if not terms:
        return False
    covered = frozenset[str]().union(*(terms & premise.terms for premise in claim.premises))
    best = max((premise.compute_share(terms) for premise in claim.premises), default=0.0)
    elsewhere = max((premise.compute_share(terms) for premise in claim.others), default=0.0)
    return len(covered) < MIN_TERMS_SHARE * len(terms) or elsewhere - best > MIN_GAIN_ELSEWHERE


def _infer_reasons(
    checkable: Sequence[_ReadClaim], evidence: Sequence[Evidence], verifier: Verifier
) -> Mapping[Sentence, tuple[str, ...]] | None:
    """The reasons to doubt each sentence, by a model's inferences; None if it fails.

    A sentence is checked against each passage that it cites, and against all of them together.
    """
    texts = {item.number: item.content for item in evidence}
    pairs: list[tuple[Sentence, str, str]] = []
    for item in checkable:
        numbers = [premise.number for premise in item.premises][:MAX_PREMISES]
        premises = [texts[number] for number in numbers]
        if 1 < len(premises) <= len(item.sentence.numbers):
            premises.append("\n".join(premises))
        hypothesis = _BEFORE_STOP.sub("", " ".join(item.facts.text.split()))
        pairs += [(item.sentence, premise, hypothesis) for premise in premises]
    try:
        inferences = verifier.infer([(premise, hypothesis) for _, premise, hypothesis in pairs])
    except EngineUnavailable:
        logger.warning("verifier_failed", exc_info=True)
        return None
    by_sentence: dict[Sentence, list[Inference]] = {item.sentence: [] for item in checkable}
    for (sentence, _, _), inference in zip(pairs, inferences, strict=True):
        by_sentence[sentence].append(inference)
    return {
        sentence: tuple(_find_inferred_reason(several)) for sentence, several in by_sentence.items()
    }


def _find_inferred_reason(inferences: Sequence[Inference]) -> Iterator[str]:
    """The reason to doubt a sentence by its inferences; nothing if one of them supports it."""
    if any(inference.entailment >= MIN_LIKELIHOOD for inference in inferences):
        return
    yield (
        "negation"
        if any(inference.contradiction >= MIN_LIKELIHOOD for inference in inferences)
        else "overlap"
    )


def _is_from_earlier_turns(all_claims: Sequence[_ReadClaim], earlier: Sequence[str]) -> bool:
    """Whether earlier turns support most of an answer's claims."""
    premises = [
        replace(_read_premise(text), number=number) for number, text in enumerate(earlier, 1)
    ]
    reasons = _find_reasons(list(_pair_with_premises(all_claims, premises))).values()
    return sum(not claim_reasons for claim_reasons in reasons) > MIN_EARLIER_SHARE * len(reasons)


def _is_from_tools(all_claims: Sequence[_ReadClaim], tools: Sequence[str]) -> bool:
    """Whether the tools' results contain the figures, dates and names of most claims.

    Words are not compared: tools answer tersely, and often in another language.
    """
    premises = [replace(_read_premise(text), number=number) for number, text in enumerate(tools, 1)]
    reasons = _find_reasons(list(_pair_with_premises(all_claims, premises))).values()
    foreign = sum(
        any(reason in DETAIL_REASONS for reason in claim_reasons) for claim_reasons in reasons
    )
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


def _find_supporting_places(
    checkable: Sequence[_ReadClaim],
) -> Mapping[tuple[int, int], set[_Place]]:
    """The places that support a sentence, by its start and the number of the passage it cites."""
    places: dict[tuple[int, int], set[_Place]] = {}
    for item in checkable:
        terms = item.facts.terms
        for premise in item.premises if terms and item.sentence.numbers else ():
            share = premise.compute_share(terms)
            if share and (item.is_foreign or share >= MIN_SUPPORTING_SHARE):
                units = _find_supporting_units(terms, premise.units)
                places[item.sentence.start, premise.number] = {
                    (unit.start, unit.end) for unit in units if unit.end
                }
    return places


def _tie_spans(
    citations: Sequence[Citation],
    split: Sequence[Sentence],
    supporting_places: Mapping[tuple[int, int], set[_Place]],
    places: Mapping[int, Sequence[_Place]],
) -> Iterator[Citation]:
    """Each citation with the indices of the passage's places that support its sentence."""
    starts = [sentence.start for sentence in split]
    for citation in citations:
        index = bisect_right(starts, citation.offset) - 1
        own_places = (
            supporting_places.get((starts[index], citation.number), set()) if index >= 0 else set()
        )
        passage_places = places.get(citation.number, ())
        yield replace(
            citation, spans=tuple(passage_places.index(place) for place in sorted(own_places))
        )


# What an answer rests on, in one word


def decide_label(checks: Sequence[CheckedSentence], grounds: Grounds) -> AnswerLabel:
    """The label of an answer with these sentences."""
    if not any(item.slots for item in checks):
        return _decide_uncited_label(grounds)
    if not grounds.model:
        return AnswerLabel.PASSAGES
    claim_verdicts = [
        item.verdict is Verdict.SUPPORTED for item in checks if item.verdict != Verdict.PLAIN
    ]
    if claim_verdicts and not any(claim_verdicts):
        return AnswerLabel.INSUFFICIENT
    if not claim_verdicts:  # the only citations follow sentences that claim nothing
        return AnswerLabel.INSUFFICIENT if grounds.lacks else AnswerLabel.DOCUMENTS
    return AnswerLabel.DOCUMENTS if all(claim_verdicts) else AnswerLabel.PARTIAL


def _decide_uncited_label(grounds: Grounds) -> AnswerLabel:
    if grounds.asked and grounds.lacks and not grounds.earlier:
        return AnswerLabel.INSUFFICIENT
    if grounds.tools:
        return AnswerLabel.TOOLS
    return AnswerLabel.CONVERSATION if grounds.earlier else AnswerLabel.GENERAL
