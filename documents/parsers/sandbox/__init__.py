"""Readers run in child processes with limits: `client` starts them, `server` is what they are."""
