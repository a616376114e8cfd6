"""What may be uploaded, for the pages: from the one list of formats."""

from django import template
from django.utils.translation import gettext as _

from documents.parsers import formats

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
