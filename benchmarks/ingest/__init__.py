"""How fast files become searchable, and what that costs."""
