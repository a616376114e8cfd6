"""A chat as a file, over REST."""

from typing import Any
from uuid import UUID

from django.http import HttpResponse
from django.utils.http import content_disposition_header
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.views import APIView

from chats import exporting
from chats.api.turns import chat_of
from chats.lineage import Branch
from chats.models import Turn
from chats.printing.pdf import as_pdf

WRITERS = {
    "md": (exporting.as_markdown, "text/markdown; charset=utf-8"),
    "json": (exporting.as_json, "application/json"),
    "pdf": (as_pdf, "application/pdf"),
}


class MarkdownRenderer(BaseRenderer):
    """Lets clients ask for `?format=md`; errors are JSON all the same."""

    media_type = "text/markdown"
    format = "md"
    charset = None

    def render(self, data: Any, *args: Any, **kwargs: Any) -> bytes:
        """Errors only: the file itself does not pass through here."""
        return JSONRenderer().render(data)


class PdfRenderer(MarkdownRenderer):
    """The same for `?format=pdf`."""

    media_type = "application/pdf"
    format = "pdf"


class ExportView(APIView):
    """`GET /chats/{id}/export`."""

    renderer_classes = (MarkdownRenderer, JSONRenderer, PdfRenderer)

    @extend_schema(
        parameters=[OpenApiParameter("format", str, enum=list(WRITERS), default="md")],
        responses={
            (200, "text/markdown"): OpenApiTypes.STR,
            (200, "application/json"): OpenApiTypes.OBJECT,
            (200, "application/pdf"): OpenApiTypes.BINARY,
        },
    )
    def get(self, request: Request, chat_id: UUID) -> HttpResponse:
        """The turns of the newest branch, to read or to process."""
        chat = chat_of(request, chat_id)
        kind = request.query_params.get("format", "md")  # another one found no renderer: 404
        write, content_type = WRITERS[kind]
        ids = Branch.newest(chat).turn_ids
        turns = list(Turn.objects.told().filter(pk__in=ids).order_by("number"))
        response = HttpResponse(write(chat, turns), content_type=content_type)
        name = exporting.file_name(chat, kind)
        response["Content-Disposition"] = (
            content_disposition_header(as_attachment=True, filename=name) or ""
        )
        return response
