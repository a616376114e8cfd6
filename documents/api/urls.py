"""Routes of documents and libraries under `/api/v1/`."""

from rest_framework.routers import SimpleRouter

from documents.api.libraries import LibraryMemberViewSet, LibraryViewSet
from documents.api.sources import SourceViewSet
from documents.api.views import DocumentViewSet

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("documents", DocumentViewSet, basename="document")
router.register("libraries", LibraryViewSet, basename="library")
router.register(
    "libraries/<uuid:library_id>/members", LibraryMemberViewSet, basename="library-member"
)
router.register("libraries/<uuid:library_id>/sources", SourceViewSet, basename="library-source")

urlpatterns = router.urls
