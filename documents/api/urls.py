"""Routes of documents under `/api/v1/`."""

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from documents.api.inspection import InspectionView
from documents.api.pictures import PicturesView, PictureView
from documents.api.views import DocumentViewSet

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("documents", DocumentViewSet, basename="document")

urlpatterns = [
    path("", include(router.urls)),
    path(
        "documents/<uuid:document_id>/inspection",
        InspectionView.as_view(),
        name="document-inspection",
    ),
    path("documents/<uuid:document_id>/pictures", PicturesView.as_view(), name="document-pictures"),
    path(
        "documents/<uuid:document_id>/pictures/<int:index>.png",
        PictureView.as_view(),
        name="document-picture",
    ),
]
