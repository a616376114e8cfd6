"""Routes of documents under `/api/v1/`."""

from django.urls import include, path
from rest_framework.routers import SimpleRouter

from documents.api import views
from documents.api.views import DocumentViewSet, InspectionView, PicturesView, PictureView

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("documents", DocumentViewSet, basename="document")

urlpatterns = [
    path("", include(router.urls)),
    path("documents/queue", views.QueueView.as_view(), name="document-queue"),
    path("documents/pause", views.PauseAllView.as_view(), name="documents-pause"),
    path("documents/resume", views.ResumeAllView.as_view(), name="documents-resume"),
    path("documents/cancel", views.CancelAllView.as_view(), name="documents-cancel"),
    path("documents/<uuid:document_id>/pause", views.PauseView.as_view(), name="document-pause"),
    path("documents/<uuid:document_id>/resume", views.ResumeView.as_view(), name="document-resume"),
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
