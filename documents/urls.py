"""Pages of documents, at the root."""

from django.urls import path

from documents import views
from documents.sources import views as source_views

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
