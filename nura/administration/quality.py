"""Quality: verdicts that become evaluation cases, and unanswered questions."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST

from chats.admin import read_facts
from chats.evaluation import list_case_lines
from chats.models import EvaluationCase, Feedback, Message
from documents.administration import MenuPlace, ReasonForm, Section, admin_page, render_page
from documents.audit import Action, record_event
from documents.models import Document, LibraryMember
from nura.administration.overview import PERIODS, read_period
from rag.tokenize import find_subject_terms

# Cases


@admin_page("feedback/<int:pk>/case", name="evaluation-case")
@require_POST
def save_case(request: HttpRequest, pk: int) -> HttpResponse:
    """Add the answer of a verdict as a case, or change what is expected of it."""
    verdict = get_object_or_404(Feedback.objects.select_related("message", "user"), pk=pk)
    with transaction.atomic():
        EvaluationCase.objects.update_or_create(
            message=verdict.message,
            defaults={
                "facts": read_facts(request.POST.get("facts", "")),
                "answerable": "answerable" in request.POST,
                "written_by_id": request.user.pk,
            },
        )
        record_event(
            Action.CASE_WRITTEN, actor=request.user, subject=verdict.user, target=verdict.message
        )
    return redirect("admin:evaluation")


@admin_page("evaluation", MenuPlace(Section.QUALITY, "fact_check", 30, gettext_lazy("Evaluation")))
def show_cases(request: HttpRequest) -> HttpResponse:
    """The cases, with their export."""
    cases = EvaluationCase.objects.select_related("written_by", "message").order_by("-updated_at")
    verdicts = Feedback.objects.filter(value=-1, message__case=None)
    context = {"cases": cases[:100], "count": cases.count(), "waiting": verdicts.count()}
    return render_page(request, "admin/evaluation.html", context)


@admin_page("evaluation/cases.jsonl", name="evaluation-export")
def export_cases(request: HttpRequest) -> HttpResponse:
    """Export the cases as lines for `manage.py evaluate`; audited."""
    count = EvaluationCase.objects.count()
    record_event(
        Action.DATA_EXPORTED,
        actor=request.user,
        target="evaluation:jsonl",
        details={"cases": count},
    )
    lines = (json.dumps(line, ensure_ascii=False) + "\n" for line in list_case_lines())
    response = StreamingHttpResponse(lines, content_type="application/jsonl")
    response["Content-Disposition"] = 'attachment; filename="cases.jsonl"'
    return response  # type: ignore[return-value] # streamed, but a response


# Unanswered questions

MAX_QUESTIONS = 2000
"""Latest questions considered; the page says if there are more."""
MAX_GROUPS = 100
MIN_LIKENESS = 0.5
"""Share of common words among all words of two questions from which they are grouped."""
MAX_WORDS = 6
MIN_PEOPLE = 2
"""With fewer, the words might give the person away: they are shown only in the opened group."""


@dataclass(slots=True)
class UnansweredGroup:
    """Questions about the same topic. `terms` counts the questions that contain each word."""

    terms: Counter[str] = field(default_factory=Counter)
    questions: list[Message] = field(default_factory=list)

    def add(self, question: Message, terms: Iterable[str]) -> None:
        """Add a question."""
        self.questions.append(question)
        self.terms.update(terms)

    @property
    def key(self) -> UUID:
        """The group's id in addresses: its latest question."""
        return self.questions[0].pk

    @property
    def people(self) -> int:
        """The number of people who asked."""
        return len({question.chat.owner_id for question in self.questions})

    @property
    def words(self) -> list[str]:
        """The most common shared words; empty if they might reveal who asked."""
        if self.people < MIN_PEOPLE:
            return []
        return [term for term, _count in self.terms.most_common(MAX_WORDS) if term in self.core]

    @property
    def core(self) -> frozenset[str]:
        """The words in at least half of the questions."""
        half = len(self.questions) / 2
        return frozenset(term for term, count in self.terms.items() if count >= half)


def find_unanswered(since: datetime) -> QuerySet[Message]:
    """Questions whose answer found nothing although there were documents to search, latest first.

    Documents are the asker's own, or in libraries read as a member or through a group.
    """
    unhelpful = Message.objects.filter(
        parent=OuterRef("pk"),
        status=Message.Status.COMPLETED,
        label__in=(Message.Label.INSUFFICIENT, Message.Label.GENERAL),
    )
    asker = OuterRef("chat__owner_id")
    owned = Document.objects.searchable().filter(owner=asker)
    shared = Exists(Document.objects.searchable().filter(library=OuterRef("library_id")))
    # One subquery each: joined by OR, they would scan every membership.
    by_name = LibraryMember.objects.filter(shared, user=asker)
    by_group = LibraryMember.objects.filter(shared, group__user=asker)
    rows = Message.objects.filter(
        Exists(owned) | Exists(by_name) | Exists(by_group),
        Exists(unhelpful),
        role=Message.Role.USER,
        created_at__gte=since,
    )
    return rows.select_related("chat__owner").order_by("-created_at")


def group_questions(questions: Iterable[Message]) -> list[UnansweredGroup]:
    """Group questions that share enough words, largest groups first."""
    groups: list[UnansweredGroup] = []
    by_term: dict[str, list[UnansweredGroup]] = {}
    for question in questions:
        terms = find_subject_terms(question.content)
        if not terms:
            continue
        candidates = {
            id(candidate): candidate for term in terms for candidate in by_term.get(term, ())
        }.values()
        best = max(
            candidates, key=lambda candidate: _measure_likeness(candidate.core, terms), default=None
        )
        if best is None or _measure_likeness(best.core, terms) < MIN_LIKENESS:
            best = UnansweredGroup()
            groups.append(best)
        best.add(question, terms)
        for term in terms:
            term_groups = by_term.setdefault(term, [])
            if best not in term_groups[-1:]:
                term_groups.append(best)
    return sorted(groups, key=lambda candidate: -len(candidate.questions))


def _measure_likeness(core: frozenset[str], terms: set[str]) -> float:
    return len(core & terms) / len(core | terms) if core else 0.0


@admin_page(
    "unanswered",
    MenuPlace(Section.QUALITY, "contact_support", 20, gettext_lazy("Unanswered questions")),
)
def show_unanswered(request: HttpRequest) -> HttpResponse:
    """Unanswered questions by topic, without who asked and in which words."""
    period = read_period(request)
    rows = find_unanswered(period.since)
    groups = group_questions(rows[:MAX_QUESTIONS])
    context = {
        "period": period.days,
        "periods": PERIODS,
        "groups": groups[:MAX_GROUPS],
        "count": rows.count(),
        "most": MAX_QUESTIONS,
        "left": max(0, len(groups) - MAX_GROUPS),
    }
    return render_page(request, "admin/unanswered.html", context)


@admin_page("unanswered/<uuid:key>", name="unanswered-group")
def open_group(request: HttpRequest, key: UUID) -> HttpResponse:
    """The questions of one group and who asked, after giving a reason, which is audited."""
    period = read_period(request)
    groups = group_questions(find_unanswered(period.since)[:MAX_QUESTIONS])
    group = next((candidate for candidate in groups if candidate.key == key), None)
    if group is None:
        raise Http404
    form = ReasonForm(request.POST if request.method == "POST" else None)
    context: dict[str, Any] = {
        "title": _("Unanswered questions"),
        "group": group,
        "form": form,
        "period": period.days,
    }
    if form.is_valid():
        _record_opening(request, group.questions, form.cleaned_data["reason"])
        context["questions"] = group.questions
    response = render_page(request, "admin/unanswered_group.html", context)
    response.headers["Cache-Control"] = "no-store"
    return response


def _record_opening(request: HttpRequest, questions: Sequence[Message], reason: str) -> None:
    """Audit the view, with one entry per person whose questions are shown."""
    by_owner: dict[Any, list[str]] = {}
    for question in questions:
        by_owner.setdefault(question.chat.owner, []).append(str(question.pk))
    with transaction.atomic():
        for owner, keys in by_owner.items():
            record_event(
                Action.DATA_VIEWED,
                actor=request.user,
                subject=owner,
                target="message:" + keys[0],
                details={"reason": reason, "messages": keys, "view": "unanswered"},
            )
