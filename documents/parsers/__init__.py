"""Readers of files: one a format, each run in a limited child process. They know no Django."""
