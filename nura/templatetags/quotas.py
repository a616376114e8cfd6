"""What is left of quotas, in the page as it is first drawn."""

from typing import Any

from django import template

from nura.accounts.quotas import describe_area

register = template.Library()


@register.inclusion_tag("panels/quota.html", takes_context=True)
def show_quotas(context: template.Context, area: str) -> dict[str, Any]:
    """The panel of that part of the pages, for whoever is signed in."""
    return describe_area(context["request"].user, area)
