"""The pictures of a document while it is processed: stored, described, inserted into its pages."""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import structlog
from django.conf import settings
from django.db import transaction

from documents import files
from documents.connected.choice import read_config
from documents.errors import PicturesFailed
from documents.models import Document, DocumentPicture
from documents.notices import Stopwatch
from documents.parsers.base import NoText, Picture
from documents.parsers.sandbox.client import TICK_SECONDS, DocumentReading
from documents.parsers.text import tidy_text
from rag import factory
from rag.chunking import SEPARATOR as PAGE_SEPARATOR
from rag.errors import LLMError
from rag.ports import Vision
from rag.tokenize.text import choose_reply_language
from rag.types import Box, Heading, Kind, Line, Page, Region

SEPARATOR = "\n\n"
Part = TypeVar("Part", Heading, Line, Region)


@dataclass(frozen=True, slots=True)
class DescribedPicture:
    """A picture's description, its box on the page, and its offset in the text if known.

    `text` is empty where nothing was read in it: nothing is inserted then.
    """

    text: str
    box: Box | None = None
    offset: int | None = None


def insert_pictures(
    page: Page, pictures: Sequence[DescribedPicture]
) -> tuple[Page, list[int | None]]:
    """The page with the descriptions inserted as regions, and the offset of each in its text.

    A picture without a known place goes to the end of the text; its offset is None if nothing was
    read in it. A picture inside a table or list goes behind it.
    """
    starts: list[int | None] = [None] * len(pictures)
    places = list[tuple[int, int]]()
    for number, picture in enumerate(pictures):
        place = _find_place(page, picture.offset)
        if place is not None:
            places.append((place, number))
        elif picture.text:
            page = _append_picture(page, picture)
            starts[number] = len(page.text) - len(picture.text)
        elif picture.offset is not None:
            starts[number] = len(page.text)
    places.sort()
    for place, number in reversed(places):  # what comes before a place stays where it is
        if text := pictures[number].text:
            page = _insert_before(page, place, pictures[number])
            shift = len(text) + len(SEPARATOR)
            starts = [
                start + shift if start is not None and start >= place else start for start in starts
            ]
        starts[number] = place
    return page, starts


def _find_place(page: Page, offset: int | None) -> int | None:
    """Where the next block of the page begins, at or after this offset; None: at the end."""
    if offset is None:
        return None
    for region in page.regions:
        if region.start < offset < region.end:
            offset = region.end
    if offset > 0 and not page.text.startswith(SEPARATOR, offset - len(SEPARATOR)):
        separator_at = page.text.find(SEPARATOR, offset)
        offset = separator_at + len(SEPARATOR) if separator_at >= 0 else len(page.text)
    return offset if offset < len(page.text) else None


def _append_picture(page: Page, picture: DescribedPicture) -> Page:
    text = page.text + SEPARATOR if page.text else ""
    return replace(
        page,
        text=text + picture.text,
        regions=(*page.regions, _to_region(len(text), picture)),
    )


def _insert_before(page: Page, offset: int, picture: DescribedPicture) -> Page:
    """In front of the block that begins at `offset`."""
    shift = len(picture.text) + len(SEPARATOR)
    regions = (*_shift_parts(page.regions, offset, shift), _to_region(offset, picture))
    return replace(
        page,
        text=page.text[:offset] + picture.text + SEPARATOR + page.text[offset:],
        headings=_shift_parts(page.headings, offset, shift),
        lines=_shift_parts(page.lines, offset, shift),
        regions=tuple(sorted(regions, key=lambda region: region.start)),
    )


def _to_region(start: int, picture: DescribedPicture) -> Region:
    return Region(start, start + len(picture.text), Kind.PICTURE, box=picture.box)


def _shift_parts(parts: tuple[Part, ...], offset: int, shift: int) -> tuple[Part, ...]:
    """Move those from `offset` on by `shift` characters."""
    return tuple(_shift_part(part, shift) if part.start >= offset else part for part in parts)


def _shift_part(part: Part, shift: int) -> Part:
    if isinstance(part, Heading):
        return replace(part, start=part.start + shift)
    if isinstance(part, Line):
        return replace(part, start=part.start + shift, end=part.end + shift)
    header_end = part.header_end + shift if part.header_end else 0
    return replace(part, start=part.start + shift, end=part.end + shift, header_end=header_end)


MAX_PICTURES_AT_ONCE = 4
"""Concurrent requests to the model for one document."""


class PictureDescriber:
    """Asks the vision model, in an event loop of its own thread. Leaving it cancels all calls."""

    def __init__(self, vision: Vision) -> None:
        self.model = vision.name
        self._vision = vision
        self._loop = asyncio.new_event_loop()
        self._semaphore = asyncio.Semaphore(MAX_PICTURES_AT_ONCE)
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="describer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def describe(self, picture: Picture, language: str) -> "Future[str]":
        """Request a description. The future may end with an `LLMError`."""
        return asyncio.run_coroutine_threadsafe(self._ask_model(picture, language), self._loop)

    async def _ask_model(self, picture: Picture, language: str) -> str:
        async with self._semaphore:
            return await self._vision.describe(picture.data, picture.content_type, language)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:  # cancels what is left
            runner.run(self._end.wait())


logger = structlog.get_logger()

MAX_PAGES_AHEAD = 8
"""Pages that are read while the pictures of an earlier one are described."""
ROWS_PER_INSERT = 1000
DESCRIBING = "describing"
"""Name of the time spent waiting for descriptions, in addition to those of `Document.Stage`."""


def _do_nothing() -> None:
    """The default of the callbacks."""


@dataclass(frozen=True, slots=True)
class _PendingPicture:
    """A stored picture and its future description; None: the model need not be asked."""

    row: DocumentPicture
    offset: int | None
    description: "Future[str] | None"

    @property
    def is_ready(self) -> bool:
        return self.description is None or self.description.done()

    def to_described(self, page: Page) -> DescribedPicture:
        """The picture as it is inserted into its page."""
        box = Box(page.number, *self.row.box) if page.number and self.row.box else None
        return DescribedPicture(self.row.description or "", box, self.offset)


class Gallery:
    """Collects the pictures of one document as its pages come.

        with read_document(..., pictures=...) as reading, Gallery(document) as gallery:
            for page in gallery.pages(reading): ...     # instead of `for page in reading`
            ...
            gallery.write()      # in the transaction that replaces the document's rows

    `pages` reads a few pages ahead while the vision model works. It calls `on_wait` about twice
    a second while it waits, measures that time with `watch`, and calls `on_recognition` before it
    asks the model; exceptions of both propagate. Stored files are removed on exit after an error or
    without a call of `write`. `warnings` are codes for pictures that were not described.
    """

    def __init__(
        self,
        document: Document,
        on_wait: Callable[[], None] = _do_nothing,
        watch: Stopwatch | None = None,
        on_recognition: Callable[[], None] = _do_nothing,
    ) -> None:
        self.warnings: list[str] = []
        self._document = document
        self._on_wait = on_wait
        self._on_recognition = on_recognition
        self._watch = watch or Stopwatch()
        vision = factory.get_vision(read_config())
        self._describer = PictureDescriber(vision) if vision else None
        self._known_descriptions = (
            _load_descriptions(document, self._describer.model) if self._describer else {}
        )
        self._early_pictures: list[Picture] = []
        self._rows: list[DocumentPicture] = []
        self._has_descriptions = False
        self._page_start = 0
        """Offset of the next page in the whole text."""
        self._is_written = False
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if self._describer:
            self._stack.enter_context(self._describer)
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        self._stack.close()
        if error is not None or not self._is_written:
            _remove_files([str(row.file) for row in self._rows if row.file])

    def pages(self, reading: DocumentReading) -> Iterator[Page]:
        """The pages with the descriptions of their pictures.

        Raises `NoText` if neither pages nor pictures have text, `PicturesFailed` if that is because
        the model failed.
        """
        waiting: deque[tuple[Page, list[_PendingPicture]]] = deque()
        for page in reading:
            self._early_pictures += reading.pictures
            waiting.append((page, self._collect_pictures(page)))
            while waiting and (
                len(waiting) > MAX_PAGES_AHEAD or all(picture.is_ready for picture in waiting[0][1])
            ):
                yield self._insert_descriptions(*waiting.popleft())
        while waiting:
            yield self._insert_descriptions(*waiting.popleft())
        if reading.no_text and not self._has_descriptions:
            if "pictures_not_described" in self.warnings:
                raise PicturesFailed
            raise NoText(kind=reading.no_text, vision=self._model)

    def write(self) -> None:
        """Replace the rows of the document's pictures; the old files are removed on commit."""
        old_rows = DocumentPicture.objects.filter(document=self._document)
        names = list(old_rows.exclude(file="").values_list("file", flat=True))
        old_rows.delete()
        DocumentPicture.objects.bulk_create(self._rows, batch_size=ROWS_PER_INSERT)
        transaction.on_commit(lambda: _remove_files(names), robust=True)
        self._is_written = True

    @property
    def _model(self) -> str:
        return self._describer.model if self._describer else ""

    def _collect_pictures(self, page: Page) -> list[_PendingPicture]:
        """Add rows for all pictures of a page; store accepted ones and request descriptions.

        Some readers extract the pictures of several pages before they yield the first page.
        """
        pictures = [item for item in self._early_pictures if (item.page or 0) <= (page.number or 0)]
        self._early_pictures = [
            item for item in self._early_pictures if (item.page or 0) > (page.number or 0)
        ]
        language = choose_reply_language(page.text) if page.text.strip() else settings.LANGUAGE_CODE
        return [
            self._request_description(picture, self._add_row(picture), language)
            for picture in pictures
            if not self._is_rejected(picture)
        ]

    def _is_rejected(self, picture: Picture) -> bool:
        if picture.rejected:
            self._add_row(picture)
            if picture.rejected == "too_many" and self._describer:
                self._warn("pictures_too_many")
        return bool(picture.rejected)

    def _add_row(self, picture: Picture) -> DocumentPicture:
        row = DocumentPicture(
            document=self._document,
            index=len(self._rows),
            page=picture.page,
            digest=picture.digest,
            width=picture.width,
            height=picture.height,
            box=list(picture.box) if picture.box else None,
            rejected=picture.rejected,
            content_type=picture.content_type,
        )
        self._rows.append(row)
        return row

    def _request_description(
        self, picture: Picture, row: DocumentPicture, language: str
    ) -> _PendingPicture:
        row.file.name = files.store_picture(self._document.pk, picture.content_type, picture.data)
        description = self._known_descriptions.get(picture.digest)
        if description is not None:
            row.description, row.model = description, self._model
        if description is not None or self._describer is None:
            return _PendingPicture(row, picture.offset, None)
        self._on_recognition()
        return _PendingPicture(row, picture.offset, self._describer.describe(picture, language))

    def _insert_descriptions(self, page: Page, pictures: Sequence[_PendingPicture]) -> Page:
        """Wait for the descriptions and insert them into the page."""
        for picture in pictures:
            if picture.description is not None:
                self._store_description(picture.row, picture.description)
        described = [picture.to_described(page) for picture in pictures]
        self._has_descriptions = self._has_descriptions or any(item.text for item in described)
        page, starts = insert_pictures(page, described)
        for picture, start in zip(pictures, starts, strict=True):
            picture.row.start = start if start is None else self._page_start + start
        self._page_start += len(page.text) + len(PAGE_SEPARATOR)
        return page

    def _store_description(self, row: DocumentPicture, future: "Future[str]") -> None:
        """Wait for the description and store it; after a failure the picture stays without."""
        self._wait_for_description(future)
        try:
            row.description, row.model = tidy_text(future.result()), self._model
        except LLMError as error:
            logger.warning(
                "picture_not_described",
                document_id=str(self._document.pk),
                picture=row.index,
                code=error.code,
            )
            self._warn("pictures_not_described")

    def _wait_for_description(self, future: "Future[str]") -> None:
        if future.done():
            return
        self._watch.start_stage(DESCRIBING)
        while not future.done():
            with contextlib.suppress(TimeoutError):
                future.exception(TICK_SECONDS)
            self._on_wait()
        self._watch.start_stage(Document.Stage.PARSING.value)

    def _warn(self, code: str) -> None:
        if code not in self.warnings:
            self.warnings.append(code)


def _load_descriptions(document: Document, model: str) -> dict[str, str]:
    """Descriptions that this model already wrote of the document's pictures, by digest."""
    rows = DocumentPicture.objects.filter(document=document, model=model, description__isnull=False)
    return {
        digest: str(description)
        for digest, description in rows.values_list("digest", "description")
    }


def _remove_files(names: Sequence[str]) -> None:
    for name in names:
        files.remove_file(name)
