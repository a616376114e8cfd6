"""Measurements of the running product: `python -m benchmarks [NAME ...]`, or `make bench`."""
