"""Pages of documents."""

from typing import Any

app_name = "documents"
urlpatterns: list[Any] = []
