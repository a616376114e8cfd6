"""Answers streamed to many readers at once: what is lost, what waits, what it costs."""
