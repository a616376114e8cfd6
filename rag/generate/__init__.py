"""Writing answers."""
