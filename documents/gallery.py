"""The pictures of one document while it is processed: kept, described, put into its pages."""

import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

from django.conf import settings
from django.db import transaction

from documents import files
from documents.describing import Describer
from documents.errors import PicturesFailed
from documents.insertion import Described, inserted
from documents.models import Document, DocumentPicture
from documents.parsers.base import Picture
from documents.parsers.clean import tidy
from documents.parsers.errors import NoText
from documents.parsers.sandbox import TICK, Reading
from documents.progress import Stopwatch
from rag import factory
from rag.errors import LLMError
from rag.pages import Box, Page
from rag.tokenize.language import reply_language

logger = logging.getLogger(__name__)

AHEAD = 8
"""Pages that are read while the pictures of an earlier one are described."""
ROWS_AT_ONCE = 1000
DESCRIBING = "describing"
"""The time that a document waits for its pictures alone, beside the times of `Document.Stage`."""


def _nothing() -> None:
    """Wait without telling anyone."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A kept picture and what the model will say of it; None: nothing needs to be asked."""

    row: DocumentPicture
    at: int | None
    said: "Future[str] | None"

    @property
    def ready(self) -> bool:
        return self.said is None or self.said.done()

    def described(self, page: Page) -> Described:
        """What goes into its page."""
        box = Box(page.number, *self.row.box) if page.number and self.row.box else None
        return Described(str(self.row.description), box, self.at)


class Gallery:
    """Takes the pictures of one document as its pages come.

        with sandbox.read(..., pictures=settings.PICTURES) as reading, Gallery(document) as gallery:
            for page in gallery.pages(reading): ...     # instead of `for page in reading`
            ...
            gallery.write()      # in the transaction that replaces the document's rows

    `pages` reads a few pages ahead while the vision model works; it calls `on_wait` about every
    second and notes in `watch` how long it waits. What was stored is removed at the end of the
    `with` where it ends in an error or `write` was not called. `warnings` are codes: pictures that
    should have been described and were not.
    """

    def __init__(
        self,
        document: Document,
        on_wait: Callable[[], None] = _nothing,
        watch: Stopwatch | None = None,
    ) -> None:
        self.warnings: list[str] = []
        self._document = document
        self._on_wait = on_wait
        self._watch = watch or Stopwatch()
        vision = factory.vision(settings.RAG)
        self._describer = Describer(vision) if vision else None
        self._known = _descriptions(document, self._describer.model) if self._describer else {}
        self._early: list[Picture] = []
        self._rows: list[DocumentPicture] = []
        self._said = False
        self._written = False
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if self._describer:
            self._open.enter_context(self._describer)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()
        if error is not None or not self._written:
            _remove([str(row.file) for row in self._rows if row.file])

    def pages(self, reading: Reading) -> Iterator[Page]:
        """The pages with what the vision model reads in their pictures.

        Raises `NoText` where neither pages nor pictures hold any, `PicturesFailed` where the model
        might have found some.
        """
        waiting: deque[tuple[Page, list[_Asked]]] = deque()
        for page in reading:
            self._early += reading.pictures
            waiting.append((page, self._taken(page)))
            while waiting and (len(waiting) > AHEAD or all(one.ready for one in waiting[0][1])):
                yield self._described(*waiting.popleft())
        while waiting:
            yield self._described(*waiting.popleft())
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
        transaction.on_commit(partial(_remove, names), robust=True)
        self._written = True

    @property
    def _model(self) -> str:
        return self._describer.model if self._describer else ""

    def _taken(self, page: Page) -> list[_Asked]:
        """Note all pictures of a page; the kept ones are stored and asked about.

        Some readers look at several pages before they give the first, and at their pictures.
        """
        pictures = [one for one in self._early if (one.page or 0) <= (page.number or 0)]
        self._early = [one for one in self._early if (one.page or 0) > (page.number or 0)]
        language = reply_language(page.text) if page.text.strip() else settings.LANGUAGE_CODE
        return [
            self._asked(picture, self._row(picture), language)
            for picture in pictures
            if not self._rejected(picture)
        ]

    def _rejected(self, picture: Picture) -> bool:
        if picture.rejected:
            self._row(picture)
            if picture.rejected == "too_many" and self._describer:
                self._warn("pictures_too_many")
        return bool(picture.rejected)

    def _row(self, picture: Picture) -> DocumentPicture:
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

    def _asked(self, picture: Picture, row: DocumentPicture, language: str) -> _Asked:
        row.file.name = files.store_picture(self._document.pk, picture.content_type, picture.data)
        known = self._known.get(picture.digest)
        if known is not None:
            row.description, row.model = known, self._model
        if known is not None or self._describer is None:
            return _Asked(row, picture.at, None)
        return _Asked(row, picture.at, self._describer.describe(picture, language))

    def _described(self, page: Page, pictures: Sequence[_Asked]) -> Page:
        """The page with the descriptions, once they are there."""
        for picture in pictures:
            if picture.said is not None:
                self._hear(picture.row, picture.said)
        described = [picture.described(page) for picture in pictures if picture.row.description]
        self._said = self._said or bool(described)
        return inserted(page, described)

    def _hear(self, row: DocumentPicture, said: "Future[str]") -> None:
        """Take the model's word; a picture of which it says nothing is left for later."""
        self._wait(said)
        try:
            row.description, row.model = tidy(said.result()), self._model
        except LLMError as error:
            logger.warning("picture %d of %s: %s", row.index, self._document.pk, error)
            self._warn("pictures_not_described")

    def _wait(self, said: "Future[str]") -> None:
        if said.done():
            return
        self._watch.enter(DESCRIBING)
        while not said.done():
            with contextlib.suppress(TimeoutError):
                said.exception(TICK)
            self._on_wait()
        self._watch.enter(Document.Stage.PARSING.value)

    def _warn(self, code: str) -> None:
        if code not in self.warnings:
            self.warnings.append(code)


def _descriptions(document: Document, model: str) -> dict[str, str]:
    """What this model has said already of the document's pictures, by their digests."""
    rows = DocumentPicture.objects.filter(document=document, model=model, description__isnull=False)
    return {digest: str(said) for digest, said in rows.values_list("digest", "description")}


def _remove(names: Sequence[str]) -> None:
    for name in names:
        files.remove(name)
