"""`manage.py ask [--user NAME] [--chat ID] [--json] [--tts] ["question"]`.

A question at a terminal is asked like any other, and answered in this process if no worker takes
it. `--tts` speaks with the speech endpoint, else with espeak-ng if installed.
"""

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from chats.errors import InvalidFrame
from chats.models import Chat, Run
from chats.runs import log, reader
from chats.runs.answering import answer_run
from chats.runs.log import RunEvent
from chats.serializers import SendRequest
from chats.services import speech, turns
from chats.services.search import preview_prompt
from chats.services.speech import split_text, to_speech_text
from documents.errors import explain_code
from jobs.connections import in_database
from rag.errors import NuraError
from rag.tokenize.text import choose_reply_language

PLAYER_SECONDS = 120
PLAYERS = (
    ("paplay",),
    ("aplay", "-q"),
    ("afplay",),
    ("ffplay", "-nodisp", "-autoexit", "-loglevel", "quiet"),
)


class SpeechUnavailable(Exception):
    """The answer could not be spoken; the message says why, and what would help."""


def speak_answer(text: str) -> str:
    """Speak an answer; returns the sound's file if no player is installed, else "".

    Raises `SpeechUnavailable`.
    """
    words = to_speech_text(text)
    if not words:
        return ""
    if speech.is_speech_configured():
        try:
            pieces = split_text(words, speech.MAX_PIECE_CHARACTERS)
            sounds = (speech.request_speech(piece) for piece in pieces)
            return " ".join(filter(None, map(_play_sound, sounds)))
        except speech.SpeechFailed as error:
            raise SpeechUnavailable(str(error)) from error
    if program := shutil.which("espeak-ng"):
        _run_player([program, "-v", choose_reply_language(words), "--stdin"], words.encode())
        return ""
    raise SpeechUnavailable("set NURA_TTS_BASE_URL and NURA_TTS_MODEL, or install espeak-ng")


def _play_sound(sound: speech.Sound) -> str:
    with tempfile.NamedTemporaryFile(prefix="nura-", suffix=".wav", delete=False) as file:
        file.write(sound.data)
    for name, *options in PLAYERS:
        if program := shutil.which(name):
            try:
                _run_player([program, *options, file.name])
            finally:
                Path(file.name).unlink()
            return ""
    return file.name


def _run_player(command: list[str], data: bytes = b"") -> None:
    try:
        subprocess.run(
            command,
            input=data,
            capture_output=True,
            check=True,
            timeout=PLAYER_SECONDS + len(data),
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SpeechUnavailable(f"{Path(command[0]).name} failed: {error}") from error


INTERRUPTED = 130
"""Exit status after Ctrl-C, as in shells."""


PATIENCE_SECONDS = 1.0
"""Workers take a run within milliseconds; after this time there is none."""


class RunFollower:
    """Follows runs. If no worker takes one, this process answers it and those after it."""

    def __init__(self) -> None:
        self._patience = PATIENCE_SECONDS

    async def follow_run(self, run_id: UUID) -> AsyncIterator[RunEvent]:
        """The events of a run to its end; leaving earlier stops the run.

        Raises what prevented this process from answering it.
        """
        is_over = asyncio.Event()
        own_answer = asyncio.create_task(self._answer_here(run_id, is_over))
        try:
            async for event in reader.follow_run(run_id):
                if event is not None:
                    yield event
                elif own_answer.done():
                    own_answer.result()
        except (asyncio.CancelledError, GeneratorExit):
            await asyncio.to_thread(log.request_stop, run_id)
            raise
        finally:
            is_over.set()
            await own_answer

    async def _answer_here(self, run_id: UUID, is_over: asyncio.Event) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(is_over.wait(), self._patience)
            return
        if not await in_database(_is_waiting, run_id):
            return
        self._patience = 0.0
        await answer_run(run_id)


def _is_waiting(run_id: UUID) -> bool:
    return Run.objects.filter(Run.OPEN, pk=run_id, claim=None).exists()


class Command(BaseCommand):
    """Asks one question, or runs a session until its input ends."""

    help = "Ask a question, or without one keep a session at a prompt."

    def add_arguments(self, parser: CommandParser) -> None:
        """User, question and output format."""
        parser.add_argument("question", nargs="?")
        parser.add_argument(
            "--user", help="who asks; without it the only user, or an administrator"
        )
        parser.add_argument("--chat", help="id of a chat to go on with")
        parser.add_argument("--model", default="", help="id of the language model that answers")
        parser.add_argument("--json", action="store_true", help="one JSON object a question")
        parser.add_argument(
            "--show-prompt",
            action="store_true",
            help="print what the language model would be sent, and do not ask it",
        )
        parser.add_argument("--tts", action="store_true", help="speak the answer, too")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Exit status 1 when an answer failed."""
        chat = _find_chat(options["chat"])
        user = find_user(options["user"], chat)
        chat_id = chat.pk if chat else None
        if options["show_prompt"]:
            for question in self._read_questions(options):
                self._show_prompt(user, chat_id, question)
            return
        terminal, failed = RunFollower(), False
        try:
            for question in self._read_questions(options):
                message = self._answer_question(terminal, user, chat_id, question, options)
                failed = message is None or bool(message["error"])
                chat_id = UUID(message["chat_id"]) if message else chat_id
        except KeyboardInterrupt:
            sys.exit(INTERRUPTED)
        if failed:
            sys.exit(1)

    def _answer_question(
        self,
        terminal: RunFollower,
        user: User,
        chat_id: UUID | None,
        question: str,
        options: dict[str, Any],
    ) -> dict[str, Any] | None:
        """The answer's message; None if the question could not be asked."""
        try:
            turn = _open_turn(user, chat_id, question, options["model"])
        except NuraError as error:
            self.stderr.write(explain_code(error.code, error.params))
            return None
        message = asyncio.run(self._print_answer(terminal, turn.run.pk, question, options["json"]))
        if options["tts"]:
            self._speak_answer(message["content"])
        return message

    def _show_prompt(self, user: User, chat_id: UUID | None, question: str) -> None:
        """The messages of a prompt, each under its role."""
        messages = preview_prompt(user=user, query=question.strip(), chat_id=chat_id)
        if not messages:
            self.stderr.write(_("This needs no language model."))
        for message in messages:
            self.stdout.write(f"--- {message.role.value}\n{message.content}\n")

    def _read_questions(self, options: dict[str, Any]) -> Iterator[str]:
        if options["question"] is not None:
            yield options["question"]
            return
        prompted = sys.stdin.isatty()
        while True:
            if prompted:
                self.stderr.write("> ", ending="")
                self.stderr.flush()
            line = sys.stdin.readline()
            if not line:
                return
            if line.strip():
                yield line

    async def _print_answer(
        self, terminal: RunFollower, run_id: UUID, question: str, as_json: bool
    ) -> dict[str, Any]:
        """Print the answer as it arrives; return its message at the end."""
        message: dict[str, Any] = {}
        async with aclosing(terminal.follow_run(run_id)) as events:  # type: ignore[type-var]
            async for event in events:
                if event.type == log.DELTA and not as_json:
                    self.stdout.write(event.data["text"], ending="")
                    self.stdout.flush()
                elif event.terminal:
                    message = event.data["message"]
        if as_json:
            self.stdout.write(log.to_json(_to_plain(message, question)))
        else:
            self._print_footer(message)
        return message

    def _print_footer(self, message: dict[str, Any]) -> None:
        """Print the sources of an answer, its error, and how to go on."""
        self.stdout.write("")
        for source in message["sources"] or ():
            page = f", p. {source['page']}" if source["page"] else ""
            mark = "*" if source["cited"] else " "
            heading = (source["section"] or "").rpartition(" > ")[2]
            place = f" · {heading}" if heading else ""
            self.stdout.write(f"  [{source['slot']}]{mark} {source['document_name']}{page}{place}")
        if message["error"]:
            self.stderr.write(message["error"]["detail"])
        self.stderr.write(f"--chat {message['chat_id']}")

    def _speak_answer(self, text: str) -> None:
        """Speak an answer; a failure is only reported."""
        try:
            if file := speak_answer(text):
                self.stderr.write(f"--tts: no player here; the sound is in {file}")
        except SpeechUnavailable as error:
            self.stderr.write(f"--tts: {error}")


def _to_plain(message: dict[str, Any], question: str) -> dict[str, Any]:
    names = ("chat_id", "mode", "sources", "scope", "error")
    texts = {"question": question.strip(), "answer": message["content"]}
    return {name: message[name] for name in names} | texts | {"message": message}


def _open_turn(user: User, chat_id: UUID | None, question: str, model: str) -> turns.OpenedTurn:
    """Open a turn with validated input. Raises `NuraError`."""
    content = question.encode(errors="replace").decode()
    serializer = SendRequest(data={"content": content, "chat_id": chat_id, "model": model})
    if not serializer.is_valid():
        raise InvalidFrame(errors=serializer.errors)
    language = get_language() or "ko"
    return turns.open_turn(
        user=user, content=content, chat_id=chat_id, language=language, model=model
    )


def _find_chat(key: str | None) -> Chat | None:
    if key is None:
        return None
    try:
        chat = Chat.objects.filter(deleted_at=None).select_related("owner").get(pk=UUID(key))
    except (ValueError, Chat.DoesNotExist) as error:
        raise CommandError(f"no such chat: {key}") from error
    return chat


def find_user(name: str | None, chat: Chat | None = None) -> User:
    """The named user, else the chat's owner, else the only user or the first administrator."""
    active = User.objects.filter(is_active=True).order_by("pk")
    if name is not None:
        user = active.filter(username=name).first()
        if user is None:
            raise CommandError(f"no such user: {name}")
        if chat is not None and chat.owner_id != user.pk:
            raise CommandError(f"no such chat: {chat.pk}")
        return user
    if chat is not None:
        return chat.owner
    users = list(active[:2])
    user = users[0] if len(users) == 1 else active.filter(is_staff=True).first()
    if user is None:
        raise CommandError("say who asks: --user NAME")
    return user
