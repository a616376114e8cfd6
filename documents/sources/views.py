"""The pages of a library's sources, for those who manage it: plain forms, which need no script."""

from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.paginator import Paginator
from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from documents.errors import explain_code
from documents.models import Library
from documents.sources import services
from documents.sources.base import SettingField, SourceKind, get_kind
from documents.sources.models import RunStatus, Source, SourceRun
from rag.errors import NuraError

if TYPE_CHECKING:
    from django.contrib.auth.models import User

    from documents.sources.services import Schedule

RUNS_SHOWN = 20
PROBLEMS_SHOWN = 50
NAMES_SHOWN = 20


@require_safe
@never_cache
@login_required
def source_libraries(request: HttpRequest) -> HttpResponse:
    """The libraries that the user manages, with the number of their sources."""
    user = cast("User", request.user)
    rows = Library.objects.managed_by(user).annotate(source_count=Count("sources"))
    page = Paginator(rows.order_by("name", "pk"), 50).get_page(request.GET.get("page"))
    return render(request, "sources/libraries.html", {"area": "documents", "libraries": page})


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
def source_list(request: HttpRequest, library_id: UUID) -> HttpResponse:
    """The sources of a library, and the form for a new one."""
    user = cast("User", request.user)
    library = get_object_or_404(Library.objects.managed_by(user), pk=library_id)
    kinds = services.list_kinds_for(user)
    kind_name = request.POST.get("kind") or request.GET.get("kind", "")
    kind = next((option for option in kinds if option.name == kind_name), None)
    problem = ""
    if request.method == "POST":
        if kind is None:
            raise Http404
        try:
            source = services.create_source(
                library=library,
                creator=user,
                kind=kind.name,
                name=request.POST.get("name", ""),
                values=_read_values(kind, request.POST),
                schedule=_read_schedule(request.POST),
            )
            if not kind.sends:
                services.start_source(source=source, actor=user, dry_run=True)
            return redirect("documents:source", library.pk, source.pk)
        except NuraError as error:
            problem = _explain_error(error, kind)
    sources = Source.objects.filter(library=library).select_related("owner")
    context = {
        "area": "documents",
        "library": library,
        "sources": [_to_row(source) for source in sources],
        "kinds": kinds,
        "kind": kind,
        "fields": _list_fields(kind, request.POST, {}) if kind else (),
        "entered": request.POST,
        "problem": problem,
    }
    return render(request, "sources/list.html", context, status=400 if problem else 200)


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
def source_detail(request: HttpRequest, library_id: UUID, source_id: UUID) -> HttpResponse:
    """One source: its state, runs, problems and settings."""
    user = cast("User", request.user)
    library = get_object_or_404(Library.objects.managed_by(user), pk=library_id)
    rows = Source.objects.select_related("owner", "library")
    source = get_object_or_404(rows, library=library, pk=source_id)
    if request.method == "POST":
        return _handle_action(request, source, user)
    if request.headers.get("HX-Request") == "true":
        return render(request, "sources/status.html", _describe_source(source))
    kind = get_kind(source.kind)
    values = source.settings | dict.fromkeys(source.secrets, "")
    context = _describe_source(source) | {
        "area": "documents",
        "kind": kind,
        "fields": _list_fields(kind, QueryDict(), values),
        "entered": {"name": source.name, **_to_form(services.describe_schedule(source))},
        "may_change": user.is_staff or not kind.administrators,
        "address": request.build_absolute_uri("/")[:-1],
        "runs": [_to_run(run) for run in source.runs.all()[:RUNS_SHOWN]],
    }
    return render(request, "sources/detail.html", context)


def _handle_action(request: HttpRequest, source: Source, user: "User") -> HttpResponse:
    """Execute the command of a button."""
    command = request.POST.get("do", "")
    response = redirect("documents:source", source.library_id, source.pk)
    try:
        if command in {"run", "dry_run", "confirm"}:
            services.start_source(
                source=source,
                actor=user,
                dry_run=command == "dry_run",
                confirmed=command == "confirm",
            )
        elif command in {"pause", "resume"}:
            services.update_source(source=source, actor=user, paused=command == "pause")
        elif command == "save":
            kind = get_kind(source.kind)
            services.update_source(
                source=source,
                actor=user,
                name=request.POST.get("name", ""),
                values=_read_values(kind, request.POST),
                schedule=_read_schedule(request.POST),
            )
            messages.success(request, _("Saved."))
        elif command in {"remove", "remove_all"}:
            services.delete_source(
                source=source, actor=user, with_documents=command == "remove_all"
            )
            messages.success(request, _("The source was removed."))
            return redirect("documents:sources", source.library_id)
        else:
            raise Http404
    except NuraError as error:
        messages.error(request, _explain_error(error, get_kind(source.kind)))
    return response


def _explain_error(error: NuraError, kind: SourceKind) -> str:
    """The sentence of the error, with the label of the setting."""
    labels = {field.name: str(field.label) for field in kind.fields} | {"schedule": _("When")}
    params = dict(error.params)
    if params.get("name") in labels:
        params["name"] = labels[str(params["name"])]
    return explain_code(error.code, params)


def _read_values(kind: SourceKind, form: QueryDict) -> dict[str, Any]:
    return {field.name: form.get(field.name, "") for field in kind.fields}


def _read_schedule(form: QueryDict) -> "Schedule | None":
    unit = form.get("unit", "")
    if unit == "at":
        return {"at": form.get("at", "")}
    return {"every": form.get("every", ""), "unit": unit} if unit else None


def _to_form(schedule: dict[str, Any] | None) -> dict[str, Any]:
    if schedule is None:
        return {}
    return {"unit": "at", **schedule} if "at" in schedule else schedule


def _list_fields(
    kind: SourceKind, form: QueryDict, values: dict[str, Any]
) -> list[tuple[SettingField, Any]]:
    """Each field with its current value."""
    rows = []
    for field in kind.fields:
        value = form.get(field.name, values.get(field.name, field.default))
        rows.append((field, "\n".join(value) if isinstance(value, list | tuple) else value))
    return rows


def _describe_source(source: Source) -> dict[str, Any]:
    """The part of the context that changes while a source runs."""
    newest = source.runs.first()
    last_run = source.runs.filter(dry_run=False).first()
    problems = services.list_problems(source)
    return {
        "library": source.library,
        "source": source,
        "row": _to_row(source),
        "running": newest is not None and newest.status == RunStatus.RUNNING,
        "newest": _to_run(newest) if newest else None,
        "held": last_run if last_run and last_run.status == RunStatus.HELD else None,
        "problems": [services.to_problem_json(problem) for problem in problems[:PROBLEMS_SHOWN]],
        "problem_count": problems.count(),
        "sends": get_kind(source.kind).sends,
    }


def _to_row(source: Source) -> dict[str, Any]:
    kind = get_kind(source.kind)
    row = services.to_source_json(source)
    row |= {"label": kind.label, "place": kind.describe(source.settings), "source": source}
    if row["last_run"]:
        row["last_at"] = parse_datetime(row["last_run"]["at"])
    return row


def _to_run(run: SourceRun) -> dict[str, Any]:
    """A run with a few names of entries for each outcome."""
    row = services.to_run_json(run) | {"run": run}
    titles = {
        "added": _("Newly added"),
        "changed": _("Changed"),
        "renamed": _("Renamed"),
        "removed": _("Deleted"),
        "held": _("Gone at the source"),
        "failed": _("Not read"),
    }
    row["parts"] = [
        {"title": title, "count": row[outcome], "names": run.report.get(outcome, [])[:NAMES_SHOWN]}
        for outcome, title in titles.items()
        if row[outcome]
    ]
    return row
