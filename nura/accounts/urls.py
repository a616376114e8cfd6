"""Routes of accounts: pages that allauth does not bring, and REST."""

from django.urls import path

from nura.accounts import views
from nura.accounts.api import MeView, TokenView

app_name = "accounts"
urlpatterns = [
    path("settings/keys", views.keys, name="keys"),
    path("settings/keys/<str:digest>/revoke", views.revoke, name="revoke-key"),
]
api_urlpatterns = [
    path("auth/token", TokenView.as_view(), name="api-token"),
    path("me", MeView.as_view(), name="api-me"),
]
"""Under `/api/v1/`."""
