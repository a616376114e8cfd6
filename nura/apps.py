"""The wiring as a Django app, for its commands, templates and admin."""

from django.apps import AppConfig


class NuraConfig(AppConfig):
    """Brings no tables of its own."""

    name = "nura"
    verbose_name = "Nura"

    def ready(self) -> None:
        """Let every process that sends tasks send them with our Celery app, web processes too."""
        from nura import celery  # noqa: F401
