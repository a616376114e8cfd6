"""The tables of the installation itself, where Django looks for them."""

from nura.accounts.models import (
    Auditor,
    DataExport,
    DataImport,
    GroupDetails,
    Invitation,
    Preferences,
    SignOnServer,
)
from nura.administration.models import BackupRecord, Banner, InstalledVersion

__all__ = [
    "Auditor",
    "BackupRecord",
    "Banner",
    "DataExport",
    "DataImport",
    "GroupDetails",
    "InstalledVersion",
    "Invitation",
    "Preferences",
    "SignOnServer",
]
