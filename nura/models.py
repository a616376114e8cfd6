"""The tables of the installation itself, where Django looks for them."""

from nura.accounts.models import Invitation, Preferences

__all__ = ["Invitation", "Preferences"]
