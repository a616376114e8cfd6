"""Events of a run as clients get them: the envelope around data that is JSON already."""

from uuid import UUID

from chats.runs import RunEvent


class Framer:
    """Puts the events of one run into the public envelope."""

    def __init__(self, chat_id: UUID, run_id: UUID) -> None:
        self._ids = f'"chat_id": "{chat_id}", "run_id": "{run_id}"'

    def frame(self, event: RunEvent) -> str:
        """As `dumps(envelope(...))` writes it, without a look into the data."""
        return (
            f'{{"v": 1, "type": "{event.type}", {self._ids}, '
            f'"seq": {event.seq}, "data": {event.encoded}}}'
        )
