"""What is remembered about the user, over REST: list, change, confirm and forget it."""

from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import JsonResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.generics import ListAPIView, get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from chats.models import ProfileSlot
from chats.services import memory as services
from documents.api.requests import get_user, validate_body
from rag.memory.profile import Effect, SlotStatus

STATUSES = [one.value for one in SlotStatus]


class SlotState(serializers.Serializer[Any]):
    """An earlier value of a slot."""

    value = serializers.CharField()
    unit = serializers.CharField()
    status = serializers.ChoiceField(choices=STATUSES)
    at = serializers.DateTimeField(allow_null=True)
    sentence = serializers.CharField()


class SlotSerializer(serializers.Serializer[Any]):
    """One thing that is remembered; `replaces` is the slot that a proposal would change."""

    id = serializers.UUIDField()
    kind = serializers.CharField()
    key = serializers.CharField()
    value = serializers.CharField()
    unit = serializers.CharField()
    at = serializers.DateTimeField()
    status = serializers.ChoiceField(choices=STATUSES)
    effect = serializers.ChoiceField(choices=[one.value for one in Effect])
    certainty = serializers.FloatField(min_value=0, max_value=1)
    replaces = serializers.UUIDField(allow_null=True)
    source_message_id = serializers.UUIDField(allow_null=True)
    source_chat_id = serializers.UUIDField(allow_null=True)
    sentence = serializers.CharField(help_text="What the user wrote, word for word")
    history = SlotState(many=True)

    def to_representation(self, slot: ProfileSlot) -> dict[str, Any]:
        """As `describe_slot`."""
        return services.describe_slot(slot)


class SlotRequest(serializers.Serializer[Any]):
    """Something that the user enters."""

    kind = serializers.CharField(max_length=50)
    key = serializers.CharField(max_length=200)
    value = serializers.CharField(max_length=200)
    unit = serializers.CharField(max_length=50, required=False, allow_blank=True, default="")

    def validate_kind(self, kind: str) -> str:
        """One of the kinds that are remembered."""
        if kind not in services.get_packs().kinds:
            raise serializers.ValidationError(code="invalid_choice", detail=kind)
        return kind


class SlotChange(serializers.Serializer[Any]):
    """The user's changes to a slot."""

    key = serializers.CharField(max_length=200, required=False)
    value = serializers.CharField(max_length=200, required=False)
    unit = serializers.CharField(max_length=50, required=False, allow_blank=True)


class ConfirmRequest(serializers.Serializer[Any]):
    """Whether the user accepts a proposal."""

    accept = serializers.BooleanField()


class MemorySwitch(serializers.Serializer[Any]):
    """Whether anything is remembered about the user."""

    enabled = serializers.BooleanField()


class SlotPage(serializers.Serializer[Any]):
    """A page of what is remembered."""

    count = serializers.IntegerField()
    next = serializers.CharField(allow_null=True)
    previous = serializers.CharField(allow_null=True)
    enabled = serializers.BooleanField()
    results = SlotSerializer(many=True)


class ProfileView(ListAPIView[ProfileSlot]):
    """What is remembered about the user."""

    queryset = ProfileSlot.objects.none()
    serializer_class = SlotSerializer

    def get_queryset(self) -> QuerySet[ProfileSlot]:
        """The user's own, filtered by status."""
        rows = services.list_slots(get_user(self.request))
        state = self.request.query_params.get("status", "")
        return rows.filter(status=state) if state in STATUSES else rows

    @extend_schema(parameters=[OpenApiParameter("status", str, enum=STATUSES)], responses=SlotPage)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """All slots by kind, and whether memory is on (`enabled`)."""
        response = self.list(request, *args, **kwargs)
        response.data["enabled"] = services.is_memory_on(get_user(request).pk)
        return response

    @extend_schema(request=SlotRequest, responses={201: SlotSerializer})
    def post(self, request: Request) -> Response:
        """Remember something; an earlier value of the same key goes into its history."""
        slot = services.add_slot(owner=get_user(request), **validate_body(SlotRequest, request))
        return Response(SlotSerializer(slot).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=MemorySwitch, responses=MemorySwitch)
    def patch(self, request: Request) -> Response:
        """Switch memory on or off for all chats; what is remembered stays."""
        data = validate_body(MemorySwitch, request)
        services.switch_memory(owner=get_user(request), enabled=data["enabled"])
        return Response(data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request) -> Response:
        """Forget everything."""
        services.forget_everything(owner=get_user(request))
        return Response(status=status.HTTP_204_NO_CONTENT)


class ProfileSlotView(APIView):
    """One thing that is remembered."""

    @extend_schema(request=SlotChange, responses=SlotSerializer)
    def patch(self, request: Request, slot_id: UUID) -> Response:
        """Edit it; a proposal is accepted as edited."""
        slot = get_own_slot(request, slot_id)
        new_slot = services.edit_slot(slot=slot, changes=validate_body(SlotChange, request))
        return Response(SlotSerializer(new_slot).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, slot_id: UUID) -> Response:
        """Forget it, with its history and its sentence in the turn store."""
        services.forget_slot(slot=get_own_slot(request, slot_id))
        return Response(status=status.HTTP_204_NO_CONTENT)


class ProfileConfirmView(APIView):
    """The user's decision on a proposal."""

    @extend_schema(request=ConfirmRequest, responses={200: SlotSerializer, 204: None})
    def post(self, request: Request, slot_id: UUID) -> Response:
        """Apply or drop the proposal; the slot now in effect, 204 if there is none."""
        slot = get_own_slot(request, slot_id)
        result = services.confirm_slot(
            slot=slot, accept=validate_body(ConfirmRequest, request)["accept"]
        )
        if result is None:
            return Response(status=status.HTTP_204_NO_CONTENT)
        return Response(SlotSerializer(result).data)


class ProfileExportView(APIView):
    """Everything that is remembered, as a file."""

    @extend_schema(responses={(200, "application/json"): OpenApiTypes.BINARY})
    def get(self, request: Request) -> JsonResponse:
        """JSON with every slot and its history."""
        data = {
            "format": "nura-memory",
            "version": 1,
            "exported_at": timezone.now(),
            "slots": services.describe_profile(get_user(request)),
        }
        response = JsonResponse(data, json_dumps_params={"ensure_ascii": False, "indent": 1})
        response["Content-Disposition"] = 'attachment; filename="nura-memory.json"'
        return response


def get_own_slot(request: Request, slot_id: UUID) -> ProfileSlot:
    """The user's own slot. Raises `Http404`."""
    rows = services.list_slots(get_user(request)).select_related("owner", "message")
    slot: ProfileSlot = get_object_or_404(rows, pk=slot_id)
    return slot
