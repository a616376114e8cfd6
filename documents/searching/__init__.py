"""How passages are searched in Postgres: one module a question, one for the connection."""
