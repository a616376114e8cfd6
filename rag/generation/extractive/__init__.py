"""The answerer when no model is configured: the passages' own sentences, each with its source."""

from rag.generation.extractive.answerer import ExtractiveAnswerer

__all__ = ["ExtractiveAnswerer"]
