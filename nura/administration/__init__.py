"""The administration's own pages: what an administrator looks at, each number with its rows."""
