"""From one embedding model to another while the old one serves."""
