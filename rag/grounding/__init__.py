"""Whether an answer stands on its evidence: markers while it streams, sentences at its end."""
