"""Rerankers, one adapter a file."""
