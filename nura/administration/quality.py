"""Quality: verdicts that become cases of the evaluation, and questions that nobody could answer."""

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
    """Make the answer of a verdict a case, or change what is expected of it."""
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
    """How many cases there are, and taking them along."""
    cases = EvaluationCase.objects.select_related("written_by", "message").order_by("-updated_at")
    verdicts = Feedback.objects.filter(value=-1, message__case=None)
    context = {"cases": cases[:100], "count": cases.count(), "waiting": verdicts.count()}
    return render_page(request, "admin/evaluation.html", context)


@admin_page("evaluation/cases.jsonl", name="evaluation-export")
def export_cases(request: HttpRequest) -> HttpResponse:
    """The cases as lines of `manage.py evaluate`; that they were taken is written down."""
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
    return response  # type: ignore[return-value] # a response all the same


# Questions that nobody could answer

MAX_QUESTIONS = 2000
"""The latest that are looked at; the page says when there are more."""
MAX_GROUPS = 100
ALIKE = 0.5
"""Share of the words that two questions have in common, of all that either has."""
MAX_WORDS = 6
MIN_PEOPLE = 2
"""Fewer might be told by the words alone: those are shown when the group is opened."""


@dataclass(slots=True)
class UnansweredGroup:
    """Questions about the same. `terms` counts the questions that a word stands in."""

    terms: Counter[str] = field(default_factory=Counter)
    questions: list[Message] = field(default_factory=list)

    def add(self, question: Message, terms: Iterable[str]) -> None:
        """Take one in."""
        self.questions.append(question)
        self.terms.update(terms)

    @property
    def key(self) -> UUID:
        """The latest question stands for the group in addresses."""
        return self.questions[0].pk

    @property
    def people(self) -> int:
        """How many asked."""
        return len({one.chat.owner_id for one in self.questions})

    @property
    def words(self) -> list[str]:
        """What most of them have in common; nothing where it might tell who asked."""
        if self.people < MIN_PEOPLE:
            return []
        return [term for term, _count in self.terms.most_common(MAX_WORDS) if term in self.core]

    @property
    def core(self) -> frozenset[str]:
        """The words that at least half of them share."""
        half = len(self.questions) / 2
        return frozenset(term for term, count in self.terms.items() if count >= half)


def find_unanswered(since: datetime) -> QuerySet[Message]:
    """Questions whose answer found nothing although there were documents to search, latest first.

    Those are the asker's own, and those of the libraries that he reads, by himself or by a group.
    """
    missed = Message.objects.filter(
        parent=OuterRef("pk"),
        status=Message.Status.COMPLETED,
        label__in=(Message.Label.INSUFFICIENT, Message.Label.GENERAL),
    )
    asker = OuterRef("chat__owner_id")
    owned = Document.objects.searchable().filter(owner=asker)
    shared = Exists(Document.objects.searchable().filter(library=OuterRef("library_id")))
    # One subquery each: joined by "or", every membership there is would be looked at.
    by_name = LibraryMember.objects.filter(shared, user=asker)
    by_group = LibraryMember.objects.filter(shared, group__user=asker)
    rows = Message.objects.filter(
        Exists(owned) | Exists(by_name) | Exists(by_group),
        Exists(missed),
        role=Message.Role.USER,
        created_at__gte=since,
    )
    return rows.select_related("chat__owner").order_by("-created_at")


def group_questions(questions: Iterable[Message]) -> list[UnansweredGroup]:
    """Questions that share enough words are together, largest groups first."""
    groups: list[UnansweredGroup] = []
    places: dict[str, list[UnansweredGroup]] = {}
    for question in questions:
        terms = find_subject_terms(question.content)
        if not terms:
            continue
        near = {id(one): one for term in terms for one in places.get(term, ())}.values()
        best = max(near, key=lambda one: _measure_likeness(one.core, terms), default=None)
        if best is None or _measure_likeness(best.core, terms) < ALIKE:
            best = UnansweredGroup()
            groups.append(best)
        best.add(question, terms)
        for term in terms:
            there = places.setdefault(term, [])
            if best not in there[-1:]:
                there.append(best)
    return sorted(groups, key=lambda one: -len(one.questions))


def _measure_likeness(core: frozenset[str], terms: set[str]) -> float:
    return len(core & terms) / len(core | terms) if core else 0.0


@admin_page(
    "unanswered",
    MenuPlace(Section.QUALITY, "contact_support", 20, gettext_lazy("Unanswered questions")),
)
def show_unanswered(request: HttpRequest) -> HttpResponse:
    """What was asked and not found, by what it was about; who asked and how is not shown."""
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
    """The questions of one group with who asked, for a reason that is written down first."""
    period = read_period(request)
    groups = group_questions(find_unanswered(period.since)[:MAX_QUESTIONS])
    group = next((one for one in groups if one.key == key), None)
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
    """One entry for each person whose questions are shown."""
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
