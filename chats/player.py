"""Answers spoken on this machine: by the speech endpoint, else by espeak-ng where it is there."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from chats.services import speech
from chats.services.speech import split_text, to_speech_text
from rag.tokenize.text import choose_reply_language

SECONDS = 120
PLAYERS = (
    ("paplay",),
    ("aplay", "-q"),
    ("afplay",),
    ("ffplay", "-nodisp", "-autoexit", "-loglevel", "quiet"),
)


class CannotSpeak(Exception):
    """Nothing was spoken; the text says why, and what would help."""


def say(text: str) -> str:
    """Speak an answer; where it was written to when nothing here can play it, else empty.

    Raises `CannotSpeak`.
    """
    words = to_speech_text(text)
    if not words:
        return ""
    if speech.is_speech_configured():
        try:
            pieces = split_text(words, speech.MAX_PIECE_CHARACTERS)
            sounds = (speech.request_speech(piece) for piece in pieces)
            return " ".join(filter(None, map(_play, sounds)))
        except speech.SpeechFailed as error:
            raise CannotSpeak(str(error)) from error
    if program := shutil.which("espeak-ng"):
        _run([program, "-v", choose_reply_language(words), "--stdin"], words.encode())
        return ""
    raise CannotSpeak("set NURA_TTS_BASE_URL and NURA_TTS_MODEL, or install espeak-ng")


def _play(sound: speech.Sound) -> str:
    with tempfile.NamedTemporaryFile(prefix="nura-", suffix=".wav", delete=False) as file:
        file.write(sound.data)
    for name, *options in PLAYERS:
        if program := shutil.which(name):
            try:
                _run([program, *options, file.name])
            finally:
                Path(file.name).unlink()
            return ""
    return file.name


def _run(command: list[str], given: bytes = b"") -> None:
    try:
        subprocess.run(
            command, input=given, capture_output=True, check=True, timeout=SECONDS + len(given)
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise CannotSpeak(f"{Path(command[0]).name} failed: {error}") from error
