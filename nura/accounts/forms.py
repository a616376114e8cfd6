"""Forms of allauth with our words."""

from typing import Any

from allauth.account import forms
from django.contrib.auth.models import User
from django.utils.translation import gettext_lazy as _


class LoginForm(forms.LoginForm):  # type: ignore[misc]
    """Says what may be typed, and lets password managers know."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        login = self.fields["login"]
        login.label = _("User name or e-mail")
        login.widget.attrs = {"autocomplete": "username", "autofocus": True}
        self.fields["remember"].label = _("Keep me signed in")

    def clean_login(self) -> str:
        """The name in the form under which it is stored."""
        return str(User.normalize_username(super().clean_login()))
