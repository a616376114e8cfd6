"""Whether sentences without support are seen: planted ones, true ones, and what checking costs."""
