"""Postgres with pgvector and Redis that come with pip, reached by sockets in the data folder."""
