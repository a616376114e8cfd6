"""Routes under `/api/v1/`."""

from django.urls import path

from nura.accounts.api import MeView, TokenView

urlpatterns = [
    path("auth/token", TokenView.as_view(), name="api-token"),
    path("me", MeView.as_view(), name="api-me"),
]
