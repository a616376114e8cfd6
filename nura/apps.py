"""The installation as a Django app, for its commands, templates and admin."""

from django.apps import AppConfig


class NuraConfig(AppConfig):
    """Its tables hold what Nura stores about accounts and itself."""

    name = "nura"
    verbose_name = "Nura"

    def ready(self) -> None:
        """Make our Celery app the one that sends tasks, and register the checks of the schema."""
        from nura import celery, schema  # noqa: F401
