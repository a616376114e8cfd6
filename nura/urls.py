"""All routes, and the gateway mounted behind API keys, its errors in OpenAI's shape."""

from allauth.account.views import LoginView
from django.conf import settings
from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import (
    URLPattern,
    URLResolver,
    include,
    is_valid_path,
    path,
    register_converter,
)
from django.urls.converters import PathConverter
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError

import chats.urls
import documents.urls
import nura.accounts.urls
from chats.gateway.routes import router
from nura import app_shell, health, metrics
from nura.accounts import scim
from nura.accounts.adapter import is_signup_open
from nura.accounts.authentication import authenticate_gateway_request
from nura.accounts.profile import set_language
from nura.accounts.sign_on import finish_sign_in, list_servers, show_signed_out, start_sign_in
from nura.administration.record import hide_banner
from nura.errors import to_problem

handler400 = "nura.errors.bad_request"
handler403 = "nura.errors.permission_denied"
handler404 = "nura.errors.not_found"
handler500 = "nura.errors.server_error"
handler429 = "nura.errors.too_many_requests"

gateway_api = NinjaAPI(
    title="Nura",
    version="1",
    urls_namespace="gateway",
    openapi_url=None,  # its clients know the protocol; docs/gateway.md describes the rest
    auth=authenticate_gateway_request,
)
gateway_api.add_router("", router)


def answer_gateway_error(request: HttpRequest, error: Exception | type[Exception]) -> HttpResponse:
    """Respond to an error a view raised before it began to respond."""
    exception = error if isinstance(error, Exception) else error()
    return to_problem(exception).to_response_at(request.path_info)


for kind in (Exception, Http404, HttpError, ValidationError):  # ninja has own handlers for these
    gateway_api.add_exception_handler(kind, answer_gateway_error)

api: list[URLPattern | URLResolver] = [
    *nura.accounts.urls.api_urlpatterns,
    *documents.urls.api_urlpatterns,
    *chats.urls.api_urlpatterns,
]

SIGN_IN = LoginView.as_view(
    extra_context={
        "is_signup_open": is_signup_open,
        "servers": list_servers,
        "is_password_first": lambda: settings.LOCAL_SIGN_IN == "everybody" or settings.LDAP_URL,
    }
)
"""Allauth's page; by itself it links to sign-up even where that is closed."""
SETTINGS_PAGE = RedirectView.as_view(pattern_name="accounts:settings")


class PagePath(PathConverter):
    """The path of a page, before a trailing slash that people type. Gives its last segment.

    It ends in no slash itself, or each of many would be tried in turn.
    """

    regex = "(?!(?:api|v1|scim)/).*[^/]"

    def to_python(self, value: str) -> str:
        """Raise `ValueError`, which is no match, where there is no page."""
        if not is_valid_path(f"/{value}"):
            raise ValueError
        return value.rpartition("/")[2]


register_converter(PagePath, "page")
WITHOUT_SLASH = RedirectView.as_view(url="../%(page)s", query_string=True)

urlpatterns = [
    path("v1/", gateway_api.urls),  # first: routes are tried in order, and these are the busiest
    path("api/v1/", include(api)),
    path("", include("chats.urls")),
    path("", include("documents.urls")),
    path("", include("nura.accounts.urls")),
    path("accounts/login/", SIGN_IN, name="account_login"),
    path("accounts/oidc/<slug:provider_id>/login/", start_sign_in, name="openid_connect_login"),
    path(
        "accounts/oidc/<slug:provider_id>/login/callback/",
        finish_sign_in,
        name="openid_connect_callback",
    ),
    path("accounts/oidc/<slug:provider_id>/signed-out/", show_signed_out, name="signed-out"),
    path(
        "accounts/3rdparty/",
        RedirectView.as_view(pattern_name="accounts:sign-on"),
        name="socialaccount_connections",
    ),
    path("accounts/3rdparty/signup/", SETTINGS_PAGE, name="socialaccount_signup"),
    path("accounts/3rdparty/login/error/", SETTINGS_PAGE),
    path(
        "accounts/3rdparty/login/cancelled/",
        RedirectView.as_view(pattern_name="account_login"),
        name="socialaccount_login_cancelled",
    ),
    path("accounts/", include("allauth.urls")),
    path("admin/", admin.site.urls),
    path("scim/v2/Users", scim.list_users, name="scim-users"),
    path("scim/v2/Users/<int:user_id>", scim.show_user, name="scim-user"),
    path("banners/<int:pk>/away", hide_banner, name="put-banner-away"),
    path("i18n/setlang/", set_language, name="set_language"),
    path("api/schema/", SpectacularAPIView.as_view(), name="schema"),
    path("api/docs/", SpectacularSwaggerSplitView.as_view(url_name="schema"), name="docs"),
    path("manifest.webmanifest", app_shell.serve_manifest, name="manifest"),
    path("sw.js", app_shell.serve_service_worker, name="service-worker"),
    path("offline", app_shell.show_offline_page, name="offline"),
    path("diagram", app_shell.show_diagram, name="diagram"),
    path("healthz", health.healthz),
    path("readyz", health.readyz),
    path("metrics", metrics.metrics),
    path("<page:page>/", WITHOUT_SLASH),  # last: it resolves the path without the slash
]
