"""How much of what goes into a prompt."""
