"""The engine: a plain library. It knows no Django, no request, no user and no ORM."""
