"""Settings: `base` for all, then `prod` (what `make run` uses), `dev`, `test`."""
