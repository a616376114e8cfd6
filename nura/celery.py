"""The Celery app. Queues: `answers` (threads) and `documents` (prefork)."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "nura.settings.prod")

app = Celery("nura")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
