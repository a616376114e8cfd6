"""The tables of the installation itself, where Django looks for them."""

from nura.accounts.models import DataExport, DataImport, Invitation, Preferences

__all__ = ["DataExport", "DataImport", "Invitation", "Preferences"]
