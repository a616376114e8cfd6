"""Celery tasks of the installation: exports and imports, deletions, retention."""

from uuid import UUID

from celery import shared_task

from documents import deletions
from nura import retention
from nura.accounts import exports, imports

EXPORT_LIMIT_SECONDS = IMPORT_LIMIT_SECONDS = 3600
SWEEP_LIMIT_SECONDS = 300
SETTLE_LIMIT_SECONDS = 600
PURGE_LIMIT_SECONDS = 3600


@shared_task(time_limit=EXPORT_LIMIT_SECONDS)
def make_export(export_id: str) -> None:
    """Make one export."""
    exports.make_export(UUID(export_id))


@shared_task(time_limit=IMPORT_LIMIT_SECONDS)
def make_import(import_id: str) -> None:
    """Read one import."""
    imports.make_import(UUID(import_id))


@shared_task(time_limit=SWEEP_LIMIT_SECONDS)
def sweep_account_files() -> None:
    """Requeue exports and imports that lost their worker, remove old files; sent by beat."""
    exports.sweep_exports()
    imports.sweep_imports()


@shared_task(time_limit=SETTLE_LIMIT_SECONDS)
def settle_deletions() -> None:
    """Continue deletions whose copies have yet to be marked or erased; sent by beat."""
    deletions.apply_deletions()
    retention.purge_chats()


@shared_task(time_limit=PURGE_LIMIT_SECONDS)
def purge_expired() -> None:
    """Purge expired data; sent by beat once a day. If killed, the next run continues."""
    retention.purge()


@shared_task(time_limit=SWEEP_LIMIT_SECONDS)
def end_removed_accounts() -> None:
    """Deactivate accounts that the LDAP directory removed or disabled; sent by beat."""
    from nura.accounts import directory  # its library is optional

    directory.end_removed_accounts()
