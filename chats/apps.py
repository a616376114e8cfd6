"""The app of conversations."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ChatsConfig(AppConfig):
    """Chats, messages and the runs that answer them."""

    name = "chats"
    verbose_name = _("Chats")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Put the errors of conversations into words, in every process."""
        from chats import errors  # noqa: F401
