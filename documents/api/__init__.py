"""The REST API of documents."""
