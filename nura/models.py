"""The tables of the installation itself, where Django looks for them."""

from nura.accounts.models import Auditor, DataExport, DataImport, Invitation, Preferences

__all__ = ["Auditor", "DataExport", "DataImport", "Invitation", "Preferences"]
