"""The admin of what only the product itself makes."""

from typing import Any

from django.http import HttpRequest
from unfold.admin import ModelAdmin


class ReadOnly(ModelAdmin):  # type: ignore[misc] # unfold has no types
    """Rows that only the product itself makes and changes."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Never."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Never: the form shows and nothing more."""
        return False
