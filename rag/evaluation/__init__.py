"""Whether answers are right: facts found, measures of a turn, configurations side by side."""
