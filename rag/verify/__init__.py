"""Sentences of an answer checked against the evidence."""
