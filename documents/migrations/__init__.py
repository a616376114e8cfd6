"""Migrations of documents."""
