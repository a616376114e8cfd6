"""Commands on conversations."""
