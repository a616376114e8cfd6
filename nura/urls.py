"""All routes."""

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from nura import gateway, health, metrics

handler400 = "nura.errors.bad_request"
handler403 = "nura.errors.permission_denied"
handler404 = "nura.errors.not_found"
handler500 = "nura.errors.server_error"
handler429 = "nura.errors.too_many_requests"

api = [
    path("", include("nura.accounts.api_urls")),
    path("", include("documents.api.urls")),
    path("", include("chats.api.urls")),
]

urlpatterns = [
    path("", include("chats.urls")),
    path("", include("documents.urls")),
    path("", include("nura.accounts.urls")),
    path("accounts/", include("allauth.urls")),
    path("admin/", admin.site.urls),
    path("i18n/", include("django.conf.urls.i18n")),
    path("api/v1/", include(api)),
    path("api/schema/", SpectacularAPIView.as_view(), name="schema"),
    path("v1/", gateway.api.urls),
    path("api/docs/", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="docs"),
    path("healthz", health.healthz),
    path("readyz", health.readyz),
    path("metrics", metrics.metrics),
]
