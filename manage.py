#!/usr/bin/env python
"""Nura's command line. From a bare Python it first makes `.venv` and goes on inside it."""

import os
import sys

from nura import bootstrap

UP_OPTIONS = {"--host": "NURA_HOST", "--port": "NURA_PORT", "--data-dir": "NURA_DATA_DIR"}


def main():
    """Run one management command, with the embedded services if it needs them."""
    bootstrap.enter_environment()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "nura.settings.prod")
    if sys.argv[1:2] == ["up"]:
        take_options(sys.argv[2:])
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line

    from nura.embedded.session import start_services_for

    try:
        with start_services_for(sys.argv[1:]):
            if sys.argv[1:2] == ["up"]:  # needs settings, none of the applications
                from django.conf import settings
                from django.utils.log import configure_logging

                from nura.management.commands.up import Command

                configure_logging(settings.LOGGING_CONFIG, settings.LOGGING)
                Command().run_from_argv(sys.argv)
            else:
                execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.exit(f"Configuration: {error}")


def take_options(arguments):
    """Put options of `up` into the environment, where the settings and all children read them."""
    for option, variable in UP_OPTIONS.items():
        for index, argument in enumerate(arguments):
            name, separator, value = argument.partition("=")
            if name == option:
                value = value if separator else "".join(arguments[index + 1 : index + 2])
                os.environ[variable] = value


if __name__ == "__main__":
    main()
