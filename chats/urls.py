"""Routes of conversations: pages at the root, and REST."""

from django.urls import URLPattern, URLResolver, include, path
from rest_framework.routers import SimpleRouter

from chats import team, views
from chats.api.chats import (
    CategoryViewSet,
    ChatViewSet,
    ContextView,
    ExportView,
    MemoryView,
    TurnDocumentsView,
    TurnsView,
    TurnView,
)
from chats.api.memory import (
    ProfileConfirmView,
    ProfileExportView,
    ProfileSlotView,
    ProfileView,
)
from chats.api.messages import (
    FindView,
    MessageViewSet,
    ModelsView,
    RunEventsView,
    RunStopView,
    SearchView,
    SpeechView,
    ToolsView,
)
from chats.api.sharing import (
    AssistantViewSet,
    ChatShareView,
    FolderViewSet,
    PeopleView,
    PromptViewSet,
    SharedViewSet,
    ShareViewSet,
)

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("chats", ChatViewSet, "chat")
router.register("categories", CategoryViewSet, "category")
router.register("messages", MessageViewSet, "message")
router.register("assistants", AssistantViewSet, "assistant")
router.register("prompts/folders", FolderViewSet, "folder")
router.register("prompts", PromptViewSet, "prompt")
router.register("shares", ShareViewSet, "share")
router.register("shared", SharedViewSet, "shared")

app_name = "chats"
urlpatterns = [
    path("", views.show_chat, name="new"),
    path("c/<uuid:chat_id>", views.show_chat, name="chat"),
    path("c/<uuid:chat_id>/turns", views.show_turns, name="turns"),
    path("chats/<uuid:chat_id>", views.show_chat, name="chat-link"),
    path("assistants", team.list_assistants, name="assistants"),
    path("assistants/new", team.edit_assistant, name="new-assistant"),
    path("assistants/<uuid:assistant_id>", team.edit_assistant, name="assistant"),
    path("assistants/<uuid:assistant_id>/picture", team.serve_assistant_picture, name="picture"),
    path("prompts", team.list_prompts, name="prompts"),
    path("prompts/new", team.edit_prompt, name="new-prompt"),
    path("prompts/folder", team.edit_folder, name="folder"),
    path("prompts/<uuid:prompt_id>", team.edit_prompt, name="prompt"),
    path("shared", team.list_shared_chats, name="shared"),
    path("shared/<uuid:share_id>", team.show_shared_chat, name="shared-chat"),
    path("shared/<uuid:share_id>/copy", team.copy_shared_chat, name="copy-shared"),
    path("shared/<uuid:share_id>/end", team.end_share, name="end-share"),
    path("panels/chats/<uuid:chat_id>/share", team.edit_share, name="share"),
    path(
        "panels/documents/<uuid:document_id>/chats",
        views.show_document_chats,
        name="document-chats",
    ),
    path("panels/documents/uses", views.show_document_uses, name="document-uses"),
    path("panels/chats", views.show_sidebar, name="sidebar"),
]
api_urlpatterns: list[URLPattern | URLResolver] = [
    path("", include(router.urls)),
    path("chats/<uuid:chat_id>/export", ExportView.as_view(), name="chat-export"),
    path("chats/<uuid:chat_id>/share", ChatShareView.as_view(), name="chat-share"),
    path("chats/<uuid:chat_id>/memory", MemoryView.as_view(), name="chat-memory"),
    path("chats/<uuid:chat_id>/context", ContextView.as_view(), name="chat-context"),
    path("chats/<uuid:chat_id>/turns", TurnsView.as_view(), name="chat-turns"),
    path("chats/<uuid:chat_id>/turns/<int:number>", TurnView.as_view(), name="chat-turn"),
    path(
        "chats/<uuid:chat_id>/turns/<int:number>/documents",
        TurnDocumentsView.as_view(),
        name="chat-turn-documents",
    ),
    path("models", ModelsView.as_view(), name="models"),
    path("people", PeopleView.as_view(), name="people"),
    path("tools", ToolsView.as_view(), name="tools"),
    path("me/memory", ProfileView.as_view(), name="profile"),
    path("me/memory/export", ProfileExportView.as_view(), name="profile-export"),
    path("me/memory/<uuid:slot_id>", ProfileSlotView.as_view(), name="profile-slot"),
    path("me/memory/<uuid:slot_id>/confirm", ProfileConfirmView.as_view(), name="profile-confirm"),
    path("messages/<uuid:message_id>/speech", SpeechView.as_view(), name="message-speech"),
    path("runs/<uuid:run_id>/events", RunEventsView.as_view(), name="run-events"),
    path("runs/<uuid:run_id>/stop", RunStopView.as_view(), name="run-stop"),
    path("find", FindView.as_view(), name="find"),
    path("search", SearchView.as_view(), name="search"),
]
"""Under `/api/v1/`."""
