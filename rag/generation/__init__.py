"""Turning evidence into an answer."""
