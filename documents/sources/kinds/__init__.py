"""One module a kind of source; each registers itself (`documents.sources.base`)."""
