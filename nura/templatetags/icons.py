"""The icons of the pages: `{% icon "pencil" %}` draws one of `static/nura/img/icons.svg`."""

from functools import lru_cache

from django import template
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()


@register.simple_tag
def icon(name: str, size: str = "") -> SafeString:
    """An icon that screen readers skip; `size` is "s" for a small one."""
    return _render_icon(static("nura/img/icons.svg"), name, f" icon-{size}" if size else "")


@lru_cache(maxsize=256)
def _render_icon(sprite_url: str, name: str, more_class: str) -> SafeString:
    return format_html(
        '<svg class="icon{}" aria-hidden="true"><use href="{}#{}"></use></svg>',
        more_class,
        sprite_url,
        name,
    )
