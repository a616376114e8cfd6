"""Settings for development: error pages, static files straight from the folder."""

from nura.settings.base import *  # noqa: F403

DEBUG = True
STORAGES["staticfiles"] = {  # noqa: F405
    "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
}
