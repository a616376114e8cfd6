"""Conversations: models, runs, REST, WebSocket, pages, admin."""
