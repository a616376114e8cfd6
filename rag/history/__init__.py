"""What of the conversation the engine may see."""
