"""The adapter of Typst: a child process that typesets a chat, with its template and fonts."""
