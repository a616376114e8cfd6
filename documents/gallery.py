"""The pictures of one document while it is processed: kept, described, put into its pages."""

from collections.abc import Sequence

from documents.models import Document
from documents.parsers.base import Picture
from rag.pages import Page


class Gallery:
    """Takes the pictures of one document as its pages come.

    Used within a `with`: what it stored is removed again unless `keep` was called.
    """

    def __init__(self, document: Document) -> None:
        self._document = document

    def page(self, page: Page, pictures: Sequence[Picture]) -> Page:
        """The page with what the vision model reads in its pictures behind its text."""
        return page
