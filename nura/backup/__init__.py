"""Backups: taken while the product runs, restored onto an empty installation, and verified."""
