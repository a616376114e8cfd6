"""Routes of accounts: pages that allauth does not have, and REST."""

from django.urls import path, re_path
from django.views.generic import RedirectView

from nura.accounts import profile, quotas, sign_on, signup, views
from nura.accounts.api import (
    KeysView,
    KeyView,
    MeView,
    MyExportFileView,
    MyExportsView,
    MyExportView,
    MyImportsView,
    MyImportView,
    PreferencesView,
    SessionsView,
    SessionView,
    TokenView,
)

app_name = "accounts"
urlpatterns = [
    path("settings/", RedirectView.as_view(pattern_name="accounts:profile"), name="settings"),
    path("settings/email", profile.change_email, name="email"),
    path("accounts/email/", RedirectView.as_view(pattern_name="accounts:email")),
    path("invitations/<str:secret>", signup.accept_invitation, name="invitation"),
    path("settings/profile", profile.edit_profile, name="profile"),
    path("settings/sign-on", sign_on.SignOnSection.as_view(), name="sign-on"),
    path("settings/sign-on/<slug:slug>", sign_on.connect_server, name="connect-server"),
    path("settings/appearance", profile.edit_appearance, name="appearance"),
    path("settings/two-step", profile.show_two_step, name="two-step"),
    path("accounts/2fa/", RedirectView.as_view(pattern_name="accounts:two-step")),
    path("accounts/2fa/webauthn/", RedirectView.as_view(pattern_name="accounts:two-step")),
    path("accounts/sessions/", RedirectView.as_view(pattern_name="accounts:devices")),
    path("settings/memory", views.show_memory, name="memory"),
    path("settings/memory/add", views.add_memory, name="add-memory"),
    path("settings/memory/switch", views.switch_memory, name="switch-memory"),
    path("settings/memory/forget", views.forget_memory, name="forget-memory"),
    path("settings/memory/<uuid:slot_id>", views.change_memory, name="change-memory"),
    path("settings/usage", quotas.show_usage, name="usage"),
    re_path(
        "^panels/quota/(?P<area>documents|questions)$", quotas.show_quota_panel, name="quota-panel"
    ),
    path("settings/data", views.manage_data, name="data"),
    path("settings/data/<uuid:export_id>", views.download_export, name="export-file"),
    path("settings/delete", views.delete_account, name="delete"),
    path("settings/keys", views.manage_keys, name="keys"),
    path("settings/keys/<uuid:key_id>/revoke", views.revoke_key, name="revoke-key"),
    path("settings/devices", views.show_devices, name="devices"),
    path("settings/devices/end-others", views.end_other_sessions, name="end-other-sessions"),
    path("settings/devices/<uuid:session_id>/end", views.end_session, name="end-session"),
]
api_urlpatterns = [
    path("auth/token", TokenView.as_view(), name="api-token"),
    path("me", MeView.as_view(), name="api-me"),
    path("me/export", MyExportsView.as_view(), name="api-export"),
    path("me/exports/<uuid:export_id>", MyExportView.as_view(), name="api-export-state"),
    path("me/exports/<uuid:export_id>/file", MyExportFileView.as_view(), name="api-export-file"),
    path("me/imports", MyImportsView.as_view(), name="api-imports"),
    path("me/imports/<uuid:import_id>", MyImportView.as_view(), name="api-import"),
    path("me/preferences", PreferencesView.as_view(), name="api-preferences"),
    path("me/keys", KeysView.as_view(), name="api-keys"),
    path("me/keys/<uuid:key_id>", KeyView.as_view(), name="api-key"),
    path("me/sessions", SessionsView.as_view(), name="api-sessions"),
    path("me/sessions/<uuid:session_id>", SessionView.as_view(), name="api-session"),
]
"""Under `/api/v1/`."""
