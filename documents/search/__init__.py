"""Search within documents that the user may read."""
