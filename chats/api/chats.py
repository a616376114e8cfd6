"""Chats and categories over REST."""

from typing import Any
from uuid import UUID

from django.db import IntegrityError
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from chats.api.asker import asker
from chats.api.requests import CategoryRequest, ChatRequest
from chats.models import Category, Chat, Message
from chats.services import chats as services
from chats.shapes import CategoryShape, ChatShape, MessageShape

QUERY_CHARACTERS = 200


@extend_schema_view(
    list=extend_schema(parameters=[OpenApiParameter("q", str, description="Titles and messages")])
)
class ChatViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Chat]):
    """The user's chats, the one spoken in last first."""

    queryset = Chat.objects.none()
    serializer_class = ChatShape
    lookup_value_converter = "uuid"

    def get_queryset(self) -> QuerySet[Chat]:
        """Own chats; `q` narrows them."""
        rows = Chat.objects.visible_to(asker(self.request))
        text = self.request.query_params.get("q", "").strip()[:QUERY_CHARACTERS]
        if text and self.action == "list":
            rows = rows.matching(text)
        return rows.with_answering().prefetch_related("document_links")

    @extend_schema(request=ChatRequest, responses={201: ChatShape})
    def create(self, request: Request) -> Response:
        """Make a chat."""
        fields = _valid(ChatRequest, request)
        title = fields.pop("title", None) or _("New chat")
        chat = services.create_chat(owner=asker(request), title=title, **fields)
        return Response(ChatShape(chat).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=ChatRequest, responses=ChatShape)
    def partial_update(self, request: Request, pk: UUID) -> Response:
        """Rename a chat, or change its category, history or documents."""
        chat = self.get_object()
        chat = services.update_chat(chat=chat, changes=_valid(ChatRequest, request))
        return Response(ChatShape(self.get_queryset().get(pk=chat.pk)).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: UUID) -> Response:
        """Delete a chat (it can be restored by the administrator)."""
        services.delete_chat(chat=self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(responses=MessageShape(many=True))
    @action(detail=True, filter_backends=[])
    def messages(self, request: Request, pk: UUID) -> Response:
        """Messages of the chat, oldest first."""
        rows = Message.objects.filter(chat=self.get_object()).order_by("created_at", "id")
        rows = rows.select_related("run").prefetch_related("document_links", "feedback")
        page: Any = self.paginate_queryset(rows)  # type: ignore[arg-type] # messages, not chats
        return self.get_paginated_response(MessageShape(page, many=True).data)


class CategoryViewSet(
    mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Category]
):
    """The user's categories, by name."""

    queryset = Category.objects.none()
    serializer_class = CategoryShape
    lookup_value_converter = "uuid"

    def get_queryset(self) -> QuerySet[Category]:
        """Own categories."""
        return Category.objects.owned_by(asker(self.request))

    @extend_schema(request=CategoryRequest, responses={201: CategoryShape})
    def create(self, request: Request) -> Response:
        """Make a category."""
        category = Category(owner=asker(request), **_valid(CategoryRequest, request))
        return Response(_save(category), status=status.HTTP_201_CREATED)

    @extend_schema(request=CategoryRequest, responses=CategoryShape)
    def partial_update(self, request: Request, pk: UUID) -> Response:
        """Rename a category."""
        category = self.get_object()
        category.name = _valid(CategoryRequest, request)["name"]
        return Response(_save(category))

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: UUID) -> Response:
        """Delete a category; its chats stay."""
        self.get_object().delete()
        return Response(status=status.HTTP_204_NO_CONTENT)


def _save(category: Category) -> dict[str, Any]:
    try:
        category.save()
    except IntegrityError as error:
        raise serializers.ValidationError(
            {"name": [_("You already have this category.")]}
        ) from error
    return CategoryShape(category).data


def _valid(shape: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    serializer = shape(data=request.data)
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)
