"""The part of a conversation that goes into every prompt, and what is told of the turns before."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from rag.conversation import Conversation, PastTurn
from rag.types import HistoryMessage, Speaker

MAX_LINE_CHARACTERS = 160
"""Of what is told of a turn in one line."""
MAX_MESSAGE_CHARACTERS = 500
SLIDE_TURNS = 5
"""By so many turns at once the window moves on, and so many are folded together: each move costs
the model's server the beginning of the prompt that it remembers."""
EXTRACTIVE = "extractive"
"""Who wrote a summary where no model was asked, or none answered: it is a line each turn."""


@dataclass(frozen=True, slots=True)
class Window:
    """The last turns of what the conversation is about now.

    `first` is the number of the first of them, one more than the last turn's where there is none.
    `folded` tells what came before them, back to the last new start, in the words of `folded_by`;
    `left` are turns that have left the window and are not folded yet, by number, a line each.
    """

    messages: tuple[HistoryMessage, ...] = ()
    first: int = 1
    folded: str = ""
    folded_by: str = EXTRACTIVE
    left: tuple[tuple[int, str], ...] = ()

    def summary(self, without: Collection[int] = ()) -> str:
        """What came before the window; turns that the prompt holds whole are left out."""
        lines = self.folded.splitlines()
        if without and self.folded_by == EXTRACTIVE:  # a model's numbers are those of its own list
            known = tuple(f"{number}. " for number in without)
            lines = [line for line in lines if not line.startswith(known)]
        lines += [f"{number}. {line}" for number, line in self.left if number not in without]
        return "\n".join(line for line in lines if line.strip())


def find_window_start(begins_at: int, total: int, pairs: int) -> int:
    """The number of the first turn in the window of the question after turn `total`.

    At most `pairs` turns, back to `begins_at`; it stays where it is until it moves on by several.
    """
    over = max(0, total - begins_at + 1 - pairs)
    step = max(1, min(SLIDE_TURNS, pairs))
    return min(total + 1, begins_at + step * math.ceil(over / step))


def open_window(conversation: Conversation, *, pairs: int, forgets: bool = False) -> Window:
    """At most the last `pairs` turns, each message cut at `MAX_MESSAGE_CHARACTERS`.

    It goes back no further than the last new start, and holds no turn that is folded already.
    `forgets`: the question itself begins anew.
    """
    total = conversation.total
    begins = total + 1 if forgets else conversation.begins_at
    running = conversation.summary
    through = running.through if running and running.through >= begins else begins - 1
    first = max(through + 1, find_window_start(begins, total, pairs))
    turns = [turn for turn in conversation.turns if turn.number >= first]
    between = [turn for turn in conversation.turns if through < turn.number < first]
    return Window(
        messages=tuple(
            HistoryMessage(one.role, one.content[:MAX_MESSAGE_CHARACTERS])
            for turn in turns
            for one in turn.messages
        ),
        first=first,
        folded=running.text if running and through >= begins else "",
        folded_by=running.model if running else EXTRACTIVE,
        left=tuple(
            (turn.number, turn.summary or " ".join(turn.user_text.split())[:MAX_LINE_CHARACTERS])
            for turn in between
        ),
    )


def show_last_turn_whole(
    messages: Sequence[HistoryMessage], turn: PastTurn
) -> tuple[HistoryMessage, ...]:
    """The messages with their last turn whole: a follow-up leans on all of it."""
    whole = {Speaker.USER: turn.user_text, Speaker.ASSISTANT: turn.assistant_text}
    return (
        *messages[:-2],
        *(
            replace(one, content=whole[one.role])
            if whole[one.role].startswith(one.content)
            else one
            for one in messages[-2:]
        ),
    )
