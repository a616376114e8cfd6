"""Speech from an OpenAI-compatible endpoint, as bytes. How a text is read: `chats.spoken`."""

import io
import json
import time
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.error import URLError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from django.conf import settings

from chats.spoken import pieces, spoken
from rag.errors import NuraError

PIECE = 3000
"""Characters spoken at once: endpoints take about 4,000."""
LONGEST = 3 * PIECE
"""Characters of one sound: half an hour of speech."""
SECONDS = 120.0
"""From the question to the last byte of all pieces."""
MOST_BYTES = 128 * 1024 * 1024
WAV = "wav"
TYPES = {WAV: "audio/wav", "mp3": "audio/mpeg"}
"""What can be asked for. Only WAV can be joined from pieces."""
_PART = 64 * 1024
_UNTOLD = {"", "application/octet-stream"}


class SpeechNotConfigured(NuraError):
    """This installation has no speech endpoint."""

    code = "speech_not_configured"


class NothingToSay(NuraError):
    """A question, or an answer without a word that can be spoken."""

    code = "nothing_to_say"


class SpeechTooLong(NuraError):
    """More text than one sound of this format may hold."""

    code = "speech_too_long"


class SpeechFailed(NuraError):
    """The endpoint is away, refused, was too slow, or sent no sound. Its words stay here."""

    code = "speech_failed"
    retryable = True


@dataclass(frozen=True, slots=True)
class Sound:
    """A file of speech."""

    data: bytes
    content_type: str


def configured() -> bool:
    """Whether there is an endpoint to ask."""
    return bool(settings.TTS_BASE_URL and settings.TTS_MODEL)


def synthesised(markdown: str, *, voice: str = "", form: str = WAV) -> Sound:
    """An answer as one sound; `form` is a key of `TYPES`, no `voice` the configured one.

    Raises `SpeechNotConfigured`, `NothingToSay`, `SpeechTooLong`, `SpeechFailed`.
    """
    if not configured():
        raise SpeechNotConfigured
    text = spoken(markdown)
    if not text:
        raise NothingToSay
    if len(text) > (LONGEST if form == WAV else PIECE):
        raise SpeechTooLong
    deadline = time.monotonic() + SECONDS
    sounds = [
        sound(piece, voice=voice, form=form, deadline=deadline) for piece in pieces(text, PIECE)
    ]
    return sounds[0] if len(sounds) == 1 else _joined(sounds)


def sound(text: str, *, voice: str = "", form: str = WAV, deadline: float = 0.0) -> Sound:
    """One piece of text, spoken as it stands, until `deadline` (monotonic; 0: `SECONDS` from now).

    Raises `SpeechFailed`.
    """
    wanted = {"model": settings.TTS_MODEL, "voice": voice or settings.TTS_VOICE, "input": text}
    headers = {"Content-Type": "application/json", "Accept": "audio/*"}
    if settings.TTS_API_KEY:
        headers["Authorization"] = f"Bearer {settings.TTS_API_KEY}"
    request = Request(  # noqa: S310 - an http address: the settings see to that
        f"{settings.TTS_BASE_URL.rstrip('/')}/audio/speech",
        json.dumps(wanted | {"response_format": form}).encode(),
        headers,
    )
    deadline = deadline or time.monotonic() + SECONDS
    try:
        with _OPENER.open(request, timeout=_left(deadline)) as response:
            kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            if not kind.startswith("audio/") and kind not in _UNTOLD:
                raise SpeechFailed(f"the speech endpoint sent {kind[:40]}, no sound")
            data = _body(response, deadline)
    except (OSError, URLError, HTTPException, ValueError) as error:
        raise SpeechFailed(f"the speech endpoint did not answer: {error}") from error
    return Sound(data, TYPES[form] if kind in _UNTOLD else kind)


class _NoRedirects(HTTPRedirectHandler):
    """The key goes where it was meant to go, and nowhere else: a redirect is an error."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = build_opener(_NoRedirects)


def _body(response: HTTPResponse, deadline: float) -> bytes:
    parts = bytearray()
    while part := response.read1(_PART):
        parts += part
        if len(parts) > MOST_BYTES:
            raise SpeechFailed("the speech endpoint sent too much")
        _left(deadline)
    if not parts:
        raise SpeechFailed("the speech endpoint sent nothing")
    return bytes(parts)


def _left(deadline: float) -> float:
    """Seconds until the deadline. Raises `SpeechFailed` when it is over."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise SpeechFailed("the speech endpoint was too slow")
    return left


def _joined(sounds: Sequence[Sound]) -> Sound:
    """One WAV file of several, with a header of its own: the sizes in theirs may be wrong.

    Raises `SpeechFailed` where they do not fit together.
    """
    out, kind = io.BytesIO(), None
    try:
        with wave.open(out, "wb") as whole:
            for one in sounds:
                with wave.open(io.BytesIO(one.data), "rb") as part:
                    shape = part.getparams()[:3]
                    if kind is None:
                        kind = shape
                        whole.setparams((*shape, 0, "NONE", ""))
                    elif kind != shape:
                        raise SpeechFailed("the pieces of speech differ in rate or width")
                    whole.writeframes(part.readframes(part.getnframes()))
    except (wave.Error, EOFError) as error:
        raise SpeechFailed(f"the pieces of speech cannot be joined: {error}") from error
    return Sound(out.getvalue(), TYPES[WAV])
