"""What a child process does: reads one document (or draws one page) and streams the result.

`forkserver` forks it; what it sends goes to its standard output.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from documents.parsers import jail, kinds, metadata, registry
from documents.parsers.base import Context, Limits, PictureRules
from documents.parsers.channel import frame, page_value
from documents.parsers.clean import readable
from documents.parsers.errors import (
    Corrupt,
    NoText,
    OutOfMemory,
    ParseFailed,
    TooLarge,
    UnsupportedType,
)

Send = Callable[[str, object], None]
Request = dict[str, Any]


def answer(request: Request, parent: int) -> None:
    """Answer one request and end the process; the last frame is `end` or `error`.

    `parent` is the process whose child this has to be.
    """
    send = _sender()
    limits = Limits(**request["limits"])
    rules = PictureRules(**request.get("pictures", {}))
    context = Context(request["content_type"], limits, send, rules)
    work = _draw if request["task"] == "draw" else _read
    # Loaded before the limits fall: compiled modules may still be written.
    reader = registry.parser(request["content_type"], request.get("pdf_reader", registry.PDFIUM))
    jail.enter(limits, parent)
    try:
        work(request, context, reader, send)
    except ParseFailed as error:
        _fail(send, error)
    except MemoryError:
        _fail(send, OutOfMemory(limit=limits.memory))
    except Exception as error:  # noqa: BLE001 - whatever a broken file does to a library is "corrupt"
        _fail(send, Corrupt(detail=type(error).__name__))
    else:
        send("end", None)
    # No clean-up of half-broken libraries: some crash in their destructors.
    os._exit(0)


def _sender() -> Send:
    """Keep the real standard output for frames; what libraries print goes to standard error."""
    pipe = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)

    def send(kind: str, value: object) -> None:
        data = memoryview(frame(kind, value))
        while data:
            data = data[pipe.write(data) :]

    return send


def _fail(send: Send, error: ParseFailed) -> None:
    """The error as a frame: code and plain parameters only, no text of the file."""
    send("error", [error.code, {key: str(value)[:200] for key, value in error.params.items()}])


def _read(request: Request, context: Context, reader: Any, send: Send) -> None:
    """Stream the pages, then the metadata."""
    characters, seen, beginning, titles = 0, False, "", list[str]()
    for page in reader.parse(Path(request["path"]), context):
        characters += len(page.text)
        if characters > context.limits.characters:
            raise TooLarge(limit=context.limits.characters)
        seen = seen or readable(page.text)
        if len(beginning) < metadata.REACH:
            beginning += page.text[: metadata.REACH] + "\n"
            titles += [heading.title for heading in page.headings[:1]]
        send("page", page_value(page))
    if not seen and not context.pictures_kept:
        raise NoText(kind=context.no_text)
    if not seen:  # it may stand in the pictures; whoever looks at them decides
        send("no_text", context.no_text)
    kind = context.content_type
    found = metadata.combined(context.metadata, beginning, titles, content_type=kind)
    send("metadata", found)


def _draw(request: Request, context: Context, reader: Any, send: Send) -> None:
    """Send one page as PNG."""
    if context.content_type != kinds.PDF:
        raise UnsupportedType(found=kinds.LABELS[context.content_type])
    image = reader.draw(Path(request["path"]), request["number"], request["width"])
    if image is not None:
        send("image", image)
