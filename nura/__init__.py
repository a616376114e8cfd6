"""Wiring: settings, URLs, processes, embedded services, accounts, health."""
