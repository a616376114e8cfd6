"""Routes of documents and libraries: pages at the root, and REST."""

from django.urls import path
from rest_framework.routers import SimpleRouter

from documents import views
from documents.api.libraries import LibraryMemberViewSet, LibraryViewSet
from documents.api.sources import SourceViewSet
from documents.api.views import DocumentViewSet
from documents.sources import views as source_views

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("documents", DocumentViewSet, basename="document")
router.register("libraries", LibraryViewSet, basename="library")
router.register(
    "libraries/<uuid:library_id>/members", LibraryMemberViewSet, basename="library-member"
)
router.register("libraries/<uuid:library_id>/sources", SourceViewSet, basename="library-source")

app_name = "documents"
urlpatterns = [
    path("documents", views.document_list, name="list"),
    path("documents/<uuid:document_id>", views.document_detail, name="detail"),
    path("sources", source_views.source_libraries, name="source-libraries"),
    path("libraries/<uuid:library_id>/sources", source_views.source_list, name="sources"),
    path(
        "libraries/<uuid:library_id>/sources/<uuid:source_id>",
        source_views.source_detail,
        name="source",
    ),
]
api_urlpatterns = router.urls
"""Under `/api/v1/`."""
