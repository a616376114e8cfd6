"""The tables of the installation itself, where Django looks for them."""

from nura.accounts.models import DataExport, Invitation, Preferences

__all__ = ["DataExport", "Invitation", "Preferences"]
