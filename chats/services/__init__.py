"""What can be done with conversations: keyword-only functions that never see a request."""
