"""Wording of the prompts is data: text files beside their loader."""
