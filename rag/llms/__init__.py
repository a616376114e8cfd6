"""Chat models, one adapter a file."""
