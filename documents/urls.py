"""Pages of documents, at the root."""

from django.urls import path

from documents import views

app_name = "documents"
urlpatterns = [
    path("documents", views.document_list, name="list"),
    path("documents/<uuid:document_id>", views.document_detail, name="detail"),
]
