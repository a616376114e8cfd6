"""Look and sidebar of the administration pages."""

from typing import Any

from django.templatetags.static import static
from django.urls import reverse_lazy
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from nura import __version__


def _list_of(title: Any, icon: str, model: str) -> dict[str, Any]:
    return {
        "title": title,
        "icon": icon,
        "link": reverse_lazy(f"admin:{model}_changelist"),
        "permission": lambda request: request.user.has_perm(f"{model.replace('_', '.view_', 1)}"),
    }


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": _("Nura administration"),
    "SITE_HEADER": "Nura",
    "SITE_SUBHEADER": format_lazy("{} · {}", _("Administration"), __version__),
    "SITE_URL": "/",
    "SITE_ICON": lambda _request: static("nura/img/mark.svg"),
    "SHOW_LANGUAGES": True,
    "SHOW_BACK_BUTTON": True,
    "BORDER_RADIUS": "8px",
    "COLORS": {
        "primary": {
            "50": "#eff8f5",
            "100": "#d8efe8",
            "200": "#b3dfd3",
            "300": "#84c9b7",
            "400": "#4fae97",
            "500": "#2b917b",
            "600": "#0b6b5d",
            "700": "#0a5a4e",
            "800": "#0b483f",
            "900": "#0b3c35",
            "950": "#042420",
        }
    },
    "SIDEBAR": {
        "show_search": False,
        "show_all_applications": False,
        "navigation": [
            {
                "title": _("People"),
                "items": [_list_of(_("Users"), "group", "auth_user")],
            },
            {
                "title": _("Conversations"),
                "items": [
                    _list_of(_("Chats"), "forum", "chats_chat"),
                    _list_of(_("Messages"), "chat_bubble", "chats_message"),
                    _list_of(_("Runs"), "bolt", "chats_run"),
                    _list_of(_("Categories"), "label", "chats_category"),
                ],
            },
            {
                "title": _("Documents"),
                "items": [
                    _list_of(_("Documents"), "description", "documents_document"),
                    _list_of(_("Embedding spaces"), "scatter_plot", "documents_embeddingspace"),
                ],
            },
        ],
    },
}
