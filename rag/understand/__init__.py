"""From a message in a conversation to a question."""
