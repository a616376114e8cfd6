"""REST routes of conversations, under `/api/v1/`."""

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from chats.api.assistants import AssistantViewSet, PromptViewSet
from chats.api.chats import CategoryViewSet, ChatViewSet, ExportView
from chats.api.messages import MessageViewSet, ModelsView, SpeechView, ToolsView
from chats.api.profile import (
    ProfileConfirmView,
    ProfileExportView,
    ProfileSlotView,
    ProfileView,
)
from chats.api.runs import RunEventsView, RunStopView
from chats.api.search import FindView, SearchView
from chats.api.sharing import ChatShareView, SharedViewSet, ShareViewSet
from chats.api.turns import ContextView, MemoryView, TurnDocumentsView, TurnsView, TurnView

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("chats", ChatViewSet, "chat")
router.register("categories", CategoryViewSet, "category")
router.register("messages", MessageViewSet, "message")
router.register("assistants", AssistantViewSet, "assistant")
router.register("prompts", PromptViewSet, "prompt")
router.register("shares", ShareViewSet, "share")
router.register("shared", SharedViewSet, "shared")

urlpatterns = [
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
