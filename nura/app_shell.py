"""What makes the pages an installable app: manifest, service worker, offline page; and diagrams.

The service worker goes to the network first and caches nothing personal, neither pages nor API
responses, so it never shows anything stale.
"""

from csp.constants import NONE, SELF, UNSAFE_INLINE
from csp.decorators import csp
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.templatetags.static import static
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.clickjacking import xframe_options_sameorigin
from django.views.decorators.http import require_GET

from chats.socket import read_release
from nura import __version__


def describe_release(_request: HttpRequest) -> dict[str, str]:
    """Context processor: `release`, by which an open page notices a newer installation."""
    return {"release": read_release()}


ICON_SIZES = (192, 512)
BACKGROUND = "#f7f7f5"
OFFLINE_FILES = ("nura/built/narrow.css", "nura/img/mark.svg")
"""Static files of the offline page."""


@require_GET
@never_cache
def serve_manifest(request: HttpRequest) -> JsonResponse:
    """The web app manifest."""
    icons = [
        {
            "src": static(f"nura/img/icon-{size}.png"),
            "sizes": f"{size}x{size}",
            "type": "image/png",
            "purpose": "any maskable",
        }
        for size in ICON_SIZES
    ]
    body = {
        "id": reverse("chats:new"),
        "name": "Nura",
        "short_name": "Nura",
        "description": _("Chat over your own documents"),
        "lang": request.LANGUAGE_CODE,
        "start_url": reverse("chats:new"),
        "scope": reverse("chats:new"),
        "display": "standalone",
        "background_color": BACKGROUND,
        "theme_color": BACKGROUND,
        "icons": icons,
        "shortcuts": [
            {"name": _("New chat"), "url": reverse("chats:new")},
            {"name": _("Documents"), "url": reverse("documents:list")},
        ],
    }
    return JsonResponse(body, content_type="application/manifest+json")


@require_GET
@never_cache
def serve_service_worker(request: HttpRequest) -> HttpResponse:
    """The service worker's script, which differs between versions of Nura."""
    context = {
        "version": __version__,
        "offline": f"{reverse('offline')}?lang={request.LANGUAGE_CODE}",
        "files": [static(name) for name in OFFLINE_FILES],
    }
    response = render(request, "service_worker.js", context, content_type="text/javascript")
    response["Service-Worker-Allowed"] = reverse("chats:new")
    return response


@require_GET
@never_cache
def show_offline_page(request: HttpRequest) -> HttpResponse:
    """The page that stands in for all others while the server cannot be reached."""
    return render(request, "offline.html")


DIAGRAM_POLICY = {
    "default-src": [NONE],
    "script-src": [SELF],
    "style-src": [UNSAFE_INLINE],  # Mermaid writes styles into what it draws
    "base-uri": [NONE],
    "form-action": [NONE],
    "frame-ancestors": [SELF],
    "sandbox": ["allow-scripts"],
}
"""A diagram may be malicious: its frame has an opaque origin and no network."""


@require_GET
@never_cache
@xframe_options_sameorigin
@csp(DIAGRAM_POLICY)
def show_diagram(request: HttpRequest) -> HttpResponse:
    """The page of the frame that draws one diagram (`front/js/diagram.js`)."""
    return render(request, "diagram.html")
