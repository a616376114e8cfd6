"""An answer read aloud: as a voice says it, and as sound from an OpenAI-compatible endpoint."""

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
"""From the question to the last byte of all pieces."""
MAX_SOUND_BYTES = 128 * 1024 * 1024
WAV = "wav"
SOUND_TYPES = {WAV: "audio/wav", "mp3": "audio/mpeg"}
"""What can be asked for. Only WAV can be joined from pieces."""
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


def is_speech_configured() -> bool:
    """Whether there is an endpoint to ask."""
    return bool(settings.TTS_BASE_URL and settings.TTS_MODEL)


def synthesise_speech(markdown: str, *, voice: str = "", form: str = WAV) -> Sound:
    """An answer as one sound; `form` is a key of `SOUND_TYPES`, without `voice` by the usual one.

    Raises `SpeechNotConfigured`, `NothingToSay`, `SpeechTooLong`, `SpeechFailed`.
    """
    if not is_speech_configured():
        raise SpeechNotConfigured
    text = to_speech_text(markdown)
    if not text:
        raise NothingToSay
    if len(text) > (MAX_SPEECH_CHARACTERS if form == WAV else MAX_PIECE_CHARACTERS):
        raise SpeechTooLong
    deadline = time.monotonic() + SPEECH_SECONDS
    pieces = split_text(text, MAX_PIECE_CHARACTERS)
    sounds = [request_speech(piece, voice=voice, form=form, deadline=deadline) for piece in pieces]
    return sounds[0] if len(sounds) == 1 else _join_sounds(sounds)


def request_speech(text: str, *, voice: str = "", form: str = WAV, deadline: float = 0.0) -> Sound:
    """One piece of text, spoken as it stands, until `deadline` (monotonic).

    A `deadline` of 0 is `SPEECH_SECONDS` from now.

    Raises `SpeechFailed`.
    """
    wanted = {"model": settings.TTS_MODEL, "voice": voice or settings.TTS_VOICE, "input": text}
    headers = {"Content-Type": "application/json", "Accept": "audio/*"}
    if settings.TTS_API_KEY:
        headers["Authorization"] = f"Bearer {settings.TTS_API_KEY}"
    url = f"{settings.TTS_BASE_URL.rstrip('/')}/audio/speech"
    body = json.dumps(wanted | {"response_format": form}).encode()
    left = _count_seconds_left(deadline or time.monotonic() + SPEECH_SECONDS)
    client = OutgoingClient(
        max_bytes=MAX_SOUND_BYTES, seconds=left, silence_seconds=left, is_entered=True
    )
    try:
        with client, client.open("POST", url, headers, body) as answer:
            kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
            if answer.status != HTTPStatus.OK:
                raise SpeechFailed(f"the speech endpoint answered {answer.status}")
            if not kind.startswith("audio/") and kind not in _UNTOLD:
                raise SpeechFailed(f"the speech endpoint sent {kind[:40]}, no sound")
            data = answer.read()
    except (AddressInvalid, AddressForbidden, AddressUnreachable, AnswerTooLarge) as error:
        raise SpeechFailed(f"the speech endpoint did not answer: {error}") from error
    if not data:
        raise SpeechFailed("the speech endpoint sent nothing")
    return Sound(data, SOUND_TYPES[form] if kind in _UNTOLD else kind)


def _count_seconds_left(deadline: float) -> float:
    """Seconds until the deadline. Raises `SpeechFailed` when it is over."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise SpeechFailed("the speech endpoint was too slow")
    return left


def _join_sounds(sounds: Sequence[Sound]) -> Sound:
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
    return Sound(out.getvalue(), SOUND_TYPES[WAV])


_MARKER = re.compile(r"[ \t]*\[\d{1,4}(?:\s*,\s*\d{1,4})*\]")
_ADDRESS = re.compile(r"https?://(?:www\.)?([^\s/?#]+)\S*")
_END = (".", "!", "?", "。", "…", ":", ";", ",")
_SENTENCE = re.compile(r"(?<=[.!?。…])\s|\n")


def to_speech_text(markdown: str) -> str:
    """The words, a paragraph, heading, item or row of a table a line, each with an end.

    A row names its columns ("Kind: annual, days: 15."), an address is its host, code is left out.
    Empty where nothing is to be said.
    """
    lines = (_to_spoken_line(words) for words in _list_blocks(_make_parser().parse(markdown)))
    return "\n".join(filter(None, lines))


def split_text(text: str, longest: int) -> Iterator[str]:
    """Stretches of at most `longest` characters that end with a sentence, or at least a word."""
    while len(text) > longest:
        head = text[: longest + 1]
        ends = [match.start() for match in _SENTENCE.finditer(head)]
        end = ends[-1] if ends else head.rfind(" ")
        end = end if end > 0 else longest
        yield text[:end].strip()
        text = text[end:].strip()
    if text:
        yield text


@cache
def _make_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    return parser.use(let_stars_close_before_hangul)


def _list_blocks(tokens: Sequence[Token]) -> Iterator[str]:
    """What each block says; the cells of a row are one block."""
    head: list[str] = []
    row: list[str] = []
    cell = in_head = False
    for token in tokens:
        match token.type:
            case "thead_open" | "thead_close":
                in_head = token.nesting > 0
            case "tr_open":
                row = []
            case "th_open" | "td_open" | "th_close" | "td_close":
                cell = token.nesting > 0
            case "tr_close" if in_head:
                head = row
            case "tr_close":
                yield _join_cells(head, row)
            case "inline" if cell:
                row.append(_to_words(token))
            case "inline":
                yield _to_words(token)


def _join_cells(head: Sequence[str], cells: Sequence[str]) -> str:
    named = zip(head, cells, strict=False)
    return ", ".join(f"{name}: {cell}" if name else cell for name, cell in named if cell)


def _to_words(inline: Token) -> str:
    return "".join(map(_to_spoken, inline.children or ()))


def _to_spoken(token: Token) -> str:
    """The spoken text of a token: of an image its description, of HTML nothing."""
    if token.type in {"softbreak", "hardbreak"}:
        return " "
    return token.content if token.type in {"text", "code_inline", "image"} else ""


def _to_spoken_line(words: str) -> str:
    words = " ".join(_ADDRESS.sub(r"\1", _MARKER.sub("", words)).split())
    if not any(map(str.isalnum, words)):
        return ""
    return words if words.endswith(_END) else f"{words}."
