"""The Django app of conversations."""

from collections.abc import Collection
from uuid import UUID

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class ChatsConfig(AppConfig):
    """Chats, messages and the runs that answer them."""

    name = "chats"
    verbose_name = _("Chats")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the explanations of our errors, and our handler of deleted documents."""
        from chats import errors  # noqa: F401
        from documents.deletions import register_evidence_keeper

        register_evidence_keeper(_forget_documents)


def _forget_documents(document_ids: Collection[UUID], erase: bool) -> bool:
    """The service, imported on use: not every process needs it."""
    from chats.services.erasure import forget_documents

    return forget_documents(document_ids, erase)
