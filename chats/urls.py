"""Pages of conversations, at the root."""

from django.urls import path

from chats import views

app_name = "chats"
urlpatterns = [
    path("", views.chat_page, name="new"),
    path("c/<uuid:chat_id>", views.chat_page, name="chat"),
    path("c/<uuid:chat_id>/turns", views.turn_page, name="turns"),
    path("chats/<uuid:chat_id>", views.chat_page, name="chat-link"),
    path("panels/documents/<uuid:document_id>/chats", views.document_chats, name="document-chats"),
    path("panels/documents/uses", views.document_uses, name="document-uses"),
    path("panels/chats", views.sidebar_panel, name="sidebar"),
]
