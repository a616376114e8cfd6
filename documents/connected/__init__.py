"""Models that administrators connect in the page, beside those that the environment names."""
