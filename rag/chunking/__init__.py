"""Cuts a document into chunks that begin and end where its text does.

Breaks in order of strength: pages, pictures, sections, paragraphs, sentences, lines, words. No
chunk reaches over a page's end, so that the page that is cited is always the page where the passage
stands, and pages can be cut one by one. Tables are cut between rows, lists between items, and code
is left whole as far as it can be.
"""

from rag.chunking.splitter import SEPARATOR, Split, Splitter, split

__all__ = ["SEPARATOR", "Split", "Splitter", "split"]
