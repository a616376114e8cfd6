"""Pages of conversations, at the root."""

from django.urls import path

from chats import team, views

app_name = "chats"
urlpatterns = [
    path("", views.chat_page, name="new"),
    path("c/<uuid:chat_id>", views.chat_page, name="chat"),
    path("c/<uuid:chat_id>/turns", views.turn_page, name="turns"),
    path("chats/<uuid:chat_id>", views.chat_page, name="chat-link"),
    path("assistants", team.assistant_list, name="assistants"),
    path("assistants/new", team.edit_assistant, name="new-assistant"),
    path("assistants/<uuid:assistant_id>", team.edit_assistant, name="assistant"),
    path("assistants/<uuid:assistant_id>/picture", team.assistant_picture, name="picture"),
    path("prompts", team.prompt_list, name="prompts"),
    path("prompts/new", team.edit_prompt, name="new-prompt"),
    path("prompts/<uuid:prompt_id>", team.edit_prompt, name="prompt"),
    path("shared", team.shared_list, name="shared"),
    path("shared/<uuid:share_id>", team.shared_chat, name="shared-chat"),
    path("shared/<uuid:share_id>/copy", team.copy_shared, name="copy-shared"),
    path("shared/<uuid:share_id>/end", team.end_share, name="end-share"),
    path("panels/chats/<uuid:chat_id>/share", team.share_panel, name="share"),
    path("panels/documents/<uuid:document_id>/chats", views.document_chats, name="document-chats"),
    path("panels/documents/uses", views.document_uses, name="document-uses"),
    path("panels/chats", views.sidebar_panel, name="sidebar"),
]
