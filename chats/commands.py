"""What a socket's frames ask for.

Validated, checked against the user's rights, handed to the services.
"""

from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from rest_framework import serializers

from chats.errors import NotFound
from chats.models import Run
from chats.runs import log
from chats.serializers import SendRequest
from chats.services import turns
from rag.errors import NuraError


class InvalidFrame(NuraError):
    """A frame whose fields are wrong; `params["errors"]` says which."""

    code = "invalid"


class RunFrame(serializers.Serializer[Any]):
    """`stop` and `resume`."""

    run_id = serializers.UUIDField()
    after_seq = serializers.IntegerField(min_value=0, max_value=10**12, default=0)


def send(user: User, frame: dict[str, Any], language: str) -> tuple[UUID, UUID]:
    """Open a turn; the ids of its run and chat."""
    fields = _valid(SendRequest, frame)
    fields["document_ids"] = fields["document_ids"] or ()
    turn = turns.open_turn(user=user, language=language, **fields)
    return turn.run.pk, turn.user_message.chat_id


def resume(user: User, frame: dict[str, Any]) -> tuple[UUID, UUID, int]:
    """The ids of a run of the user and its chat, and where to go on. Raises `NotFound`."""
    fields = _valid(RunFrame, frame)
    run = Run.objects.visible_to(user).filter(pk=fields["run_id"]).select_related("message").first()
    if run is None:
        raise NotFound
    return run.pk, run.message.chat_id, fields["after_seq"]


def stop(user: User, frame: dict[str, Any]) -> None:
    """Stop a run of the user. Raises `NotFound`."""
    fields = _valid(RunFrame, frame)
    if not Run.objects.owned_by(user).filter(pk=fields["run_id"]).exists():
        raise NotFound
    log.request_stop(fields["run_id"])


def _valid(shape: type[serializers.Serializer[Any]], frame: dict[str, Any]) -> dict[str, Any]:
    serializer = shape(data=frame)
    if not serializer.is_valid():
        raise InvalidFrame(errors=serializer.errors)
    return dict(serializer.validated_data)
