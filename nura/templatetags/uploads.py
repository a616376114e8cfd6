"""Template tags for upload formats, the quota panel, and whether uploads are read."""

from typing import Any

from django import template
from django.utils.translation import gettext as _

from documents.parsers import formats
from nura.accounts.quotas import describe_area
from nura.health import check_redis_and_workers

register = template.Library()


@register.simple_tag
def list_upload_extensions() -> str:
    """The value of a file input's `accept`."""
    return ",".join(f".{extension}" for extension in formats.EXTENSIONS)


@register.simple_tag
def list_upload_formats() -> str:
    """The names of the formats, for people."""
    translated = {formats.MARKDOWN: _("Markdown"), formats.TEXT: _("text")}
    return ", ".join(translated.get(kind, label) for kind, label in formats.LABELS.items())


@register.inclusion_tag("panels/quota.html", takes_context=True)
def show_quotas(context: template.Context, area: str) -> dict[str, Any]:
    """The quota panel of an area for the signed-in user."""
    return describe_area(context["request"].user, area)


@register.simple_tag
def has_documents_worker() -> bool:
    """Whether something reads documents now; true where Redis does not say."""
    alive = check_redis_and_workers()
    return alive["documents"] or not alive["redis"]
