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

__all__ = [
    "Auditor",
    "DataExport",
    "DataImport",
    "GroupDetails",
    "Invitation",
    "Preferences",
    "SignOnServer",
]
