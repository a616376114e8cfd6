"""REST routes of conversations, under `/api/v1/`."""

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from chats.api.chats import CategoryViewSet, ChatViewSet
from chats.api.messages import MessageViewSet, RunEventsView, RunStopView
from chats.api.search import SearchView

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("chats", ChatViewSet, "chat")
router.register("categories", CategoryViewSet, "category")
router.register("messages", MessageViewSet, "message")

urlpatterns = [
    path("", include(router.urls)),
    path("runs/<uuid:run_id>/events", RunEventsView.as_view(), name="run-events"),
    path("runs/<uuid:run_id>/stop", RunStopView.as_view(), name="run-stop"),
    path("search", SearchView.as_view(), name="search"),
]
