"""Runs: the making of answers. Their logs in Redis, who writes and reads them, and who works."""
