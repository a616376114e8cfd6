"""The adapter of Typst: a child process that sets a chat on pages, its template and fonts."""
