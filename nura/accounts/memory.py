"""The section of what is remembered: to see, change, confirm and forget."""

from itertools import groupby
from typing import Any, cast
from uuid import UUID

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.utils.translation import get_language, gettext_lazy
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from chats.models import ProfileSlot
from chats.services import memory as remembered
from nura.accounts.sections import render_section
from rag.memory.profile import Effect, Packs, SlotStatus

ROUTE = "accounts:memory"


class SlotForm(forms.Form):
    """Something that the user writes himself."""

    kind = forms.ChoiceField(label=gettext_lazy("Kind"))
    key = forms.CharField(label=gettext_lazy("What"), max_length=200)
    value = forms.CharField(label=gettext_lazy("Value"), max_length=200)
    unit = forms.CharField(label=gettext_lazy("Unit"), max_length=50, required=False)

    def __init__(self, *args: Any, packs: Packs, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = cast("forms.ChoiceField", self.fields["kind"])
        field.choices = [(one, packs.get_kind_title(one, _language())) for one in packs.kinds]


class EditForm(forms.Form):
    """Other words for a value."""

    value = forms.CharField(max_length=200)
    unit = forms.CharField(max_length=50, required=False)


@never_cache
@login_required
@require_safe
def memory(request: HttpRequest) -> HttpResponse:
    """All that is remembered, proposals first."""
    user = cast("User", request.user)
    packs = remembered.get_packs()
    slots = list(remembered.list_slots(user).select_related("message", "replaces"))
    told = [_describe(slot, packs) for slot in slots]
    known = [one for one in told if one["slot"].status != SlotStatus.PROPOSED]
    context = {
        "proposals": [one for one in told if one["slot"].status == SlotStatus.PROPOSED],
        "kinds": [
            (title, list(rows))
            for title, rows in groupby(known, key=lambda one: cast("str", one["kind_title"]))
        ],
        "is_on": remembered.is_memory_on(user.pk),
        "form": SlotForm(packs=packs),
    }
    return render_section(request, ROUTE, "settings/memory.html", context)


def _describe(slot: ProfileSlot, packs: Packs) -> dict[str, Any]:
    key = packs.get_key_title(slot.key, _language())
    shown = slot.to_slot().shown
    return {
        "slot": slot,
        "kind_title": packs.get_kind_title(slot.kind, _language()),
        "key": "" if key == slot.value else key,
        "shown": shown,
        "before": slot.replaces.to_slot().shown if slot.replaces else "",
        "ends": slot.effect == Effect.END.value,
        "history": slot.history[::-1],
    }


def _language() -> str:
    return "ko" if (get_language() or "ko").startswith("ko") else "en"


@login_required
@require_POST
def add_memory(request: HttpRequest) -> HttpResponse:
    """Keep something that the user wrote."""
    form = SlotForm(request.POST, packs=remembered.get_packs())
    if form.is_valid():
        remembered.add_slot(owner=cast("User", request.user), **form.cleaned_data)
        messages.success(request, _("Remembered."))
    else:
        messages.error(request, _("Something is missing. Nothing was changed."))
    return redirect(ROUTE)


@login_required
@require_POST
def change_memory(request: HttpRequest, slot_id: UUID) -> HttpResponse:
    """Confirm, reject, change or forget one thing: the button says which."""
    rows = ProfileSlot.objects.owned_by(cast("User", request.user)).select_related("owner")
    slot = get_object_or_404(rows, pk=slot_id)
    wanted = request.POST.get("do", "")
    form = EditForm(request.POST)
    if wanted in {"yes", "no"}:
        remembered.confirm_slot(slot=slot, accept=wanted == "yes")
        messages.success(request, _("Thank you. That is settled."))
    elif wanted == "forget":
        remembered.forget_slot(slot=slot)
        messages.success(request, _("Forgotten."))
    elif wanted == "edit" and form.is_valid():
        remembered.edit_slot(slot=slot, changes=form.cleaned_data)
        messages.success(request, _("Changed."))
    else:
        messages.error(request, _("Something is missing. Nothing was changed."))
    return redirect(ROUTE)


@login_required
@require_POST
def switch_memory(request: HttpRequest) -> HttpResponse:
    """Remember from now on, or no longer."""
    is_on = request.POST.get("enabled") == "true"
    remembered.switch_memory(owner=cast("User", request.user), enabled=is_on)
    messages.success(request, _("Memory is on.") if is_on else _("Memory is off."))
    return redirect(ROUTE)


@login_required
@require_POST
def forget_memory(request: HttpRequest) -> HttpResponse:
    """Forget everything."""
    remembered.forget_everything(owner=cast("User", request.user))
    messages.success(request, _("Everything has been forgotten."))
    return redirect(ROUTE)
