"""How much of a file's text arrives."""

from benchmarks import report

FILES = report.choose_size(None, quick=2)
"""Of a folder, the first in order; None: all."""
