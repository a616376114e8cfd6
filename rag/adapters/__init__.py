"""Adapters to models and libraries: one outside thing each."""
