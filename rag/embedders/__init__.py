"""Embedding models, one adapter a file."""
