"""Files: upload, parsing, indexing, the passage store, their API and admin."""
