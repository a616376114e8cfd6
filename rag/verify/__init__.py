"""Sentences of an answer held against the evidence."""
