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
    """The libraries that the user manages, with how many sources each has."""
    user = cast("User", request.user)
    rows = Library.objects.managed_by(user).annotate(source_count=Count("sources"))
    page = Paginator(rows.order_by("name", "pk"), 50).get_page(request.GET.get("page"))
    return render(request, "sources/libraries.html", {"area": "documents", "libraries": page})


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
@login_required
def source_list(request: HttpRequest, library_id: UUID) -> HttpResponse:
    """The sources of a library, and the form for another one."""
    user = cast("User", request.user)
    library = get_object_or_404(Library.objects.managed_by(user), pk=library_id)
    kinds = services.list_kinds_for(user)
    chosen = request.POST.get("kind") or request.GET.get("kind", "")
    kind = next((one for one in kinds if one.name == chosen), None)
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
    """One source: what it does now, its runs, what could not be read, its settings."""
    user = cast("User", request.user)
    library = get_object_or_404(Library.objects.managed_by(user), pk=library_id)
    rows = Source.objects.select_related("owner", "library")
    source = get_object_or_404(rows, library=library, pk=source_id)
    if request.method == "POST":
        return _handle_action(request, source, user)
    if request.headers.get("HX-Request") == "true":
        return render(request, "sources/status.html", _describe_source(source))
    kind = get_kind(source.kind)
    known = source.settings | dict.fromkeys(source.secrets, "")
    context = _describe_source(source) | {
        "area": "documents",
        "kind": kind,
        "fields": _list_fields(kind, QueryDict(), known),
        "entered": {"name": source.name, **_to_form(services.describe_schedule(source))},
        "may_change": user.is_staff or not kind.administrators,
        "address": request.build_absolute_uri("/")[:-1],
        "runs": [_to_run(run) for run in source.runs.all()[:RUNS_SHOWN]],
    }
    return render(request, "sources/detail.html", context)


def _handle_action(request: HttpRequest, source: Source, user: "User") -> HttpResponse:
    """Do what a button of the page says."""
    do = request.POST.get("do", "")
    here = redirect("documents:source", source.library_id, source.pk)
    try:
        if do in {"run", "dry_run", "confirm"}:
            services.start_source(
                source=source, actor=user, dry_run=do == "dry_run", confirmed=do == "confirm"
            )
        elif do in {"pause", "resume"}:
            services.update_source(source=source, actor=user, paused=do == "pause")
        elif do == "save":
            kind = get_kind(source.kind)
            services.update_source(
                source=source,
                actor=user,
                name=request.POST.get("name", ""),
                values=_read_values(kind, request.POST),
                schedule=_read_schedule(request.POST),
            )
            messages.success(request, _("Saved."))
        elif do in {"remove", "remove_all"}:
            services.delete_source(source=source, actor=user, documents=do == "remove_all")
            messages.success(request, _("The source was removed."))
            return redirect("documents:sources", source.library_id)
        else:
            raise Http404
    except NuraError as error:
        messages.error(request, _explain_error(error, get_kind(source.kind)))
    return here


def _explain_error(error: NuraError, kind: SourceKind) -> str:
    """The sentence, with the name of the setting as the form shows it."""
    labels = {one.name: str(one.label) for one in kind.fields} | {"schedule": _("When")}
    params = dict(error.params)
    if params.get("name") in labels:
        params["name"] = labels[str(params["name"])]
    return explain_code(error.code, params)


def _read_values(kind: SourceKind, form: QueryDict) -> dict[str, Any]:
    return {one.name: form.get(one.name, "") for one in kind.fields}


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
    kind: SourceKind, form: QueryDict, known: dict[str, Any]
) -> list[tuple[SettingField, Any]]:
    """Each field with what stands in it."""
    shown = []
    for one in kind.fields:
        value = form.get(one.name, known.get(one.name, one.default))
        shown.append((one, "\n".join(value) if isinstance(value, list | tuple) else value))
    return shown


def _describe_source(source: Source) -> dict[str, Any]:
    """What changes while a source runs."""
    newest = source.runs.first()
    real = source.runs.filter(dry_run=False).first()
    problems = services.list_problems(source)
    return {
        "library": source.library,
        "source": source,
        "row": _to_row(source),
        "running": newest is not None and newest.status == RunStatus.RUNNING,
        "newest": _to_run(newest) if newest else None,
        "held": real if real and real.status == RunStatus.HELD else None,
        "problems": [services.to_problem_json(one) for one in problems[:PROBLEMS_SHOWN]],
        "problem_count": problems.count(),
        "sends": get_kind(source.kind).sends,
    }


def _to_row(source: Source) -> dict[str, Any]:
    kind = get_kind(source.kind)
    told = services.to_source_json(source)
    told |= {"label": kind.label, "place": kind.describe(source.settings), "source": source}
    if told["last_run"]:
        told["last_at"] = parse_datetime(told["last_run"]["at"])
    return told


def _to_run(run: SourceRun) -> dict[str, Any]:
    """A run with a few of the names that it noted, by what happened."""
    told = services.to_run_json(run) | {"run": run}
    titles = {
        "added": _("Newly added"),
        "changed": _("Changed"),
        "renamed": _("Renamed"),
        "removed": _("Deleted"),
        "held": _("Gone at the source"),
        "failed": _("Not read"),
    }
    told["parts"] = [
        {"title": title, "count": told[what], "names": run.report.get(what, [])[:NAMES_SHOWN]}
        for what, title in titles.items()
        if told[what]
    ]
    return told
