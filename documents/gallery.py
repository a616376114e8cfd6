"""The pictures of one document while it is processed: kept, described, put into its pages."""

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
    at: int | None = None


def insert_pictures(
    page: Page, pictures: Sequence[DescribedPicture]
) -> tuple[Page, list[int | None]]:
    """The page with these in their order, each a region, and where each stands in its text.

    One whose place is not known stands behind the text; None: it stands nowhere, since nothing was
    read in it. No table or list is torn apart: what stands in one follows it.
    """
    starts: list[int | None] = [None] * len(pictures)
    known = list[tuple[int, int]]()
    for number, picture in enumerate(pictures):
        place = _find_place(page, picture.at)
        if place is not None:
            known.append((place, number))
        elif picture.text:
            page = _append_picture(page, picture)
            starts[number] = len(page.text) - len(picture.text)
        elif picture.at is not None:
            starts[number] = len(page.text)
    known.sort()
    for place, number in reversed(known):  # what comes before a place stays where it is
        if text := pictures[number].text:
            page = _insert_before(page, place, pictures[number])
            by = len(text) + len(SEPARATOR)
            starts = [one + by if one is not None and one >= place else one for one in starts]
        starts[number] = place
    return page, starts


def _find_place(page: Page, at: int | None) -> int | None:
    """Where a block of the page begins, at this offset or next to it; None: behind all."""
    if at is None:
        return None
    for region in page.regions:
        if region.start < at < region.end:
            at = region.end
    if at > 0 and not page.text.startswith(SEPARATOR, at - len(SEPARATOR)):
        found = page.text.find(SEPARATOR, at)
        at = found + len(SEPARATOR) if found >= 0 else len(page.text)
    return at if at < len(page.text) else None


def _append_picture(page: Page, picture: DescribedPicture) -> Page:
    text = page.text + SEPARATOR if page.text else ""
    return replace(
        page,
        text=text + picture.text,
        regions=(*page.regions, _to_region(len(text), picture)),
    )


def _insert_before(page: Page, at: int, picture: DescribedPicture) -> Page:
    """In front of the block that begins at `at`."""
    by = len(picture.text) + len(SEPARATOR)
    regions = (*_shift_parts(page.regions, at, by), _to_region(at, picture))
    return replace(
        page,
        text=page.text[:at] + picture.text + SEPARATOR + page.text[at:],
        headings=_shift_parts(page.headings, at, by),
        lines=_shift_parts(page.lines, at, by),
        regions=tuple(sorted(regions, key=lambda region: region.start)),
    )


def _to_region(start: int, picture: DescribedPicture) -> Region:
    return Region(start, start + len(picture.text), Kind.PICTURE, box=picture.box)


def _shift_parts(parts: tuple[Part, ...], at: int, by: int) -> tuple[Part, ...]:
    """Those from `at` on, `by` characters further."""
    return tuple(_shift_part(part, by) if part.start >= at else part for part in parts)


def _shift_part(part: Part, by: int) -> Part:
    if isinstance(part, Heading):
        return replace(part, start=part.start + by)
    if isinstance(part, Line):
        return replace(part, start=part.start + by, end=part.end + by)
    header_end = part.header_end + by if part.header_end else 0
    return replace(part, start=part.start + by, end=part.end + by, header_end=header_end)


MAX_PICTURES_AT_ONCE = 4
"""Pictures of one document that the model is asked for together."""


class PictureDescriber:
    """An event loop in its own thread for one document; leaving the `with` ends all calls."""

    def __init__(self, vision: Vision) -> None:
        self.model = vision.name
        self._vision = vision
        self._loop = asyncio.new_event_loop()
        self._room = asyncio.Semaphore(MAX_PICTURES_AT_ONCE)
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="describer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def describe(self, picture: Picture, language: str) -> "Future[str]":
        """What the model will say; it may end in an `LLMError`."""
        return asyncio.run_coroutine_threadsafe(self._ask_model(picture, language), self._loop)

    async def _ask_model(self, picture: Picture, language: str) -> str:
        async with self._room:
            return await self._vision.describe(picture.data, picture.content_type, language)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:  # cancels what is left
            runner.run(self._over.wait())


logger = structlog.get_logger()

MAX_PAGES_AHEAD = 8
"""Pages that are read while the pictures of an earlier one are described."""
ROWS_AT_ONCE = 1000
DESCRIBING = "describing"
"""The time that a document waits for its pictures alone, beside the times of `Document.Stage`."""


def _do_nothing() -> None:
    """Wait without telling anyone."""


@dataclass(frozen=True, slots=True)
class _PendingPicture:
    """A kept picture and what the model will say of it; None: nothing needs to be asked."""

    row: DocumentPicture
    at: int | None
    said: "Future[str] | None"

    @property
    def is_ready(self) -> bool:
        return self.said is None or self.said.done()

    def to_described(self, page: Page) -> DescribedPicture:
        """What goes into its page."""
        box = Box(page.number, *self.row.box) if page.number and self.row.box else None
        return DescribedPicture(self.row.description or "", box, self.at)


class Gallery:
    """Takes the pictures of one document as its pages come.

        with read_document(..., pictures=...) as reading, Gallery(document) as gallery:
            for page in gallery.pages(reading): ...     # instead of `for page in reading`
            ...
            gallery.write()      # in the transaction that replaces the document's rows

    `pages` reads a few pages ahead while the vision model works; it calls `on_wait` about every
    second and notes in `watch` how long it waits. Before the model is asked, it calls
    `on_recognition`; what either raises goes through. What was stored is removed at the end of the
    `with` where it ends in an error or `write` was not called. `warnings` are codes: pictures that
    should have been described and were not.
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
        self._known = _load_descriptions(document, self._describer.model) if self._describer else {}
        self._early: list[Picture] = []
        self._rows: list[DocumentPicture] = []
        self._said = False
        self._page_start = 0
        """Of the next page in the whole text."""
        self._written = False
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if self._describer:
            self._open.enter_context(self._describer)
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        self._open.close()
        if error is not None or not self._written:
            _remove_files([str(row.file) for row in self._rows if row.file])

    def pages(self, reading: DocumentReading) -> Iterator[Page]:
        """The pages with what the vision model reads in their pictures.

        Raises `NoText` where neither pages nor pictures hold any, `PicturesFailed` where the model
        might have found some.
        """
        waiting: deque[tuple[Page, list[_PendingPicture]]] = deque()
        for page in reading:
            self._early += reading.pictures
            waiting.append((page, self._collect_pictures(page)))
            while waiting and (
                len(waiting) > MAX_PAGES_AHEAD or all(one.is_ready for one in waiting[0][1])
            ):
                yield self._insert_descriptions(*waiting.popleft())
        while waiting:
            yield self._insert_descriptions(*waiting.popleft())
        if reading.no_text and not self._said:
            if "pictures_not_described" in self.warnings:
                raise PicturesFailed
            raise NoText(kind=reading.no_text, vision=self._model)

    def write(self) -> None:
        """Replace the rows of the document's pictures; files of the old ones go on commit."""
        old = DocumentPicture.objects.filter(document=self._document)
        names = list(old.exclude(file="").values_list("file", flat=True))
        old.delete()
        DocumentPicture.objects.bulk_create(self._rows, batch_size=ROWS_AT_ONCE)
        transaction.on_commit(lambda: _remove_files(names), robust=True)
        self._written = True

    @property
    def _model(self) -> str:
        return self._describer.model if self._describer else ""

    def _collect_pictures(self, page: Page) -> list[_PendingPicture]:
        """Note all pictures of a page; the kept ones are stored and asked about.

        Some readers look at several pages before they give the first, and at their pictures.
        """
        pictures = [one for one in self._early if (one.page or 0) <= (page.number or 0)]
        self._early = [one for one in self._early if (one.page or 0) > (page.number or 0)]
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
        known = self._known.get(picture.digest)
        if known is not None:
            row.description, row.model = known, self._model
        if known is not None or self._describer is None:
            return _PendingPicture(row, picture.at, None)
        self._on_recognition()
        return _PendingPicture(row, picture.at, self._describer.describe(picture, language))

    def _insert_descriptions(self, page: Page, pictures: Sequence[_PendingPicture]) -> Page:
        """The page with the descriptions, once they are there."""
        for picture in pictures:
            if picture.said is not None:
                self._store_description(picture.row, picture.said)
        described = [picture.to_described(page) for picture in pictures]
        self._said = self._said or any(one.text for one in described)
        page, starts = insert_pictures(page, described)
        for picture, start in zip(pictures, starts, strict=True):
            picture.row.start = start if start is None else self._page_start + start
        self._page_start += len(page.text) + len(PAGE_SEPARATOR)
        return page

    def _store_description(self, row: DocumentPicture, said: "Future[str]") -> None:
        """Take the model's word; a picture of which it says nothing is left for later."""
        self._wait_for_description(said)
        try:
            row.description, row.model = tidy_text(said.result()), self._model
        except LLMError as error:
            logger.warning(
                "picture_not_described",
                document_id=str(self._document.pk),
                picture=row.index,
                code=error.code,
            )
            self._warn("pictures_not_described")

    def _wait_for_description(self, said: "Future[str]") -> None:
        if said.done():
            return
        self._watch.start_stage(DESCRIBING)
        while not said.done():
            with contextlib.suppress(TimeoutError):
                said.exception(TICK_SECONDS)
            self._on_wait()
        self._watch.start_stage(Document.Stage.PARSING.value)

    def _warn(self, code: str) -> None:
        if code not in self.warnings:
            self.warnings.append(code)


def _load_descriptions(document: Document, model: str) -> dict[str, str]:
    """What this model has said already of the document's pictures, by their digests."""
    rows = DocumentPicture.objects.filter(document=document, model=model, description__isnull=False)
    return {digest: str(said) for digest, said in rows.values_list("digest", "description")}


def _remove_files(names: Sequence[str]) -> None:
    for name in names:
        files.remove_file(name)
