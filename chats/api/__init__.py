"""REST of conversations."""
