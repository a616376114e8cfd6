"""Routes of documents under `/api/v1/`."""

from rest_framework.routers import SimpleRouter

from documents.api.views import DocumentViewSet

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("documents", DocumentViewSet, basename="document")

urlpatterns = router.urls
