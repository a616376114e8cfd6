"""Pages of the account that allauth does not bring."""

from django.urls import path

from nura.accounts import views

app_name = "accounts"
urlpatterns = [
    path("settings/keys", views.keys, name="keys"),
    path("settings/keys/<str:digest>/revoke", views.revoke, name="revoke-key"),
]
