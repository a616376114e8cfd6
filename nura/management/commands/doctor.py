"""`manage.py doctor`: what is configured, reachable, missing."""

import sys
from typing import Any

from django.core.management.base import BaseCommand

from nura.diagnosis import State, examine


class Command(BaseCommand):
    """Prints the findings; exit status 1 when the product cannot serve."""

    help = "Say what is configured, reachable and missing."
    requires_system_checks: list[str] = []

    def handle(self, *_args: Any, **_options: Any) -> None:
        """One line per finding."""
        styles = {
            State.OK: self.style.SUCCESS,
            State.WARN: self.style.WARNING,
            State.FAIL: self.style.ERROR,
        }
        failed = False
        for finding in examine():
            failed = failed or finding.state is State.FAIL
            mark = styles[finding.state](f"{finding.state:<4}")
            self.stdout.write(f"{mark}  {finding.name:<16}  {finding.detail}")
        if failed:
            sys.exit(1)
