"""Answers spoken aloud: by an OpenAI-compatible endpoint, else by espeak-ng where it is there."""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

from django.conf import settings

from rag.language import reply_language

PIECE = 3000
"""Characters spoken at once: endpoints take about 4,000."""
SECONDS = 120
PLAYERS = (
    ("paplay",),
    ("aplay", "-q"),
    ("afplay",),
    ("ffplay", "-nodisp", "-autoexit", "-loglevel", "quiet"),
)
_UNSPOKEN = re.compile(r"\[\d{1,4}\]|[*_`#>|]+")


class CannotSpeak(Exception):
    """Nothing was spoken; the text says why, and what would help."""


def say(text: str) -> str:
    """Speak a text; where it was written to when nothing here can play it, else empty.

    Raises `CannotSpeak`.
    """
    spoken = " ".join(_UNSPOKEN.sub(" ", text).split())
    if not spoken:
        return ""
    if settings.TTS_BASE_URL and settings.TTS_MODEL:
        return " ".join(filter(None, [_play(_sound(piece)) for piece in _pieces(spoken)]))
    if program := shutil.which("espeak-ng"):
        voice = reply_language(spoken)
        _run([program, "-v", voice, "--stdin"], spoken.encode())
        return ""
    raise CannotSpeak("set NURA_TTS_BASE_URL and NURA_TTS_MODEL, or install espeak-ng")


def _sound(text: str) -> bytes:
    """A WAV file."""
    body = {"model": settings.TTS_MODEL, "voice": settings.TTS_VOICE, "input": text}
    headers = {"Content-Type": "application/json"}
    if settings.TTS_API_KEY:
        headers["Authorization"] = f"Bearer {settings.TTS_API_KEY}"
    request = Request(  # noqa: S310 - an http address: the settings see to that
        f"{settings.TTS_BASE_URL.rstrip('/')}/audio/speech",
        json.dumps(body | {"response_format": "wav"}).encode(),
        headers,
    )
    try:
        with urlopen(request, timeout=SECONDS) as response:  # noqa: S310
            return bytes(response.read())
    except (URLError, OSError) as error:
        raise CannotSpeak(f"the speech endpoint did not answer: {error}") from error


def _play(sound: bytes) -> str:
    with tempfile.NamedTemporaryFile(prefix="nura-", suffix=".wav", delete=False) as file:
        file.write(sound)
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


def _pieces(text: str) -> Iterator[str]:
    """The text in stretches that end with a sentence, or at least with a word."""
    while len(text) > PIECE:
        head = text[:PIECE]
        end = max(head.rfind(". ") + 1, 0) or head.rfind(" ")
        end = end if end > 0 else PIECE
        yield text[:end].strip()
        text = text[end:].strip()
    if text:
        yield text
