"""Understanding a message in its conversation."""
