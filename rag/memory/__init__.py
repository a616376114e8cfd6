"""What a conversation said: window, recall, exploration, summary."""
