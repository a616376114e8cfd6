"""The Django app of documents."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class DocumentsConfig(AppConfig):
    """Documents and their index."""

    name = "documents"
    verbose_name = _("Documents")
    default_auto_field = "django.db.models.BigAutoField"
