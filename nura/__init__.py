"""The installation: settings, URLs, processes, embedded services, accounts, health."""

__version__ = "0.1.0"
