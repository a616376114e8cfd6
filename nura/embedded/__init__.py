"""Postgres with pgvector and Redis that come with pip: started by `up`, reached through sockets in the data folder."""
