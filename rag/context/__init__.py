"""What goes into a prompt, and how much of it."""
