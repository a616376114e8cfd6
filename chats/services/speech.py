"""Reading answers aloud: their text as spoken, and sound from an OpenAI-compatible endpoint."""

import io
import json
import re
import time
import wave
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus

from django.conf import settings
from markdown_it import MarkdownIt
from markdown_it.token import Token

from documents.outgoing import (
    AddressForbidden,
    AddressInvalid,
    AddressUnreachable,
    AnswerTooLarge,
    OutgoingClient,
)
from documents.parsers.markdown import let_stars_close_before_hangul
from rag.errors import NuraError

MAX_PIECE_CHARACTERS = 3000
"""Characters spoken at once: endpoints take about 4,000."""
MAX_SPEECH_CHARACTERS = 3 * MAX_PIECE_CHARACTERS
"""Characters of one sound: half an hour of speech."""
SPEECH_SECONDS = 120.0
"""Time-out for all pieces together."""
MAX_SOUND_BYTES = 128 * 1024 * 1024
WAV = "wav"
SOUND_TYPES = {WAV: "audio/wav", "mp3": "audio/mpeg"}
"""Formats on offer. Only WAV files can be joined."""
_UNSPECIFIED_TYPES = {"", "application/octet-stream"}


class SpeechNotConfigured(NuraError):
    """This installation has no speech endpoint."""

    code = "speech_not_configured"


class NothingToSay(NuraError):
    """A question, or an answer without anything to speak."""

    code = "nothing_to_say"


class SpeechTooLong(NuraError):
    """The text is too long for one file of this format."""

    code = "speech_too_long"


class SpeechFailed(NuraError):
    """The endpoint is down, refused, was too slow, or sent no sound. Its message is not shown."""

    code = "speech_failed"
    retryable = True


@dataclass(frozen=True, slots=True)
class Sound:
    """A file of speech."""

    data: bytes
    content_type: str


def is_speech_configured() -> bool:
    """Whether a speech endpoint is configured."""
    return bool(settings.TTS_BASE_URL and settings.TTS_MODEL)


def synthesise_speech(markdown: str, *, voice: str = "", sound_format: str = WAV) -> Sound:
    """An answer as one sound; `sound_format` is a key of `SOUND_TYPES`. No `voice`: the default.

    Raises `SpeechNotConfigured`, `NothingToSay`, `SpeechTooLong`, `SpeechFailed`.
    """
    if not is_speech_configured():
        raise SpeechNotConfigured
    text = to_speech_text(markdown)
    if not text:
        raise NothingToSay
    if len(text) > (MAX_SPEECH_CHARACTERS if sound_format == WAV else MAX_PIECE_CHARACTERS):
        raise SpeechTooLong
    deadline = time.monotonic() + SPEECH_SECONDS
    pieces = split_text(text, MAX_PIECE_CHARACTERS)
    sounds = [
        request_speech(piece, voice=voice, sound_format=sound_format, deadline=deadline)
        for piece in pieces
    ]
    return sounds[0] if len(sounds) == 1 else _join_sounds(sounds)


def request_speech(
    text: str, *, voice: str = "", sound_format: str = WAV, deadline: float = 0.0
) -> Sound:
    """One piece of plain text as sound, until `deadline` (monotonic).

    A `deadline` of 0 is `SPEECH_SECONDS` from now.

    Raises `SpeechFailed`.
    """
    payload = {"model": settings.TTS_MODEL, "voice": voice or settings.TTS_VOICE, "input": text}
    headers = {"Content-Type": "application/json", "Accept": "audio/*"}
    if settings.TTS_API_KEY:
        headers["Authorization"] = f"Bearer {settings.TTS_API_KEY}"
    url = f"{settings.TTS_BASE_URL.rstrip('/')}/audio/speech"
    body = json.dumps(payload | {"response_format": sound_format}).encode()
    seconds_left = _count_seconds_left(deadline or time.monotonic() + SPEECH_SECONDS)
    client = OutgoingClient(
        max_bytes=MAX_SOUND_BYTES,
        seconds=seconds_left,
        silence_seconds=seconds_left,
        is_entered=True,
    )
    try:
        with client, client.open("POST", url, headers, body) as answer:
            content_type = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
            if answer.status != HTTPStatus.OK:
                raise SpeechFailed(f"the speech endpoint answered {answer.status}")
            if not content_type.startswith("audio/") and content_type not in _UNSPECIFIED_TYPES:
                raise SpeechFailed(f"the speech endpoint sent {content_type[:40]}, no sound")
            data = answer.read()
    except (AddressInvalid, AddressForbidden, AddressUnreachable, AnswerTooLarge) as error:
        raise SpeechFailed(f"the speech endpoint did not answer: {error}") from error
    if not data:
        raise SpeechFailed("the speech endpoint sent nothing")
    return Sound(
        data, SOUND_TYPES[sound_format] if content_type in _UNSPECIFIED_TYPES else content_type
    )


def _count_seconds_left(deadline: float) -> float:
    """Seconds until the deadline. Raises `SpeechFailed` once it has passed."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise SpeechFailed("the speech endpoint was too slow")
    return seconds


def _join_sounds(sounds: Sequence[Sound]) -> Sound:
    """Join WAV files into one with a new header: the sizes in theirs may be wrong.

    Raises `SpeechFailed` if their formats differ.
    """
    out, kind = io.BytesIO(), None
    try:
        with wave.open(out, "wb") as output:
            for sound in sounds:
                with wave.open(io.BytesIO(sound.data), "rb") as part:
                    shape = part.getparams()[:3]
                    if kind is None:
                        kind = shape
                        output.setparams((*shape, 0, "NONE", ""))
                    elif kind != shape:
                        raise SpeechFailed("the pieces of speech differ in rate or width")
                    output.writeframes(part.readframes(part.getnframes()))
    except (wave.Error, EOFError) as error:
        raise SpeechFailed(f"the pieces of speech cannot be joined: {error}") from error
    return Sound(out.getvalue(), SOUND_TYPES[WAV])


_MARKER = re.compile(r"[ \t]*\[\d{1,4}(?:\s*,\s*\d{1,4})*\]")
_ADDRESS = re.compile(r"https?://(?:www\.)?([^\s/?#]+)\S*")
_END = (".", "!", "?", "。", "…", ":", ";", ",")
_SENTENCE = re.compile(r"(?<=[.!?。…])\s|\n")


def to_speech_text(markdown: str) -> str:
    """The text to speak: a line per paragraph, heading, item or table row, ending in punctuation.

    A row names its columns ("Kind: annual, days: 15."), an address becomes its host, code is left
    out. Empty if there is nothing to say.
    """
    lines = (_to_spoken_line(words) for words in _list_blocks(_make_parser().parse(markdown)))
    return "\n".join(filter(None, lines))


def split_text(text: str, max_characters: int) -> Iterator[str]:
    """Split into pieces of at most `max_characters`, after a sentence or else a word."""
    while len(text) > max_characters:
        head = text[: max_characters + 1]
        ends = [match.start() for match in _SENTENCE.finditer(head)]
        end = ends[-1] if ends else head.rfind(" ")
        end = end if end > 0 else max_characters
        yield text[:end].strip()
        text = text[end:].strip()
    if text:
        yield text


@cache
def _make_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    return parser.use(let_stars_close_before_hangul)


def _list_blocks(tokens: Sequence[Token]) -> Iterator[str]:
    """The text of each block; the cells of a row are one block."""
    header: list[str] = []
    row: list[str] = []
    in_cell = in_header = False
    for token in tokens:
        match token.type:
            case "thead_open" | "thead_close":
                in_header = token.nesting > 0
            case "tr_open":
                row = []
            case "th_open" | "td_open" | "th_close" | "td_close":
                in_cell = token.nesting > 0
            case "tr_close" if in_header:
                header = row
            case "tr_close":
                yield _join_cells(header, row)
            case "inline" if in_cell:
                row.append(_to_words(token))
            case "inline":
                yield _to_words(token)


def _join_cells(header: Sequence[str], cells: Sequence[str]) -> str:
    pairs = zip(header, cells, strict=False)
    return ", ".join(f"{name}: {cell}" if name else cell for name, cell in pairs if cell)


def _to_words(inline: Token) -> str:
    return "".join(map(_to_spoken, inline.children or ()))


def _to_spoken(token: Token) -> str:
    """The spoken text of a token: an image's description, nothing for HTML."""
    if token.type in {"softbreak", "hardbreak"}:
        return " "
    return token.content if token.type in {"text", "code_inline", "image"} else ""


def _to_spoken_line(words: str) -> str:
    words = " ".join(_ADDRESS.sub(r"\1", _MARKER.sub("", words)).split())
    if not any(map(str.isalnum, words)):
        return ""
    return words if words.endswith(_END) else f"{words}."
