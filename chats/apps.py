"""The app of conversations."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ChatsConfig(AppConfig):
    """Chats, messages and the runs that answer them."""

    name = "chats"
    verbose_name = _("Chats")
    default_auto_field = "django.db.models.BigAutoField"
