"""Commands on documents."""
